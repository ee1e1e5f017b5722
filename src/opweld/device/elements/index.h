// Places along an axis that indices tell, as they are read.

namespace op {

// @from_either_end deps:
// A number below 0 counts from the end of an axis.
template <typename T>
OPWELD_FN int64_t from_either_end(T index, int64_t extent) {
    return index < 0 ? index + extent : index;
}

}  // namespace op
