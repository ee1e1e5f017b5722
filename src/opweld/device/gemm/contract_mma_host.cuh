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

// @split_tiles_mma deps: Form, HeldOperand, MmaCall, NewOperand, held_copy_bytes, launch_fma_product, launch_mma_product, split_a, suits_tensor_cores
// A float32 product on the tensor cores; what does not fit the split form is left to the float32 kernel.
template <typename Mode, typename B>
struct SplitTiles : Form {
    using Call = MmaCall<Mode::kParts>;

    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool held) {
        return Call::of_split(p, nullptr, nullptr, held).bytes;
    }
    static int64_t held_bytes(const Product& p) {
        return B::kHeld ? held_copy_bytes(Mode::kParts, p.batches, p.n, p.k) : 0;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source& source,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const Call call = Call::of_split(p, memory.workspace, memory.held, memory.held != nullptr);
        const auto& split = call.operands;
        int error = B::split(split, p, memory, stream);
        if (!error) error = split_a(split, p, source, stream);
        if (error) return error;
        const int64_t row = call.blocks * MmaTile::kRowBytes;
        const Packed a{split.a, split.a_scale, row, split.a_batches > 1 ? p.m * row : 0,
                       split.a_batches > 1 ? split.intervals * p.m : 0};
        const Packed b{split.held.packed, split.held.scale, row,
                       split.b_batches > 1 ? p.n * row : 0, split.b_batches > 1 ? p.n : 0};
        const PackedProduct packed{a, b, p.batches, p.m, p.n, call.blocks, row};
        CallHead* head = split.state.head;
        error = launch_mma_product<Mode>(packed, sink, call.parts, call.splits, head, stream);
        return error ? error : launch_fma_product<float>(p, source, sink, &head->again, stream);
    }
};

// @whole_tiles_mma deps: Form, MmaCall, launch_mma_product, is_readable, pack_rows, suits_tensor_cores
// A product of 16-bit operands, which are read where they lie if their rows allow 16 bytes at once.
template <typename T>
static Packed whole_rows(const Operand& from, half* packed, int64_t batches, int64_t rows,
                         int64_t k, int64_t blocks, cudaStream_t stream) {
    if (is_readable(from)) return {from.data, nullptr, 2 * from.row, 2 * from.batch, 0};
    const int64_t own = from.batch ? batches : 1, pitch = blocks * 64;
    pack_rows(from, own, rows, k, pitch, reinterpret_cast<T*>(packed), stream);
    return {packed, nullptr, 2 * pitch, own > 1 ? 2 * rows * pitch : 0, 0};
}
template <typename Mode>
struct WholeTiles : Form {
    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool) {
        return MmaCall<1>::of_whole(p, nullptr).bytes;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source&,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        using T = typename Mode::Storage;
        const auto call = MmaCall<1>::of_whole(p, memory.workspace);
        const Packed a = whole_rows<T>(p.a, call.a, p.batches, p.m, p.k, call.blocks, stream);
        const Packed b = whole_rows<T>(p.b, call.b, p.batches, p.n, p.k, call.blocks, stream);
        const PackedProduct packed{a, b, p.batches, p.m, p.n, call.blocks, 2 * p.k};
        return launch_mma_product<Mode>(packed, sink, call.parts, call.splits, nullptr, stream);
    }
};

}  // namespace op
