// Products of float32 with few rows on one side: the other operand, `many`, is read once, at the
// speed of memory. Where its rows lie along k, warps make dot products (gemv.cuh); where they lie
// across it, threads keep the sums of neighbouring rows (column_sums.cuh). More than a few rows are
// the tensor cores' (skinny_mma.cuh).

namespace op {

// @Skinny deps: Operand, Product
// A product seen from its operand of few rows. The result's element of rows `f` and `r` lies at
// batch * batch_step + f * few_step + r * many_step.
struct Skinny {
    static constexpr int kMostFew = 16;
    static constexpr int64_t kLeastAlong = 32;  // k, below which a warp's lanes would stand idle
    static constexpr int kWarps = 8;            // of a block
    static constexpr int kThreads = 32 * kWarps;
    Operand few, many;
    int64_t batches, few_rows, many_rows, k, batch_step, few_step, many_step;

    static Skinny of(const Product& p) {
        if (p.m <= p.n) return {p.a, p.b, p.batches, p.m, p.n, p.k, p.m * p.n, p.n, 1};
        return {p.b, p.a, p.batches, p.n, p.m, p.k, p.m * p.n, 1, p.n};
    }
    // Rows of `many` lie across k: neighbouring rows are nearer than neighbours in k.
    bool lies_across() const { return many.row < many.inner || (many.row == 1 && k == 1); }
};

// @SkinnyPlan deps: Skinny, num_multiprocessors
// How the sums over k are shared out: among `parts` warps of a block, a power of two, and among
// `splits` blocks of k_each k.
struct SkinnyPlan {
    static constexpr int kAimWarps = 32;  // of a multiprocessor: what keeps the memory busy
    static constexpr int kMostSplits = 256;
    static constexpr int kLeastSteps = 4;  // of a warp, below which sharing out is not worth it
    static constexpr int kMostSteps = 16;  // of a warp: longer chains of sums lose digits
    int parts, splits;
    int64_t k_each;

    // `teams` have sums of their own; a warp advances by at most `step` k at a time.
    static SkinnyPlan of(int64_t teams, int64_t k, int64_t step, int least_parts) {
        SkinnyPlan plan{least_parts, 1, 0};
        const int64_t aim = num_multiprocessors() * kAimWarps, wanted = (aim + teams - 1) / teams;
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

// @reads_fours deps: Operand
// Neighbours along the axis of stride `along`, of so many elements, may be read four at a time.
static bool reads_fours(const Operand& operand, int64_t along, int64_t across, int64_t extent) {
    return along == 1 && extent % 4 == 0 && across % 4 == 0 && operand.batch % 4 == 0 &&
           reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
}

// @FewRows deps: Form, EpilogueStore, Skinny, SkinnyPlan, in_parts
// A form by kernels for few rows, which say what they take, share it out, and launch it.
template <typename Kernels>
struct FewRows : Form {
    static bool takes(const Product& p) { return Kernels::takes(Skinny::of(p)); }
    static int64_t workspace_bytes(const Product& p, bool) {
        const int64_t extent = p.batches * p.m * p.n;
        const int splits = extent ? Kernels::plan(Skinny::of(p)).splits : 1;
        return splits > 1 ? splits * extent * int64_t(sizeof(float)) : 0;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& product, const Memory& memory, const Source&,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const Skinny p = Skinny::of(product);
        const SkinnyPlan plan = Kernels::plan(p);
        auto* parts = static_cast<float*>(memory.workspace);
        return in_parts(sink, plan.splits, parts, nullptr, stream,
                        [&](const auto& to) { return Kernels::launch(p, plan, to, stream); });
    }
};

}  // namespace op
