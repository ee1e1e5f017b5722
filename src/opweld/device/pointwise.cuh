// All pointwise kernels. A functor F says what is computed of one element: F::Operands are those
// that it reads (const), then its results, F::kRank is the number of the results' axes, F::kWidth
// that of the neighbours that a thread handles, F::of(...) the computation. Sizes and strides are
// those of the tensors at each call: an operand may lie in memory in any way.

// @TensorView deps:
#include <type_traits>
#include <utility>
// A tensor: the number of its torch.dtype, sizes and strides in elements.
struct TensorView {
    void* data;
    int type, rank;
    const int64_t *sizes, *strides;
};

namespace op {

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
    static constexpr int kCount = sizeof...(T);
};
// An operand whose axes lie along these of the results; it is the same along all others.
template <typename Stored, int... kAxes>
struct Along {
    using T = Stored;
    static constexpr int kRank = sizeof...(kAxes), kAxis[] = {kAxes..., 0};
    static constexpr bool has(int axis) { return ((kAxes == axis) || ...); }
};

// @Pack deps:
template <typename T, int n>
struct alignas(sizeof(T) * n < 16 ? sizeof(T) * n : 16) Pack {
    T value[n];
};

// @pointwise deps: TensorView, type_of, Along, Pack
// Where an operand lies: its rows are `strides` apart, the neighbours in a row `step`.
template <typename T, typename Index, int kOuter>
struct Place {
    T* data;
    Index step, strides[kOuter + 1];
    bool packed;  // neighbours can be moved at once
};
template <typename Index, int kOuter>
struct Rows {
    Index sizes[kOuter + 1], length, packs, total;
};
template <typename X, typename Index, int kOuter>
OPWELD_FN X row_of(X x, const Rows<Index, kOuter>& rows, Index row) {
#pragma unroll
    for (int a = 0; a < kOuter; row /= rows.sizes[a++]) {
        x.data += (a + 1 < kOuter ? row % rows.sizes[a] : row) * x.strides[a];
    }
    return x;
}
template <int n, typename T, typename Index, int kOuter>
OPWELD_FN auto get(const Place<T, Index, kOuter>& x, Index at) {
    using Values = Pack<std::remove_const_t<T>, n>;
    Values found{};
    if (!std::is_const_v<T>) return found;  // it is a result
    if (n > 1 && x.packed) return *reinterpret_cast<const Values*>(x.data + at);
    const T first = found.value[0] = x.data[at * x.step];
#pragma unroll
    for (int i = 1; i < n; ++i) found.value[i] = x.step ? x.data[(at + i) * x.step] : first;
    return found;
}
template <int n, typename T, typename Index, int kOuter>
OPWELD_FN void put(const Place<T, Index, kOuter>& x, Index at, const Pack<T, n>& values) {
    if (n > 1 && x.packed) {
        *reinterpret_cast<Pack<T, n>*>(x.data + at) = values;
        return;
    }
#pragma unroll
    for (int i = 0; i < n; ++i) x.data[(at + i) * x.step] = values.value[i];
}
template <int n, typename T, typename Index, int kOuter>
OPWELD_FN void put(const Place<const T, Index, kOuter>&, Index, const Pack<T, n>&) {}
template <typename F, int n, typename Index, typename... X>
OPWELD_FN void compute(Index at, const X&... x) {
    [&](auto... values) {
#pragma unroll
        for (int i = 0; i < n; ++i) F::of(values.value[i]...);
        (put<n>(x, at, values), ...);
    }(get<n>(x, at)...);
}
template <typename F, int kWidth, typename Index, int kOuter, typename... T>
__global__ void __launch_bounds__(F::kThreads) elements(
    Rows<Index, kOuter> rows, Place<T, Index, kOuter>... x) {
    const Index thread = Index(blockIdx.x) * F::kThreads + threadIdx.x;
    if (thread >= rows.total) return;
    const Index row = kOuter ? thread / rows.packs : 0;
    Index at = (kOuter ? thread % rows.packs : thread) * kWidth;
    if (rows.length - at >= kWidth) return compute<F, kWidth>(at, row_of(x, rows, row)...);
#pragma unroll 1
    for (; at < rows.length; ++at) compute<F, 1>(at, row_of(x, rows, row)...);
}
// Returns a cudaError_t; below 0: the first operand that is none of the functor's, from -1 on.
template <typename F, typename... X, size_t... k>
int launch(const TensorView* x, void* stream, Types<X...>, std::index_sequence<k...>) {
    constexpr int kCount = sizeof...(X), kRank = F::kRank, kRanks[] = {X::kRank...};
    constexpr int kTypes[] = {type_of<std::remove_const_t<typename X::T>>...};
    constexpr const int* kAxis[] = {X::kAxis...};
    const TensorView& result = x[kCount - 1];
    // The innermost axis is the first; what continues another in all operands is a part of it.
    int64_t steps[kRank + 1][kCount] = {}, sizes[kRank + 1] = {1}, num = 1, far = 0;
    int axes = 0, taken = 0;
    for (int i = 0; i < kCount; ++i) {
        if (x[i].type != kTypes[i] || x[i].rank != kRanks[i]) return -1 - i;
    }
    for (int i = 0; i < kCount; ++i) {
        int64_t last = 0;
        for (int j = 0; j < kRanks[i]; last += (x[i].sizes[j] - 1) * x[i].strides[j], ++j) {
            if (x[i].sizes[j] != result.sizes[kAxis[i][j]] && x[i].sizes[j] != 1) return -1 - i;
        }
        far = far > last ? far : last;
    }
    for (int n = 0, a = -1; n < kRank; ++n, a = -1) {
        for (int b = kRank - 1; b >= 0; --b) {
            if (!(taken >> b & 1) && (a < 0 || result.strides[b] < result.strides[a])) a = b;
        }
        taken |= 1 << a;
        num *= result.sizes[a];
        if (result.sizes[a] == 1) continue;
        bool continues = axes > 0;
        for (int i = 0; i < kCount; ++i) {
            int64_t& step = steps[axes][i] = 0;
            for (int j = 0; j < kRanks[i]; ++j) {
                if (kAxis[i][j] == a && x[i].sizes[j] > 1) step = x[i].strides[j];
            }
            continues = continues && step == steps[axes - 1][i] * sizes[axes - 1];
        }
        if (continues) sizes[axes - 1] *= result.sizes[a];
        else sizes[axes++] = result.sizes[a];
    }
    if (num == 0) return cudaSuccess;
    const auto run = [&](auto index, auto width, auto outer) {
        using Index = decltype(index);
        Rows<Index, outer> rows = {{}, Index(sizes[0]), Index((sizes[0] - 1) / width + 1)};
        rows.total = rows.packs * Index(num / sizes[0]);
        for (int a = 0; a < outer; ++a) rows.sizes[a] = a + 1 < axes ? sizes[a + 1] : 1;
        const auto place = [&](auto* data, int i) {
            using T = std::remove_pointer_t<decltype(data)>;
            Place<T, Index, outer> at = {data, Index(steps[0][i])};
            uint64_t starts = reinterpret_cast<uintptr_t>(data);
            for (int a = 0; a < outer && a + 1 < axes; ++a) {
                at.strides[a] = steps[a + 1][i];
                starts |= steps[a + 1][i] * sizeof(T);
            }
            at.packed = at.step == 1 && starts % alignof(Pack<std::remove_const_t<T>, width>) == 0;
            return at;
        };
        const unsigned int blocks = (uint64_t(rows.total) + F::kThreads - 1) / F::kThreads;
        elements<F, width, Index, outer, typename X::T...>
            <<<blocks, F::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
                rows, place(static_cast<typename X::T*>(x[k].data), k)...);
    };
    using Width = Int<F::kWidth>;
    using Outer = Int<(kRank > 1 ? kRank - 1 : 0)>;
    const bool narrow = num < (1ll << 31) && far < (1ll << 31);
    bool near = narrow;
    for (int64_t step : steps[0]) near = near && step <= 1;
    if (axes <= 1 && narrow) run(0u, Width(), Int<0>());
    else if (axes <= 1) run(uint64_t(), Width(), Int<0>());
    else if (near && axes == 2) run(0u, Width(), Int<1>());
    else if (near) run(0u, Width(), Outer());
    else if (narrow) run(0u, Int<1>(), Outer());
    else run(uint64_t(), Int<1>(), Outer());
    return cudaGetLastError();
}
template <typename F, typename... X>
int pointwise(const TensorView* operands, void* stream, Types<X...> all) {
    return launch<F>(operands, stream, all, std::index_sequence_for<X...>());
}

}  // namespace op
