// The host's part of products by mma.sync: what lies where in the workspace, the order of a call's
// kernels. Operands are split and packed as for Hopper (split.cuh).

namespace op {

// @MmaCall deps: Product, SplitOperands, mma_splits
// Where everything of a call lies; without memory, how much it takes. Blocks are of 128 bytes.
template <int kParts>
struct MmaCall {
    int64_t blocks;
    int splits;
    SplitOperands<kParts> operands;
    half *a, *b;
    float* parts;
    int64_t bytes;

    static MmaCall of_blocks(const Product& p, Workspace& space, int64_t blocks) {
        MmaCall call{};
        call.blocks = blocks;
        call.splits = mma_splits(p.batches, p.m, p.n, blocks);
        if (call.splits > 1) call.parts = space.take<float>(call.splits * p.batches * p.m * p.n);
        return call;
    }
    // Of float32 operands, which are split; b's split copy lies in `held` or in the workspace.
    static MmaCall of_split(const Product& p, void* workspace, void* held, bool is_held) {
        Workspace space{static_cast<char*>(workspace)};
        MmaCall call = of_blocks(p, space, kParts * interval_count(p.k));
        call.operands = SplitOperands<kParts>::take(p, space, held, is_held, p.m);
        call.bytes = space.used;
        return call;
    }
    // Of 16-bit operands; those that cannot be read as they lie are packed.
    static MmaCall of_whole(const Product& p, void* workspace) {
        Workspace space{static_cast<char*>(workspace)};
        MmaCall call = of_blocks(p, space, (p.k + 63) / 64);
        call.a = space.take<half>(p.batches * p.m * call.blocks * 64);
        call.b = space.take<half>(p.batches * p.n * call.blocks * 64);
        call.bytes = space.used;
        return call;
    }
};

// @launch_split_mma deps: LiveProducts, MmaCall, launch_mma_product, launch_fma_product
// A product of float32 operands, the values of a from `source`. What does not fit the split form is
// left to the float32 kernel.
template <typename Mode, typename Source, typename Epilogue>
static int launch_split_mma(const Product& p, const Memory& memory, const Source& source,
                            const Sink<Epilogue>& sink, cudaStream_t stream) {
    if constexpr (Source::kStored) {
        if (LiveProducts<Mode>::takes(p, memory.held != nullptr))
            return LiveProducts<Mode>::launch(p, memory, sink, stream);
    }
    using Call = MmaCall<Mode::kParts>;
    const Call call = Call::of_split(p, memory.workspace, memory.held, memory.held != nullptr);
    const auto& split = call.operands;
    const int error = split.make(p, source, !memory.held || memory.changed, stream);
    if (error) return error;
    const int64_t row = call.blocks * MmaTile::kRowBytes;
    const Packed a{split.a, split.a_scale, row, split.a_batches > 1 ? p.m * row : 0,
                   split.a_batches > 1 ? split.intervals * p.m : 0};
    const Packed b{split.held.packed, split.held.scale, row, split.b_batches > 1 ? p.n * row : 0,
                   split.b_batches > 1 ? p.n : 0};
    const PackedProduct packed{a, b, p.batches, p.m, p.n, call.blocks, row};
    CallHead* head = split.state.head;
    const int made = launch_mma_product<Mode>(packed, sink, call.parts, call.splits, head, stream);
    return made ? made : launch_fma_product<float>(p, source, sink, &head->again, stream);
}

// @launch_whole_mma deps: MmaCall, launch_mma_product, is_readable, pack_rows
// A product of 16-bit operands, which are read where they lie if their rows allow 16 bytes at once.
template <typename T>
static Packed whole_rows(const Operand& from, half* packed, int64_t batches, int64_t rows,
                         int64_t k, int64_t blocks, cudaStream_t stream) {
    if (is_readable(from)) return {from.data, nullptr, 2 * from.row, 2 * from.batch, 0};
    const int64_t own = from.batch ? batches : 1, pitch = blocks * 64;
    pack_rows(from, own, rows, k, pitch, reinterpret_cast<T*>(packed), stream);
    return {packed, nullptr, 2 * pitch, own > 1 ? 2 * rows * pitch : 0, 0};
}
template <typename Mode, typename Epilogue>
static int launch_whole_mma(const Product& p, const Memory& memory, const Sink<Epilogue>& sink,
                            cudaStream_t stream) {
    using T = typename Mode::Storage;
    const auto call = MmaCall<1>::of_whole(p, memory.workspace);
    const Packed a = whole_rows<T>(p.a, call.a, p.batches, p.m, p.k, call.blocks, stream);
    const Packed b = whole_rows<T>(p.b, call.b, p.batches, p.n, p.k, call.blocks, stream);
    const PackedProduct packed{a, b, p.batches, p.m, p.n, call.blocks, 2 * p.k};
    return launch_mma_product<Mode>(packed, sink, call.parts, call.splits, nullptr, stream);
}

// @tensor_cores_mma deps: Bfloat16, Faithful, Half, TensorCores, Tf32, launch_split_mma, launch_whole_mma, suits_tensor_cores
// The share of the tensor cores of sm_80 and up.
template <typename Mode>
struct TensorCores {
    static constexpr bool kSplits = sizeof(typename Mode::Storage) == 4;

    static bool take(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool held) {
        using Call = MmaCall<Mode::kParts>;
        if constexpr (!kSplits) return Call::of_whole(p, nullptr).bytes;
        const int64_t bytes = Call::of_split(p, nullptr, nullptr, held).bytes;
        const int64_t live = LiveProducts<Mode>::workspace_bytes(p);
        return bytes > live ? bytes : live;
    }
    static int64_t held_bytes(int64_t batches, int64_t n, int64_t k) {
        Workspace space{};
        if constexpr (kSplits) take_held(space, Mode::kParts, batches, n, k);
        return space.used;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source& source,
                      const Sink<Epilogue>& sink, cudaStream_t stream) {
        if constexpr (kSplits) {
            return launch_split_mma<Mode>(p, memory, source, sink, stream);
        } else {
            return launch_whole_mma<Mode>(p, memory, sink, stream);
        }
    }
};

}  // namespace op
