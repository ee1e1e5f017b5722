// The host's part of products on Hopper: which tiles, how k is shared out, what lies where in the
// workspace, tensor maps, the order of a call's kernels.

namespace op {

// @make_tensor_map deps: tensor_map_header
// The map of an operand of 16-bit values, `depth` a row, strides in values: boxes of `box_rows` rows
// of 64 values, swizzled.
static int make_tensor_map(CUtensorMap* map, const void* data, int64_t batches, int64_t batch,
                           int64_t rows, int64_t row, int64_t depth, int box_rows) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
        if (error != cudaSuccess || !found) return cudaErrorNotSupported;
        encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
    }
    const cuuint64_t sizes[3] = {cuuint64_t(depth), cuuint64_t(rows), cuuint64_t(batches)};
    const cuuint64_t strides[2] = {cuuint64_t(row) * 2, cuuint64_t(batches > 1 ? batch : row) * 2};
    const cuuint32_t box[3] = {64, cuuint32_t(box_rows), 1}, steps[3] = {1, 1, 1};
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(data), sizes, strides, box,
               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @TilePlan deps: Product, kInterval
// Which tiles, and in how many parts k is summed. Times are microseconds at a clock of 1.6 GHz.
struct TilePlan {
    static constexpr int kSms = 132;  // H100, H200
    static constexpr int64_t kShortestWide = 256;  // where few sums are promoted their errors show
    bool wide;                        // tiles of 128 x 256 in pairs, else single ones of 128 x 128
    int splits;
    double time;

    static double of(const Product& p, int64_t intervals, double interval_us, bool wide, int splits) {
        const int64_t side = wide ? 256 : 128, slots = wide ? kSms / 2 : kSms;
        const int64_t tiles = p.batches * ((p.m + side - 1) / side) * ((p.n + side - 1) / side);
        const int64_t turns = (tiles * splits + slots - 1) / slots;
        const double of_tile = wide ? 1.0 : 0.53, ends_us = wide ? 4.0 : 2.2;
        double time = turns * ((intervals + splits - 1) / splits * interval_us * of_tile + ends_us);
        // parts are written, read and combined: 4 bytes each way at about 3 TB/s
        if (splits > 1) time += 4.0 + splits * double(p.batches * p.m * p.n) * 8.0 / 3e6;
        return time;
    }
    static TilePlan choose(const Product& p, int64_t intervals, double interval_us) {
        TilePlan best{false, 1, of(p, intervals, interval_us, false, 1)};
        for (int wide = 0; wide < (p.k < kShortestWide ? 1 : 2); ++wide) {
            for (int splits = 1; splits <= kSms && splits * 4 <= intervals + 3; ++splits) {
                const double time = of(p, intervals, interval_us, wide != 0, splits);
                if (time < best.time * 0.99) best = {wide != 0, splits, time};
            }
        }
        return best;
    }
};

// @TileOperand deps:
// An operand as the copy engine reads it, strides in 16-bit values.
struct TileOperand {
    const void* data;
    int64_t batches, batch, rows, row, depth;
};

// @launch_tiles deps: combine_parts, Product, contract_sm90_kernel, TileGrid, TileOperand, TilePlan, make_tensor_map
template <typename T, typename Epilogue>
static int launch_tiles(const TileOperand& a, const TileOperand& b, const Product& p,
                        int64_t intervals, int splits, const TileScales& scales,
                        const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    int error = make_tensor_map(&map_a, a.data, a.batches, a.batch, a.rows, a.row, a.depth,
                                T::kTileM);
    if (error) return error;
    error = make_tensor_map(&map_b, b.data, b.batches, b.batch, b.rows, b.row, b.depth,
                            T::kTileN / T::kBlocks);
    if (error) return error;
    constexpr int kBlocks = T::kBlocks;
    constexpr int64_t kHeight = T::kTileM * kBlocks, kWidth = T::kTileN;
    const int height = int((p.m + kHeight - 1) / kHeight), width = int((p.n + kWidth - 1) / kWidth);
    const auto grid = TileGrid::of(height, width, splits, int(p.batches), int(intervals));
    auto kernel = contract_sm90_kernel<T, Epilogue>;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(TilePlan::kSms / kBlocks * kBlocks);
    config.blockDim = dim3(T::kThreads);
    config.dynamicSmemBytes = T::kBytes;
    config.stream = stream;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {kBlocks, 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes;
    config.numAttrs = 1;
    // As many clusters as run together: those that wait for others to end would double the time.
    static const int most = [&] {
        int clusters = 0;
        if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes) ||
            cudaOccupancyMaxActiveClusters(&clusters, kernel, &config)) {
            return 0;
        }
        return clusters;
    }();
    if (most == 0) return cudaErrorInvalidConfiguration;
    config.gridDim = dim3((grid.count() < most ? grid.count() : most) * kBlocks);
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, kernel, map_a, map_b, grid, scales, sink, p.m, p.n);
}

template <typename Mode, typename Epilogue>
static int launch_tiles_of(const TileOperand& a, const TileOperand& b, const Product& p,
                           int64_t intervals, const TilePlan& plan, const TileScales& scales,
                           const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
    // Where cuBLAS has few tiles it sums k in parts, which is more exact: so does the small tile.
    using Wide = Tiles<Mode, 256, 2, 4, 64>;
    using Single = Tiles<Mode, 128, 1, 6, Mode::kParts == 2 ? 32 : 64>;
    const auto launch = plan.wide ? launch_tiles<Wide, Epilogue> : launch_tiles<Single, Epilogue>;
    const int error = launch(a, b, p, intervals, plan.splits, scales, sink, stream);
    if (error || plan.splits == 1) return error;
    return combine_parts(sink, plan.splits, scales.call ? &scales.call->again : nullptr, stream);
}

