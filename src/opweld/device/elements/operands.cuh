// What kernels with a text for each layout ask of the operands of a call.

// @list_header deps:
#include <initializer_list>

namespace op {

// @Operands deps: TensorView, list_header
// What a kernel was made for: the number of a torch.dtype, and sizes.
struct OperandType {
    int type;
    std::initializer_list<int64_t> sizes;
};
// What is known of a call: below 0 `misfit` is the first operand that is not as it must be, from -1
// on; `reach` is the largest offset of an element, and all are `aligned` for 16-byte accesses or
// not. At `given` is no tensor.
struct Operands {
    int misfit = 0, aligned = 1;
    bool contiguous = true;
    int64_t reach = 0;

    Operands(const TensorView* x, std::initializer_list<OperandType> types, int given = -1) {
        int i = 0;
        for (const OperandType& each : types) {
            i += i == given;
            const TensorView& operand = x[i++];
            add(operand, each, i);
        }
    }
    void add(const TensorView& x, const OperandType& expected, int number) {
        const auto& sizes = expected.sizes;
        const bool fits = x.type == expected.type && x.rank == int(sizes.size()) &&
                          std::equal(sizes.begin(), sizes.end(), x.sizes);
        if (!fits && !misfit) misfit = -number;
        int64_t offset = 0, step = 1;
        for (int a = x.rank; a-- > 0; step *= x.sizes[a]) {
            if (x.sizes[a] == 1) continue;
            offset += (x.sizes[a] - 1) * x.strides[a];
            contiguous = contiguous && x.strides[a] == step;
        }
        reach = std::max(reach, offset);
        aligned &= reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
    }
};

// @lie_alike deps: TensorView
// Whether the same flat position means the same element in all of these; sizes are equal.
static bool lie_alike(const TensorView* x, std::initializer_list<int> all) {
    const TensorView& first = x[*all.begin()];
    for (int i : all) {
        for (int a = 0; a < first.rank; ++a) {
            if (first.sizes[a] > 1 && x[i].strides[a] != first.strides[a]) return false;
        }
    }
    return true;
}

}  // namespace op
