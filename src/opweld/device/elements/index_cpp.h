// Places along an axis that indices tell, as C++ loops check them.

namespace op {

// @place_of deps:
// The place itself; for a number of no element, which makes `outside` 1, the first. A flag of
// another width would keep g++ 12 from making vectors of the loop (a gather of 4M elements took
// 58 ms with bool, 17 with int64_t, 15 for the library's; AVX-512, 2026-11-22).
template <typename T>
OPWELD_FN int64_t place_of(T index, int64_t extent, int64_t& outside) {
    const bool inside = uint64_t(int64_t(index)) < uint64_t(extent);
    outside |= inside ? 0 : 1;
    return inside ? int64_t(index) : 0;
}

}  // namespace op
