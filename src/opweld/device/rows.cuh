// Products with few rows on one side: the other operand, `many`, is read once, at the speed of
// memory. Where its rows lie along k, warps make dot products (row_ring.cuh, for 16-bit operands
// row_dots.cuh); where they lie across it, threads keep the sums of neighbouring rows
// (column_sums.cuh). More than a few rows of float32 are the tensor cores' (row_slices.cuh).

namespace op {

// @Skinny deps: Operand, Product
// A product seen from its operand of few rows. The result's element of rows `f` and `r` lies at
// batch * batch_step + f * few_step + r * many_step.
struct Skinny {
    static constexpr int kMostFew = 16;
    static constexpr int kWarps = 8;  // of a block
    static constexpr int kThreads = 32 * kWarps;
    Operand few, many;
    int64_t batches, few_rows, many_rows, k, batch_step, few_step, many_step;

    static Skinny of(const Product& p) {
        if (p.m <= p.n) return {p.a, p.b, p.batches, p.m, p.n, p.k, p.m * p.n, p.n, 1};
        return {p.b, p.a, p.batches, p.n, p.m, p.k, p.m * p.n, 1, p.n};
    }
    // Rows of `many` lie across k: neighbouring rows are nearer than neighbours in k.
    bool lies_across() const {
        return many.row < many.inner || (many.row == 1 && k == 1);
    }
};

// @SkinnyPlan deps: Skinny
// How the sums over k are shared out: among `parts` warps of a block, a power of two, and among
// `splits` blocks of k_each k.
struct SkinnyPlan {
    static constexpr int kAimWarps = 132 * 32;  // what keeps the memory of an H200 busy
    static constexpr int kMostSplits = 256;
    static constexpr int kLeastSteps = 4;  // of a warp, below which sharing out is not worth it
    static constexpr int kMostSteps = 16;  // of a warp: longer chains of sums lose digits
    int parts, splits;
    int64_t k_each;

    // `teams` have sums of their own; a warp advances by at most `step` k at a time.
    static SkinnyPlan of(int64_t teams, int64_t k, int64_t step, int least_parts) {
        SkinnyPlan plan{least_parts, 1, 0};
        const int64_t wanted = (kAimWarps + teams - 1) / teams;
        while (plan.parts < Skinny::kWarps && plan.parts < wanted &&
               plan.parts * step * kLeastSteps <= k)
            plan.parts *= 2;
        const int64_t block_step = plan.parts * step, most = k / (block_step * kLeastSteps);
        // Twice as many as run at once, so that the last to end have little left.
        int64_t splits = wanted > plan.parts ? 2 * wanted / plan.parts : 1;
        splits = splits < most ? splits : most;
        const int64_t least = (k + block_step * kMostSteps - 1) / (block_step * kMostSteps);
        splits = splits < least ? least : splits;
        splits = splits < kMostSplits ? splits : kMostSplits;
        if (plan.parts < Skinny::kWarps || splits < 1) splits = 1;
        plan.k_each = ((k + splits - 1) / splits + block_step - 1) / block_step * block_step;
        plan.splits = plan.k_each ? int((k + plan.k_each - 1) / plan.k_each) : 1;
        return plan;
    }
};

// @can_load_vectors deps: Operand
// Neighbours along the axis of stride `along`, of so many elements, may be read kLanes at a time.
template <typename T, int kLanes>
static bool can_load_vectors(const Operand& operand, int64_t along, int64_t across,
                             int64_t extent) {
    return along == 1 && extent % kLanes == 0 && across % kLanes == 0 &&
           operand.batch % kLanes == 0 &&
           reinterpret_cast<uintptr_t>(operand.data) % (sizeof(T) * kLanes) == 0;
}

// @skinny_case deps: ColumnSums, FmaDots, MmaDots, RowRing, SliceDots, can_load_vectors, ring_plan, row_dots_plan, slice_plan
// Calls visit.dots<Dots>(plan), visit.ring<Ring>(plan, packed), visit.slices<Dots>(plan) or
// visit.sums<Sums>(plan) with the kernel for a product. `packed`: its operands may be read in vectors.
// Rows of float32, of which the tensor cores make more: the CUDA cores keep up with memory along k for
// up to 8, and across for up to 4.
static constexpr int64_t kMostRingRows = 8, kMostColumnSums = 4;
template <bool kAcross, typename Visit>
static int visit_slices(const Skinny& p, int64_t most_depth, const Visit& visit) {
    using Dots = SliceDots<kAcross>;
    return visit.template slices<Dots>(slice_plan<Dots>(p, most_depth));
}
template <typename Ring, typename Visit>
static int visit_ring(const Skinny& p, bool packed, const Visit& visit) {
    return visit.template ring<Ring>(ring_plan<Ring>(p), packed);
}
template <typename T, typename Visit>
static int visit_row_dots(const Skinny& p, bool packed, const Visit& visit) {
    if constexpr (sizeof(T) == 2) {
        if (!packed) return visit.template dots<FmaDots<T>>(row_dots_plan<FmaDots<T>>(p));
        return visit.template dots<MmaDots<T>>(row_dots_plan<MmaDots<T>>(p));
    } else {
        if (p.few_rows == 1) return visit_ring<RowRing<1>>(p, packed, visit);
        if (p.few_rows <= 4) return visit_ring<RowRing<4>>(p, packed, visit);
        if (p.few_rows <= kMostRingRows) return visit_ring<RowRing<8>>(p, packed, visit);
        // a tile for each warp of a block
        const bool wide = p.many_rows >= Slice::kWarps * SliceDots<false>::kMany;
        const int64_t most_depth = packed && wide ? Slice::most_depth() : 0;
        if (most_depth > 0) return visit_slices<false>(p, most_depth, visit);
        return visit_ring<RowRing<16>>(p, packed, visit);
    }
}
// `few_packed`: rows of `few` may be read in vectors, too.
template <typename T, typename Visit>
static int visit_column_sums(const Skinny& p, bool packed, bool few_packed, const Visit& visit) {
    if constexpr (sizeof(T) == 4) {
        const bool many = p.few_rows > kMostColumnSums;
        const int64_t most_depth = packed && few_packed && many ? Slice::most_depth() : 0;
        if (most_depth > 0) return visit_slices<true>(p, most_depth, visit);
    }
    using Apart = ColumnSums<T, 16, false>;
    using Four = ColumnSums<T, 4, true>;
    using Sixteen = ColumnSums<T, 16, true>;
    if (!packed) return visit.template sums<Apart>(Apart::plan(p));
    if (p.few_rows <= 4) return visit.template sums<Four>(Four::plan(p));
    return visit.template sums<Sixteen>(Sixteen::plan(p));
}
template <typename T, typename Visit>
static int visit_skinny(const Skinny& p, const Visit& visit) {
    constexpr int kAlong = 16 / sizeof(T), kAcross = 4;
    const bool few_packed = can_load_vectors<T, kAlong>(p.few, p.few.inner, p.few.row, p.k);
    if (p.lies_across())
        return visit_column_sums<T>(
            p, can_load_vectors<T, kAcross>(p.many, p.many.row, p.many.inner, p.many_rows),
            few_packed, visit);
    const bool packed = can_load_vectors<T, kAlong>(p.many, p.many.inner, p.many.row, p.k);
    return visit_row_dots<T>(p, packed && few_packed, visit);
}

// @launch_skinny deps: column_sums, combine_parts, row_dots, row_ring, row_slices, skinny_case
// A product with at most Skinny::kMostFew rows on one side, and its epilogue. `workspace` has
// skinny_bytes.
template <typename Epilogue>
struct SkinnyLaunch {
    const Skinny& p;
    Sink<Epilogue> sink;
    float* workspace;
    cudaStream_t stream;

