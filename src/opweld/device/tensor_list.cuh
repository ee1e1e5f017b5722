// Functors of which one operand is a list of tensors, joined along an axis of the results. Each tensor
// is an operand of its own beside what the others have along it: no packet is of two of them.

// @vector_header deps:
#include <vector>

namespace op {

// @each_in_list deps: TensorView, Along
// The type of a list: its `data` are so many tensors as its `rank` says.
constexpr int kList = -2;
// Calls take(operands) for each tensor of the list, operand kPlace, along axis kAlong of the results.
// Below 0: what does not fit, as `take` returns it.
template <int kPlace, int kAlong, typename... X, typename Take>
int each_in_list(const TensorView* x, Types<X...>, Take take) {
    constexpr int kCount = sizeof...(X), kRanks[] = {X::kRank...};
    constexpr int kBytes[] = {int(sizeof(typename X::T))...};
    constexpr const int* kAxis[] = {X::kAxis...};
    const auto* const list = static_cast<const TensorView*>(x[kPlace].data);
    const int along = std::find(kAxis[kPlace], kAxis[kPlace] + kRanks[kPlace], kAlong) - kAxis[kPlace];
    int64_t begin = 0, total = 0, sizes[kCount][std::max({1, X::kRank...})];
    if (x[kPlace].type != kList) return -1 - kPlace;
    for (int t = 0; t < x[kPlace].rank; ++t) {
        if (list[t].rank != kRanks[kPlace]) return -1 - kPlace;
        total += list[t].sizes[along];
    }
    for (int t = 0; t < x[kPlace].rank; ++t) {
        const int64_t size = list[t].sizes[along];
        TensorView own[kCount];
        for (int i = 0; i < kCount; ++i) {
            own[i] = i == kPlace ? list[t] : x[i];
            if (i == kPlace) continue;
            if (x[i].rank != kRanks[i]) return -1 - i;
            own[i].sizes = std::copy(x[i].sizes, x[i].sizes + kRanks[i], sizes[i]) - kRanks[i];
            for (int j = 0; j < kRanks[i]; ++j) {
                if (kAxis[i][j] != kAlong || sizes[i][j] == 1) continue;
                if (sizes[i][j] != total) return -1 - i;
                sizes[i][j] = size;
                own[i].data = static_cast<char*>(x[i].data) + begin * x[i].strides[j] * kBytes[i];
            }
        }
        const int misfit = size > 0 ? take(own) : 0;
        if (misfit != 0) return misfit;
        begin += size;
    }
    return 0;
}

// @pointwise_of_list deps: pointwise, each_in_list, vector_header
// Layouts for one launch: as many as parameters of a kernel may be long.
template <typename Layout>
struct Layouts {
    static constexpr int kMost = std::max<int>(1, 4000 / (sizeof(Layout) + sizeof(int)));
    Layout each[kMost];
    unsigned int ends[kMost];  // the blocks of each and of those before it
};
template <typename F, int kWidth, typename Index, typename Layout>
__global__ void __launch_bounds__(F::kThreads)
    elements_of_list(const __grid_constant__ Layouts<Layout> all) {
    int i = 0;
    while (blockIdx.x >= all.ends[i]) ++i;
    const Index block = blockIdx.x - (i > 0 ? all.ends[i - 1] : 0);
    const Index thread = block * F::kThreads + threadIdx.x;
    if (thread >= Index(all.each[i].threads)) return;
    pack<F, kWidth>(all.each[i], thread, typename F::Operands(),
                    std::make_index_sequence<F::Operands::kCount>());
}
template <typename F, int kPlace, int kAlong, typename... X>
int pointwise_of_list(const TensorView* x, void* stream, Types<X...> operands) {
    using Layout = ElementLayout<F::kRank, sizeof...(X)>;
    std::vector<Layout> layouts;
    bool near = true, far = false;
    const int misfit = each_in_list<kPlace, kAlong>(x, operands, [&](const TensorView* own) {
        Layout layout;
        const Call call = laid_out<F>(own, layout, operands);
        near &= call.near, far |= call.far;
        if (call.num > 0) layouts.push_back(layout);
        return call.misfit;
    });
    if (misfit != 0) return misfit;
    const auto run = [&](auto index, auto width) {
        Layouts<Layout> all = {};
        int num = 0;
        for (size_t i = 0; i < layouts.size(); ++i) {
            const unsigned int before = num > 0 ? all.ends[num - 1] : 0;
            all.ends[num] = before + layouts[i].blocks(width, F::kThreads);
            all.each[num++] = layouts[i];
            if (num < all.kMost && i + 1 < layouts.size()) continue;
            elements_of_list<F, width, decltype(index)>
                <<<all.ends[num - 1], F::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(all);
            num = 0;
        }
    };
    if (far) run(uint64_t(), Int<F::kWidth>());
    else if (near) run(0u, Int<F::kWidth>());
    else run(0u, Int<1>());
    return cudaGetLastError();
}

}  // namespace op
