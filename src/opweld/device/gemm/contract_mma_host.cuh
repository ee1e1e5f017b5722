// The host's part of products by mma.sync.

namespace op {

// @SplitK deps: MmaTask, num_multiprocessors
// The parts in which sums over k are made, of `each` blocks of k: as many as give all
// multiprocessors work, of at least 8 blocks.
struct SplitK {
    int splits;
    int64_t each;

    template <typename Extents>
    static SplitK choose(const Extents& p, int64_t blocks, int64_t unit) {
        constexpr int64_t kLeastBlocks = 8;
        const int64_t tiles = MmaTask::count(p, 1), most = blocks / kLeastBlocks;
        const int64_t wanted = tiles ? num_multiprocessors() / tiles : 1;
        const int64_t splits = wanted < most ? wanted : most;
        return of(blocks, splits < 1 ? 1 : splits, unit);
    }
    // A part is a multiple of `unit` blocks: so there may be fewer than wanted.
    static SplitK of(int64_t blocks, int64_t wanted, int64_t unit) {
        const int64_t each = ((blocks + wanted - 1) / wanted + unit - 1) / unit * unit;
        return {each ? int((blocks + each - 1) / each) : 1, each};
    }
};

// @launch_mma_product deps: Launch, SplitK, mma_product_kernel
// The product of packed operands. call: null, or where the device says that another kernel makes
// it.
template <typename Mode, typename Epilogue>
static int launch_mma_product(const PackedProduct& p, const SplitK& plan,
                              const EpilogueStore<Epilogue>& sink, CallHead* call,
                              cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 20;
    const int64_t tasks = MmaTask::count(p, plan.splits);
    return Launch(tasks < kMostBlocks ? tasks : kMostBlocks, MmaTile::kThreads, MmaTile::kBytes,
                  stream)
        .run(mma_product_kernel<Mode, Epilogue>, p, plan.splits, plan.each, sink, call);
}

// @TilesMma deps: PackedOperands, launch_mma_product
struct TilesMma {
    using Plan = SplitK;

    static int64_t scale_rows(int64_t m) { return m; }
    template <typename Mode>
    static Plan plan(const Product& p, int64_t intervals) {
        return Plan::choose(p, intervals * Mode::kParts, 2);  // whole intervals of two parts
    }
    static Packed bytes_of(const PackedOperand& from, const float* scale, int64_t scales) {
        const bool batched = from.batches > 1;
        return {from.data, scale, 2 * from.row, batched ? 2 * from.batch : 0, batched ? scales : 0};
    }
    template <typename Mode, typename Epilogue>
    static int launch(const PackedOperands& from, const Product& p, const Plan& plan,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const int64_t depth = from.a.depth < from.b.depth ? from.a.depth : from.b.depth;
        const PackedProduct packed{bytes_of(from.a, from.a_scale, from.intervals * from.scale_rows),
                                   bytes_of(from.b, from.b_scale, p.n),
                                   p.batches,
                                   p.m,
                                   p.n,
                                   from.intervals * Mode::kParts,
                                   2 * depth};
        return launch_mma_product<Mode>(packed, plan, sink, from.call, stream);
    }
};

}  // namespace op
