// Products on the tensor cores whose operands are packed before, float32 split into half-precision
// parts (split.cuh). A Kernel is how packed operands are multiplied, and has
//   Plan, with `splits`: the parts in which sums over k are made
//   plan<Mode>(product, intervals)                         a Plan
//   scale_rows(m)                                          for how many rows of a scales are read
//   launch<Mode>(operands, product, plan, sink, stream)    a CUDA error code

namespace op {

// @PackedOperands deps: CallState
// Rows of 16-bit values: `depth` each, strides in values; one batch where all share it.
struct PackedOperand {
    const void* data;
    int64_t batches, batch, rows, row, depth;
};

// `intervals`: of 64 values of k. Those of split operands have scales, a
// [batch][interval][scale_rows] and b [batch][row]; `call` is what is known of them, null for
// others.
struct PackedOperands {
    PackedOperand a, b;
    int64_t intervals, scale_rows;
    const float *a_scale, *b_scale;
    CallHead* call;
};

// @parts_of_sums deps: Product, Workspace
static float* parts_of_sums(Workspace& space, const Product& p, int splits) {
    return space.take<float>(splits > 1 ? splits * p.batches * p.m * p.n : 0);
}

// @SplitTiles deps: Form, PackedOperands, SplitOperands, held_copy_bytes, in_parts, launch_fma_product, parts_of_sums, split_a, suits_tensor_cores
// A float32 product; what does not fit the split form is left to the float32 kernel.
template <typename Mode, typename B, typename Kernel>
struct SplitTiles : Form {
    struct Call {
        SplitOperands<Mode::kParts> split;
        typename Kernel::Plan plan;
        float* parts;
        int64_t bytes;

        Call(const Product& p, void* workspace, void* held, bool is_held) {
            Workspace space{static_cast<char*>(workspace)};
            split = split.take(p, space, held, is_held, Kernel::scale_rows(p.m));
            plan = Kernel::template plan<Mode>(p, split.intervals);
            parts = parts_of_sums(space, p, plan.splits);
            bytes = space.used;
        }
    };

    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool held) {
        return Call(p, nullptr, nullptr, held).bytes;
    }
    static int64_t held_bytes(const Product& p) {
        return B::kHeld ? held_copy_bytes(Mode::kParts, p.batches, p.n, p.k) : 0;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source& source,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const Call call(p, memory.workspace, memory.held, memory.held != nullptr);
        int error = B::split(call.split, p, memory, stream);
        if (!error) error = split_a(call.split, p, source, stream);
        if (error) return error;
        const PackedOperands packed = call.split.packed(p);
        const int* again = &packed.call->again;
        error = in_parts(sink, call.plan.splits, call.parts, again, stream, [&](const auto& to) {
            return Kernel::template launch<Mode>(packed, p, call.plan, to, stream);
        });
        return error ? error : launch_fma_product<float>(p, source, sink, again, stream);
    }
};

// @WholeTiles deps: Form, PackedOperands, Workspace, in_parts, is_readable, kInterval, pack_rows, parts_of_sums, suits_tensor_cores
// A product of 16-bit operands; those that the kernels cannot read as they lie are packed first.
template <typename Mode, typename Kernel>
struct WholeTiles : Form {
    using T = typename Mode::Storage;
    struct Call {
        int64_t intervals, pitch;
        typename Kernel::Plan plan;
        float* parts;
        T *a, *b;
        int64_t bytes;

        Call(const Product& p, void* workspace) {
            Workspace space{static_cast<char*>(workspace)};
            intervals = interval_count(p.k);
            pitch = intervals * kInterval;
            plan = Kernel::template plan<Mode>(p, intervals);
            parts = parts_of_sums(space, p, plan.splits);
            a = space.take<T>(p.batches * p.m * pitch);
            b = space.take<T>(p.batches * p.n * pitch);
            bytes = space.used;
        }
    };

    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool) { return Call(p, nullptr).bytes; }

    static PackedOperand readable(const Operand& from, T* packed, int64_t batches, int64_t rows,
                                  int64_t k, int64_t pitch, cudaStream_t stream) {
        const int64_t own = from.batch ? batches : 1;
        if (is_readable(from)) return {from.data, own, from.batch, rows, from.row, k};
        pack_rows(from, own, rows, k, pitch, packed, stream);
        return {packed, own, rows * pitch, rows, pitch, pitch};
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source&,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const Call call(p, memory.workspace);
        const PackedOperands packed{readable(p.a, call.a, p.batches, p.m, p.k, call.pitch, stream),
                                    readable(p.b, call.b, p.batches, p.n, p.k, call.pitch, stream),
                                    call.intervals};
        return in_parts(sink, call.plan.splits, call.parts, nullptr, stream, [&](const auto& to) {
            return Kernel::template launch<Mode>(packed, p, call.plan, to, stream);
        });
    }
};

}  // namespace op
