// Functors of which one operand is a list of tensors, joined along an axis of the results. Each
// tensor is an operand of its own beside what the others have along it: no packet is of two of
// them.

// @vector_header deps:
#include <vector>

namespace op {

// @each_in_list deps: TensorView, Along
// The type of a list: its `data` are so many tensors as its `rank` says.
constexpr int kList = -2;
// Calls take(operands) for each tensor of the list, operand kPlace, along axis kAlong of the
// results. Below 0: what does not fit, as `take` returns it.
template <int kPlace, int kAlong, typename... X, typename Take>
int each_in_list(const TensorView* x, Types<X...>, Take take) {
    constexpr int kCount = sizeof...(X), kRanks[] = {X::kRank...};
    constexpr int kBytes[] = {int(sizeof(typename X::T))...};
    constexpr const int* kAxis[] = {X::kAxis...};
    const auto* const list = static_cast<const TensorView*>(x[kPlace].data);
    const int along =
        std::find(kAxis[kPlace], kAxis[kPlace] + kRanks[kPlace], kAlong) - kAxis[kPlace];
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

// @Layouts deps:
// Layouts for one launch: as many as the parameters of a kernel may hold.
template <typename Layout>
struct Layouts {
    static constexpr int kMost = std::max<int>(1, 4000 / (sizeof(Layout) + sizeof(int)));
    Layout each[kMost];
    unsigned int ends[kMost];  // the blocks of each and of those before it
    int num;

    // Returns whether there is room for more.
    bool add(const Layout& layout, unsigned int blocks) {
        ends[num] = blocks + (num > 0 ? ends[num - 1] : 0);
        each[num++] = layout;
        return num < kMost;
    }
    // Launches what was added, in so many blocks.
    template <typename Launch>
    void flush(Launch launch) {
        if (num > 0) launch(ends[num - 1]);
        num = 0;
    }
};
// Calls take(layout, its block) for the block that runs.
template <typename All, typename Take>
OPWELD_FN void take_layout(const All& all, Take take) {
    int i = 0;
    while (blockIdx.x >= all.ends[i]) ++i;
    take(all.each[i], blockIdx.x - (i > 0 ? all.ends[i - 1] : 0));
}

// @pointwise_of_list deps: pointwise, each_in_list, Layouts, vector_header
template <typename F, int kWidth, typename Index, typename Layout>
__global__ void __launch_bounds__(F::kThreads)
    elements_of_list(const __grid_constant__ Layouts<Layout> all) {
    take_layout(all, [](const Layout& own, Index block) {
        const Index thread = block * F::kThreads + threadIdx.x;
        if (thread >= Index(own.threads)) return;
        pack<F, kWidth>(own, thread, typename F::Operands(),
                        std::make_index_sequence<F::Operands::kNumTypes>());
    });
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
        const auto launch = [&](unsigned int blocks) {
            elements_of_list<F, width, decltype(index)>
                <<<blocks, F::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(all);
        };
        for (Layout& layout : layouts) {
            const unsigned int blocks = layout.blocks(width, F::kThreads);
            if (!all.add(layout, blocks)) all.flush(launch);
        }
        all.flush(launch);
    };
    if (far) run(uint64_t(), Int<F::kWidth>());
    else if (near) run(0u, Int<F::kWidth>());
    else run(0u, Int<1>());
    return cudaGetLastError();
}

// @reduce_list deps: reduce, each_in_list, kLeastBlocks, Layouts
template <typename F>
struct ListedRows {
    Layout<F> rows;
    void* data[F::Operands::kNumTypes];
};
template <typename F, typename Team, int kLanes, typename Index, typename... X, size_t... i>
OPWELD_FN void walk_listed(const ListedRows<F>& own, Index block, Types<X...>,
                           std::index_sequence<i...>) {
    F::template walk_block<F, Team, kLanes>(own.rows, block,
                                            static_cast<typename X::T*>(own.data[i])...);
}
// Threads that a multiprocessor must hold: fewer where a row is read again, since what is known of
// the tensor that a block has is in registers, not in the constants of the launch.
template <typename F, typename Team>
constexpr int kListResident =
    Team::kItems || F::kAcross ? F::kResident : std::min(F::kResident, 768);
template <typename F, typename Team, int kLanes, typename Index>
__global__ void __launch_bounds__(
    F::template threads<F, Team>(),
    kLeastBlocks<F::template threads<F, Team>(), Index, kListResident<F, Team>>)
    rows_of_list(const __grid_constant__ Layouts<ListedRows<F>> all) {
    griddepcontrol_wait();
    take_layout(all, [](const ListedRows<F>& own, Index block) {
        walk_listed<F, Team, kLanes>(own, block, typename F::Operands(),
                                     std::make_index_sequence<F::Operands::kNumTypes>());
    });
}
// The list lies along an axis of the rows: each row is of one tensor.
template <typename F, int kPlace, int kAlong, typename... X>
int reduce_list(const TensorView* x, void* stream, Types<X...> operands) {
    bool packed = true, flat = true, narrow = true;
    int64_t num_rows = 0, length = 0;
    const int misfit = each_in_list<kPlace, kAlong>(x, operands, [&](const TensorView* own) {
        const Rows<F, X...> space(own);
        num_rows += space.num_rows, length = space.length;
        packed = packed && space.packed(), flat = flat && space.flat();
        narrow = narrow && space.is_narrow();
        return space.misfit;
    });
    if (misfit != 0 || num_rows == 0) return misfit;
    const auto run = [&](auto lanes, auto index, auto teams) {
        using Index = decltype(index);
        first_that_reaches<F, lanes>(F::kAcross ? length : length / lanes, teams, [&](auto team) {
            using Team = decltype(team);
            constexpr int kLanes = Team::kLanes ? Team::kLanes : int(lanes);
            constexpr int kThreads = F::template threads<F, Team>();
            constexpr int64_t kRows = kThreads / Team::kThreads * (F::kAcross ? kLanes : 1);
            constexpr int64_t shared = Team::kShared * kThreads * sizeof(PacketOf<F, kLanes>);
            Layouts<ListedRows<F>> all = {};
            const auto launch = [&](unsigned int blocks) {
                launch_early<Team::kBlocks>(rows_of_list<F, Team, kLanes, Index>,
                                            dim3(blocks / Team::kBlocks), kThreads, shared,
                                            static_cast<cudaStream_t>(stream), all);
            };
            each_in_list<kPlace, kAlong>(x, operands, [&](const TensorView* own) {
                const Rows<F, X...> space(own);
                ListedRows<F> listed = {space.layout()};
                for (int i = 0; i < F::Operands::kNumTypes; ++i) listed.data[i] = own[i].data;
                const int64_t blocks = (space.num_rows + kRows - 1) / kRows * Team::kBlocks;
                if (!all.add(listed, blocks)) all.flush(launch);
                return 0;
            });
            all.flush(launch);
        });
    };
    choose<F>(packed && num_rows >= F::kLeastRows, flat, narrow, run);
    return cudaGetLastError();
}

}  // namespace op
