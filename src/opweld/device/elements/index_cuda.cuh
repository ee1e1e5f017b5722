// Places along an axis that indices tell, as CUDA kernels check them.

// @assert_header deps:
#include <assert.h>

namespace op {

// @place_of deps: assert_header
// The place itself; a number of no element ends the kernel, as it does in PyTorch's own.
template <typename T>
OPWELD_FN int64_t place_of(T index, int64_t extent) {
    if (uint64_t(int64_t(index)) >= uint64_t(extent)) {
        __assert_fail("index out of range", __FILE__, __LINE__, __func__);
    }
    return index;
}

}  // namespace op
