// Places along an axis that indices tell, as C++ loops check them.

namespace op {

// @place_of deps:
// The place itself; for a number of no element, which leaves `outside` true, the first.
template <typename T>
OPWELD_FN int64_t place_of(T index, int64_t extent, bool& outside) {
    const bool inside = uint64_t(int64_t(index)) < uint64_t(extent);
    outside |= !inside;
    return inside ? int64_t(index) : 0;
}

}  // namespace op
