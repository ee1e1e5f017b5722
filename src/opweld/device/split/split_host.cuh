// The host's part of splitting operands: what lies where in the workspace, the order of the
// kernels.

namespace op {

// @aligned_size deps:
OPWELD_HOST_FN int64_t aligned_size(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// @Workspace deps: aligned_size
// Hands out stretches of one block of memory; without memory it only counts.
struct Workspace {
    char* begin;
    int64_t used = 0;

    template <typename T>
    T* take(int64_t count) {
        T* part = begin ? reinterpret_cast<T*>(begin + used) : nullptr;
        used += aligned_size(count * int64_t(sizeof(T)));
        return part;
    }
};

// @take_held deps: Held, Workspace, kInterval
[[maybe_unused]] static Held take_held(Workspace& space, int parts, int64_t batches, int64_t n,
                                       int64_t k) {
    Held held{};
    held.head = space.take<HeldHead>(1);
    held.column_max = space.take<uint32_t>(k);
    held.scale = space.take<float>(batches * n);
    held.packed = space.take<half>(batches * n * interval_count(k) * (parts * kInterval));
    return held;
}

// @reads_packets deps: lies_across
// Whether an operand's neighbours in memory may be read four at a time.
template <typename T>
static bool reads_packets(const Operand& from) {
    const Operand lines = lies_across(from) ? turned(from) : from;
    return lines.inner == 1 && lines.row % 4 == 0 && lines.batch % 4 == 0 &&
           reinterpret_cast<uintptr_t>(lines.data) % (4 * sizeof(T)) == 0;
}

// @SplitOperands deps: CallState, PackedOperands, Product, Spots, take_held
// Float32 operands of a product on tensor cores, split into kParts.
template <int kParts>
struct SplitOperands {
    int64_t intervals, scale_rows, a_batches, b_batches;
    CallState state;
    int64_t state_bytes;  // that lie one behind the other
    Held held;
    float* a_scale;  // [a_batches][intervals][scale_rows]
    half* a;

    // Takes its memory from `space`, and b's split copy from `held` where it is held.
    static SplitOperands take(const Product& p, Workspace& space, void* held, bool is_held,
                              int64_t scale_rows) {
        SplitOperands split{};
        Workspace apart{static_cast<char*>(held)};
        split.intervals = interval_count(p.k);
        split.scale_rows = scale_rows;
        split.a_batches = p.a.batch ? p.batches : 1;
        split.b_batches = p.b.batch ? p.batches : 1;
        const int64_t begin = space.used;
        split.state.head = space.take<CallHead>(1);
        split.state.column_max = space.take<uint32_t>(p.k);
        split.state.row_max = space.take<uint32_t>(p.batches * p.n);
        split.state_bytes = space.used - begin;
        split.state.differs = space.take<int>(HeldHead::kSamples);
        split.a_scale = space.take<float>(p.batches * split.intervals * scale_rows);
        split.a = space.take<half>(p.batches * p.m * split.intervals * (kParts * kInterval));
        split.held = take_held(is_held ? apart : space, kParts, p.batches, p.n, p.k);
        if (!is_held) split.held.column_max = split.state.column_max;
        return split;
    }
    Spots spots_of_b(const Product& p) const { return {b_batches, p.n, p.k, intervals}; }
    PackedOperands packed(const Product& p) const {
        const int64_t pitch = intervals * (kParts * kInterval);
        return {{a, a_batches, p.m * pitch, p.m, pitch, pitch},
                {held.packed, b_batches, p.n * pitch, p.n, pitch, pitch},
                intervals,
                scale_rows,
                a_scale,
                held.scale,
                state.head};
    }
};

// @split_a deps: Launch, SplitOperands, reads_packets, split_kernel
// The values of a come from `source`; b is split before.
template <int kParts, typename Source>
static int split_a(const SplitOperands<kParts>& split, const Product& p, const Source& source,
                   cudaStream_t stream) {
    const Spots spots{split.a_batches, p.m, p.k, split.intervals};
    return Launch(spots.count(), 256, 0, stream)
        .run(split_kernel<kParts, Source>, source, p.a, spots, split.held, split.a, split.a_scale,
             split.scale_rows, split.state.head, source.packed && reads_packets<float>(p.a));
}

// @NewOperand deps: list_header, Launch, Memory, SplitOperands, pass_over_b_kernel, reads_packets
// An operand b that is another at each call, and is split in each: by many small blocks, which keep
// the memory busy.
struct NewOperand {
    static constexpr bool kHeld = false;

    template <int kParts>
    static int split(const SplitOperands<kParts>& split, const Product& p, const Memory&,
                     cudaStream_t stream) {
        const Spots spots = split.spots_of_b(p);
        const bool packets = reads_packets<float>(p.b);
        int error = int(cudaMemsetAsync(split.state.head, 0, split.state_bytes, stream));
        for (const auto pass : {pass_over_b_kernel<SplitPass::kColumns, kParts>,
                                pass_over_b_kernel<SplitPass::kRows, kParts>,
                                pass_over_b_kernel<SplitPass::kParts, kParts>}) {
            if (error) break;
            error = Launch(spots.count(), 256, 0, stream)
                        .run(pass, p.b, spots, split.held, split.state, packets);
        }
        return error;
    }
};

// @HeldOperand deps: Launch, Memory, OnEachDevice, SplitOperands, num_multiprocessors, reads_packets, refresh_held_kernel
// An operand b whose split copy is held: made where it is known to have changed, or where the
// device finds it stale.
struct HeldOperand {
    static constexpr bool kHeld = true;

    template <int kParts>
    static int split(const SplitOperands<kParts>& split, const Product& p, const Memory& memory,
                     cudaStream_t stream) {
        const Spots spots = split.spots_of_b(p);
        const bool changed = !memory.held || memory.changed;
        const auto kernel = refresh_held_kernel<kParts>;
        static OnEachDevice resident;
        const int64_t most = resident.get([&] {
            int blocks = 0;
            cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0);
            const int all = num_multiprocessors() * blocks;
            return all < HeldHead::kSamples ? all : HeldHead::kSamples;
        });
        Launch launch(spots.count() < most ? spots.count() : most, 256, 0, stream);
        launch.run_together();
        return launch.run(kernel, p.b, spots, split.held, split.state, changed,
                          reads_packets<float>(p.b));
    }
};

// @held_copy_bytes deps: take_held
// What the split copy of b[batches, n, k] takes.
static int64_t held_copy_bytes(int parts, int64_t batches, int64_t n, int64_t k) {
    Workspace space{};
    take_held(space, parts, batches, n, k);
    return space.used;
}

}  // namespace op