    template <typename Dots>
    int dots(const SkinnyPlan& plan) const {
        return combined(plan, launch_row_dots<Dots>(p, plan, sink_of(plan), stream));
    }
    template <typename Ring>
    int ring(const SkinnyPlan& plan, bool packed) const {
        return combined(plan, launch_row_ring<Ring>(p, plan, packed, sink_of(plan), stream));
    }
    template <typename Dots>
    int slices(const SkinnyPlan& plan) const {
        return combined(plan, launch_row_slices<Dots>(p, plan, sink_of(plan), stream));
    }
    template <typename Sums>
    int sums(const SkinnyPlan& plan) const {
        return combined(plan, launch_column_sums<Sums>(p, plan, sink_of(plan), stream));
    }
    Sink<Epilogue> sink_of(const SkinnyPlan& plan) const {
        Sink<Epilogue> own = sink;
        own.parts = plan.splits > 1 ? workspace : nullptr;
        return own;
    }
    int combined(const SkinnyPlan& plan, int error) const {
        if (error || plan.splits == 1) return error;
        return combine_parts(sink_of(plan), plan.splits, nullptr, stream);
    }
};
template <typename T, typename Epilogue>
static int launch_skinny(const Product& product, const Sink<Epilogue>& sink, float* workspace,
                         cudaStream_t stream) {
    const Skinny p = Skinny::of(product);
    if (sink.extent == 0) return 0;
    return visit_skinny<T>(p, SkinnyLaunch<Epilogue>{p, sink, workspace, stream});
}

// @skinny_bytes deps: skinny_case
// The workspace of a skinny product, whose extents alone are read: enough for any strides.
struct SkinnySplits {
    template <typename Dots>
    int dots(const SkinnyPlan& plan) const {
        return plan.splits;
    }
    template <typename Ring>
    int ring(const SkinnyPlan& plan, bool) const {
        return plan.splits;
    }
    template <typename Dots>
    int slices(const SkinnyPlan& plan) const {
        return plan.splits;
    }
    template <typename Sums>
    int sums(const SkinnyPlan& plan) const {
        return plan.splits;
    }
};
template <typename T>
static int64_t skinny_bytes(const Product& product) {
    const Skinny p = Skinny::of(product);
    const int64_t extent = p.batches * p.batch_step;
    if (extent == 0) return 0;
    int most = 1;
    for (int packed = 0; packed < 4; ++packed) {
        const int along = visit_row_dots<T>(p, packed % 2 != 0, SkinnySplits{});
        const int across = visit_column_sums<T>(p, packed % 2 != 0, packed > 1, SkinnySplits{});
        most = along > most ? along : most;
        most = across > most ? across : most;
    }
    return most > 1 ? most * extent * int64_t(sizeof(float)) : 0;
}

}  // namespace op
