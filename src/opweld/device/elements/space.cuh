// The operands of functors, along the axes of a space. Sizes and strides are those of the tensors
// at each call: an operand may lie in memory in any way.

// @TensorView deps: type_traits_header
#include <algorithm>
#include <utility>
// A tensor: the number of its torch.dtype, sizes and strides in elements.
struct TensorView {
    void* data;
    int type, rank;
    const int64_t *sizes, *strides;
};

namespace op {

// @Cut deps:
// Of one axis of a tensor `size` places from `begin` on.
struct Cut {
    int axis;
    int64_t begin, size;
};

// @Part deps: TensorView, Cut
// A part of a tensor of that type and rank, as a tensor; what is not in the tensor fits nowhere.
template <typename T, int kRank>
struct Part : TensorView {
    int64_t left[kRank];
    Part(const TensorView& x, std::initializer_list<Cut> cuts) : TensorView(x) {
        if (x.rank != kRank) return;
        std::copy(x.sizes, x.sizes + kRank, left);
        for (const Cut& cut : cuts) {
            if (left[cut.axis] < cut.begin + cut.size) rank = -1;
            left[cut.axis] = cut.size;
            data = static_cast<T*>(data) + cut.begin * x.strides[cut.axis];
        }
        sizes = left;
    }
    Part(const Part&) = delete;  // which would have the sizes of another
};

// @type_of deps:
// The number of a torch.dtype.
template <typename T>
constexpr int type_of = -1;

// @type_of_float deps: type_of
template <>
inline constexpr int type_of<float> = 6;

// @type_of_double deps: type_of
template <>
inline constexpr int type_of<double> = 7;

// @type_of_bool deps: type_of
template <>
inline constexpr int type_of<bool> = 11;

// @type_of_uint8_t deps: type_of
template <>
inline constexpr int type_of<uint8_t> = 0;

// @type_of_int8_t deps: type_of
template <>
inline constexpr int type_of<int8_t> = 1;

// @type_of_int16_t deps: type_of
template <>
inline constexpr int type_of<int16_t> = 2;

// @type_of_int32_t deps: type_of
template <>
inline constexpr int type_of<int32_t> = 3;

// @type_of_int64_t deps: type_of
template <>
inline constexpr int type_of<int64_t> = 4;

// @type_of_half deps: type_of, half
template <>
inline constexpr int type_of<half> = 5;

// @type_of_bfloat16 deps: type_of, bfloat16
template <>
inline constexpr int type_of<bfloat16> = 15;

// @Along deps:
template <int i>
using Int = std::integral_constant<int, i>;
template <typename... T>
struct Types {
    static constexpr int kNumTypes = sizeof...(T);
};
// An operand whose axes lie along these of the results; it is the same along all others.
template <typename Stored, int... kAxes>
struct Along {
    using T = Stored;
    static constexpr int kRank = sizeof...(kAxes), kAxis[] = {kAxes..., 0};
    OPWELD_HOST_FN constexpr bool has(int axis) { return ((kAxes == axis) || ...); }
};

// @Pack deps:
template <typename T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
    T value[n];
};

// @Divisor deps:
// Divides by a size: what is below 2^31 by multiplication (Granlund and Montgomery, 1994).
struct Divisor {
    int64_t by;
    uint32_t factor, shift = 0;
    Divisor(int64_t by = 1) : by(by) {
        while (shift < 31 && 1ll << shift < by) ++shift;
        factor = ((1ull << (31 + shift)) + by - 1) / (by ? by : 1);
    }
    template <typename Index>
    __device__ __forceinline__ Index quotient(Index at) const {
        if constexpr (sizeof(Index) == 4) return __umulhi(2 * at, factor) >> shift;
        else return at < Index(by) ? 0 : at / Index(by);
    }
};

// @Axes deps: Divisor
// Axes, the innermost first, and how far operands step along each: 0 along one that is not there.
template <int n, int kCount>
struct Axes {
    int num = 0;
    Divisor sizes[n];
    int64_t steps[kCount][n] = {};

    // Calls visit(axis, the position along it) for each.
    template <typename Index, typename Visit>
    __device__ __forceinline__ void split(Index at, Visit visit) const {
#pragma unroll
        for (int a = 0; a < n; ++a) {
            const Index outer = a + 1 < n ? sizes[a].quotient(at) : 0;
            visit(a, at - outer * Index(sizes[a].by));
            at = outer;
        }
    }
    // What operand i steps to a position, by kStep along the first axis where that is known.
    template <int kStep = -1, typename Index>
    __device__ __forceinline__ Index offset(Index at, int i) const {
        Index sum = 0;
        split(at, [&](int a, Index along) {
            sum += along * Index(kStep >= 0 && a == 0 ? kStep : steps[i][a]);
        });
        return sum;
    }
};

// @Space deps: Along, Axes, type_of
// The space of a call.
template <int kRank, typename... X>
struct Space {
    static constexpr int kCount = sizeof...(X);
    int64_t sizes[kRank + 1], steps[kCount][kRank + 1] = {};
    int64_t num = 1, largest = 0;  // elements, and the largest offset of one
    int misfit = 0;  // below 0: the first operand that is none of the functor's, from -1 on

    explicit Space(const TensorView* x) {
        constexpr int kTypes[] = {type_of<std::remove_const_t<typename X::T>>...};
        constexpr int kRanks[] = {X::kRank...};
        constexpr const int* kAxis[] = {X::kAxis...};
        std::fill(sizes, sizes + kRank + 1, 1);
        for (int i = 0; i < kCount && !misfit; ++i) {
            if (x[i].type != kTypes[i] || x[i].rank != kRanks[i]) misfit = -1 - i;
            int64_t last = 0;
            for (int j = 0; j < kRanks[i] && !misfit; ++j) {
                const int64_t own = x[i].sizes[j], axis = kAxis[i][j];
                if (own == 1) continue;
                if (sizes[axis] == 1 && axis < kRank) sizes[axis] = own;
                if (sizes[axis] != own) misfit = -1 - i;
                steps[i][axis] = x[i].strides[j];
                last += (own - 1) * x[i].strides[j];
            }
            largest = std::max(largest, last);
        }
        for (int64_t size : sizes) num *= size;
    }
    bool is_narrow() const { return num < (1ll << 31) && largest < (1ll << 31); }
    // Axes, given from the outermost on; one that continues another everywhere is a part of it.
    template <int n>
    Axes<n, kCount> merged(const int (&axes)[n]) const {
        Axes<n, kCount> found;
        for (int k = n - 1; k >= 0; --k) {
            const int axis = axes[k], last = found.num - 1;
            if (sizes[axis] < 2) continue;
            bool continues = last >= 0;
            for (int i = 0; i < kCount && continues; ++i) {
                continues = steps[i][axis] == found.steps[i][last] * found.sizes[last].by;
            }
            if (!continues) {
                for (int i = 0; i < kCount; ++i) found.steps[i][found.num] = steps[i][axis];
                ++found.num;
            }
            found.sizes[found.num - 1] = found.sizes[found.num - 1].by * sizes[axis];
        }
        return found;
    }
};

}  // namespace op