// @split_tiles_sm90 deps: Form, HeldOperand, NewOperand, SplitOperands, SplitSums, TilePlan, held_copy_bytes, launch_fma_product, launch_tiles, split_a, suits_tensor_cores
// A float32 product on the tensor cores; what does not fit the split form is left to the float32 kernel.
template <int kParts>
struct SplitCall {
    static constexpr double kIntervalUs = kParts == 2 ? 1.9 : 0.65;  // of a wide tile
    SplitOperands<kParts> operands;
    TilePlan plan;
    float* parts;
    int64_t bytes;

    static SplitCall of(const Product& p, void* workspace, void* held, bool is_held) {
        SplitCall call{};
        Workspace space{static_cast<char*>(workspace)};
        // rows of whole tiles: read, never used
        call.operands = SplitOperands<kParts>::take(p, space, held, is_held, (p.m + 255) / 256 * 256);
        call.plan = TilePlan::choose(p, call.operands.intervals, kIntervalUs);
        if (call.plan.splits > 1) {
            call.parts = space.take<float>(call.plan.splits * p.batches * p.m * p.n);
        }
        call.bytes = space.used;
        return call;
    }
};

template <typename Mode, typename B>
struct SplitTiles : Form {
    using Call = SplitCall<Mode::kParts>;

    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool held) {
        return Call::of(p, nullptr, nullptr, held).bytes;
    }
    static int64_t held_bytes(const Product& p) {
        return B::kHeld ? held_copy_bytes(Mode::kParts, p.batches, p.n, p.k) : 0;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source& source,
                      EpilogueStore<Epilogue> sink, cudaStream_t stream) {
        const Call call = Call::of(p, memory.workspace, memory.held, memory.held != nullptr);
        const auto& split = call.operands;
        int error = B::split(split, p, memory, stream);
        if (!error) error = split_a(split, p, source, stream);
        if (error) return error;
        const int64_t pitch = split.intervals * (Mode::kParts * kInterval);
        const TileOperand a{split.a, split.a_batches, p.m * pitch, p.m, pitch, pitch};
        const TileOperand b{split.held.packed, split.b_batches, p.n * pitch, p.n, pitch, pitch};
        CallHead* head = split.state.head;
        const TileScales scales{split.a_scale, split.held.scale, split.scale_rows,
                                split.a_batches > 1, split.b_batches > 1, head};
        const EpilogueStore<Epilogue> whole = sink;
        sink.parts = call.parts;
        error = launch_tiles_of<Mode>(a, b, p, split.intervals, call.plan, scales, sink, stream);
        return error ? error : launch_fma_product<float>(p, source, whole, &head->again, stream);
    }
};

// @whole_tiles_sm90 deps: Form, TilePlan, WholeSums, Workspace, is_readable, pack_rows, launch_tiles, suits_tensor_cores
// A product of 16-bit operands on the tensor cores; those that the copy engine cannot read as they
// lie are packed first.
struct WholeCall {
    static constexpr double kIntervalUs = 0.42;
    int64_t intervals, pitch;
    TilePlan plan;
    void *a, *b;
    float* parts;
    int64_t bytes;

    static WholeCall of(const Product& p, void* workspace) {
        WholeCall call{};
        call.intervals = (p.k + 63) / 64;
        call.pitch = call.intervals * 64;
        call.plan = TilePlan::choose(p, call.intervals, kIntervalUs);
        Workspace space{static_cast<char*>(workspace)};
        if (call.plan.splits > 1) {
            call.parts = space.take<float>(call.plan.splits * p.batches * p.m * p.n);
        }
        call.a = space.take<half>(p.batches * p.m * call.pitch);
        call.b = space.take<half>(p.batches * p.n * call.pitch);
        call.bytes = space.used;
        return call;
    }
};

template <typename T>
static TileOperand readable(const Operand& from, void* packed, int64_t batches, int64_t rows,
                            int64_t k, int64_t pitch, cudaStream_t stream) {
    const int64_t own = from.batch ? batches : 1;
    if (is_readable(from)) return {from.data, own, from.batch, rows, from.row, k};
    pack_rows(from, own, rows, k, pitch, static_cast<T*>(packed), stream);
    return {packed, own, rows * pitch, rows, pitch, pitch};
}

template <typename Mode>
struct WholeTiles : Form {
    static bool takes(const Product& p) { return suits_tensor_cores<Mode>(p); }
    static int64_t workspace_bytes(const Product& p, bool) {
        return WholeCall::of(p, nullptr).bytes;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory& memory, const Source&, EpilogueStore<Epilogue> sink,
                      cudaStream_t stream) {
        using T = typename Mode::Storage;
        const WholeCall call = WholeCall::of(p, memory.workspace);
        const TileOperand a = readable<T>(p.a, call.a, p.batches, p.m, p.k, call.pitch, stream);
        const TileOperand b = readable<T>(p.b, call.b, p.batches, p.n, p.k, call.pitch, stream);
        const TileScales scales{nullptr, nullptr, 0, a.batches > 1, b.batches > 1, nullptr};
        sink.parts = call.parts;
        return launch_tiles_of<Mode>(a, b, p, call.intervals, call.plan, scales, sink, stream);
    }
};

}  // namespace op
