// All pointwise kernels. A functor F says what is computed of one element: F::Operands are those
// that it reads (const), then its results, F::kRank is the number of the results' axes, F::kWidth
// that of the neighbours that a thread handles, F::of(...) the computation.

namespace op {

// @ElementLayout deps: Along, Divisor, Pack, TensorView, type_of
// How all operands lie, along the axes of the results from the innermost on. Neighbours along that
// one are a row, for which there are `packs` threads.
template <int kRank, int kCount>
struct ElementLayout {
    Divisor sizes[kRank + 1], packs;
    int64_t strides[kRank + 1][kCount], threads;
    void* data[kCount];
    bool packed[kCount];  // neighbours can be moved at once
    int num_axes;

    // The blocks that it takes where each thread has so many neighbours.
    unsigned int blocks(int width, int threads_of_block) {
        threads = (sizes[0].by - 1) / width + 1, packs = threads;
        for (int a = 1; a < num_axes; ++a) threads *= sizes[a].by;
        return (threads - 1) / threads_of_block + 1;
    }
};
// What is known of a call: below 0 `misfit` is the first operand that is none of the functor's,
// from -1 on; `num` are the elements; neighbours in all operands are next to each other, or far.
struct Call {
    int misfit;
    int64_t num;
    bool near, far;
};
template <typename T, typename Index>
struct ElementRow {
    T* data;
    Index step;
    bool packed;
};
// Axes are in the order that the result has in memory, or kByAxes in their own, the last one first.
template <typename F, bool kByAxes = false, typename... X>
Call laid_out(const TensorView* x, ElementLayout<F::kRank, sizeof...(X)>& all, Types<X...>) {
    constexpr int kCount = sizeof...(X), kRank = F::kRank, kRanks[] = {X::kRank...};
    constexpr int kTypes[] = {type_of<std::remove_const_t<typename X::T>>...};
    constexpr const int* kAxis[] = {X::kAxis...};
    constexpr size_t kAligned[] = {alignof(Pack<typename X::T, F::kWidth>)...};
    const TensorView& result = x[kCount - 1];
    all = {};
    int64_t strides[kRank + 1][kCount] = {}, num = 1, largest = 0;
    int order[kRank + 1] = {};
    for (int i = 0; i < kCount; ++i) {
        int64_t last = 0;
        if (x[i].type != kTypes[i] || x[i].rank != kRanks[i]) return {-1 - i};
        for (int j = 0; j < kRanks[i]; ++j) {
            const int64_t size = x[i].sizes[j], axis = kAxis[i][j];
            if (size != 1 && size != result.sizes[axis]) return {-1 - i};
            if (size == 1) continue;
            last += (size - 1) * (strides[axis][i] = x[i].strides[j]);
        }
        largest = std::max(largest, last);
    }
    for (int a = 0; a < kRank; ++a) order[a] = a;  // axes from the innermost on
    const auto key = [&](int a) { return std::make_pair(kByAxes ? 0 : result.strides[a], -a); };
    std::sort(order, order + kRank, [&](int a, int b) { return key(a) < key(b); });
    for (int n = 0; n < kRank; ++n) {
        const int64_t size = result.sizes[order[n]], *step = strides[order[n]];
        const int last = all.num_axes - 1;
        bool continues = last >= 0;  // in all operands: it is a part of the axis before
        if (size == 1) continue;
        for (int i = 0; continues && i < kCount; ++i) {
            continues = step[i] == all.strides[last][i] * all.sizes[last].by;
        }
        num *= size;
        if (!continues) std::copy(step, step + kCount, all.strides[all.num_axes++]);
        all.sizes[all.num_axes - 1] = all.sizes[all.num_axes - 1].by * size;
    }
    bool near = true;
    for (int i = 0; i < kCount; ++i) {
        all.data[i] = x[i].data;
        const bool aligned = reinterpret_cast<uintptr_t>(x[i].data) % kAligned[i] == 0;
        all.packed[i] = aligned && all.strides[0][i] == 1;
        for (int a = 1; a < all.num_axes; ++a) all.packed[i] &= all.strides[a][i] % F::kWidth == 0;
        near = near && all.strides[0][i] <= 1;
    }
    return {0, num, near, !(num < (1ll << 31) && largest < (1ll << 31))};
}

// @pointwise deps: ElementLayout, store_words
template <int n, typename T, typename Index>
OPWELD_FN auto get(ElementRow<T, Index> x, Index at) {
    Pack<std::remove_const_t<T>, n> found{};
    if (!std::is_const_v<T>) return found;  // it is a result
    if (n > 1 && x.packed) return *reinterpret_cast<const decltype(found)*>(x.data + at);
    if (n > 1 && x.step == 0) {
        for (auto& each : found.value) each = *x.data;
        return found;
    }
#pragma unroll
    for (int i = 0; i < n; ++i) found.value[i] = x.data[(at + i) * x.step];
    return found;
}
template <int n, typename T, typename Index>
OPWELD_FN void put(ElementRow<T, Index> x, Index at, Pack<std::remove_const_t<T>, n> values) {
    if constexpr (std::is_const_v<T>) return;
    else if (n > 1 && x.packed)  // a plain store would become one with those below, of an element
        store_words(reinterpret_cast<Pack<T, n>*>(x.data + at), values,
                    [](auto* to, auto word) { __stwb(to, word); });
    else
        for (int i = 0; i < n; ++i) x.data[(at + i) * x.step] = values.value[i];
}
template <typename F, int n, typename Index, typename... T>
OPWELD_FN void compute(Index at, ElementRow<T, Index>... x) {
    [&](auto... values) {
#pragma unroll
        for (int i = 0; i < n; ++i) F::of(values.value[i]...);
        (put<n>(x, at, values), ...);
    }(get<n>(x, at)...);
}
template <typename F, int kWidth, typename Index, typename... X, size_t... k>
OPWELD_FN void pack(const ElementLayout<F::kRank, sizeof...(X)>& all, Index thread, Types<X...>,
                    std::index_sequence<k...>) {
    const Index length = all.sizes[0].by;
    Index row = all.packs.quotient(thread), starts[sizeof...(X)] = {};
    Index at = (thread - row * Index(all.packs.by)) * kWidth;
#pragma unroll
    for (int a = 1; a < F::kRank; ++a) {
        if (a >= all.num_axes) break;
        const Index next = all.sizes[a].quotient(row), along = row - next * Index(all.sizes[a].by);
        ((starts[k] += along * Index(all.strides[a][k])), ...);
        row = next;
    }
    [&](auto... x) {
        if (length - at >= kWidth) return compute<F, kWidth>(at, x...);
#pragma unroll 1
        for (; at < length; ++at) compute<F, 1>(at, x...);
    }(ElementRow<typename X::T, Index>{static_cast<typename X::T*>(all.data[k]) + starts[k],
                                       Index(all.strides[0][k]), all.packed[k]}...);
}
template <typename F, int kWidth, typename Index, int kCount>
__global__ void __launch_bounds__(F::kThreads) elements(ElementLayout<F::kRank, kCount> all) {
    const Index thread = Index(blockIdx.x) * F::kThreads + threadIdx.x;
    if (thread >= Index(all.threads)) return;
    pack<F, kWidth>(all, thread, typename F::Operands(), std::make_index_sequence<kCount>());
}
// Returns a cudaError_t, or what does not fit.
template <typename F, typename... X>
int pointwise(const TensorView* x, void* stream, Types<X...> operands) {
    ElementLayout<F::kRank, sizeof...(X)> all;
    const Call call = laid_out<F>(x, all, operands);
    if (call.misfit != 0 || call.num == 0) return call.misfit;
    const auto run = [&](auto index, auto width) {
        const unsigned int blocks = all.blocks(width, F::kThreads);
        elements<F, width, decltype(index), sizeof...(X)>
            <<<blocks, F::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(all);
    };
    if (call.far) run(uint64_t(), Int<F::kWidth>());
    else if (call.near) run(0u, Int<F::kWidth>());
    else run(0u, Int<1>());
    return cudaGetLastError();
}

}  // namespace op
