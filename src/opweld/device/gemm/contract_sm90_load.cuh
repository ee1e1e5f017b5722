// Products on Hopper's tensor cores: how tiles of operands come into shared memory.

namespace op {

// @swizzle_of deps: tensor_map_header
// Of rows of 64, 32 or 16 values in shared memory: as tile_descriptor says it.
static CUtensorMapSwizzle swizzle_of(int width) {
    return width == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
           : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                         : CU_TENSOR_MAP_SWIZZLE_32B;
}

// @tensor_map_encoder deps: tensor_map_header
// The function of the driver of this name, which makes tensor maps; null where it has none.
template <typename Encode>
static Encode tensor_map_encoder(const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess ? reinterpret_cast<Encode>(found) : nullptr;
}

// @make_tensor_map deps: PackedOperands, swizzle_of, tensor_map_encoder
// The map of an operand: boxes of `box_rows` rows of `width` values, swizzled.
static int make_tensor_map(CUtensorMap* map, const PackedOperand& from, int box_rows, int width) {
    static const auto encode =
        tensor_map_encoder<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
    if (!encode) return cudaErrorNotSupported;
    const cuuint64_t sizes[3] = {cuuint64_t(from.depth), cuuint64_t(from.rows),
                                 cuuint64_t(from.batches)};
    const int64_t batch = from.batches > 1 ? from.batch : from.row;
    const cuuint64_t strides[2] = {cuuint64_t(from.row) * 2, cuuint64_t(batch) * 2};
    const cuuint32_t box[3] = {cuuint32_t(width), cuuint32_t(box_rows), 1}, steps[3] = {1, 1, 1};
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 3, const_cast<void*>(from.data), sizes, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(width),
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @StridedScales deps: Sums, TileScales, find_cancellation_sm90
// The scales of two rows of a packed operand, 8 apart: those of an interval `step` behind the last.
// `next` starts to load them, long before `use` needs them.
struct StridedScales {
    const float *first, *scale;
    int64_t step;

    __device__ __forceinline__ void next(float& upper, float& lower) {
        upper = __ldg(scale), lower = __ldg(scale + 8);
        scale += step;
    }
    __device__ __forceinline__ void use(float&, float&) const {}
    // Where digits were lost: whether they count in the sums. `left`: rows from the upper one on.
    template <int kParts, int kTileN, int kPiece>
    __device__ __forceinline__ void check(const Sums<kTileN, kPiece>& sums,
                                          const TileScales& scales, const TileAt& tile,
                                          int64_t left) const {
        if (!scales.call->lossy) return;
        find_cancellation<kParts>(sums, first, step, tile.last - tile.first, left, scales.call);
    }
};

// @PackedLoader deps: PackedOperands, Tiles, TileScales, Ring, StridedScales, cluster, copy_tile, make_tensor_map, prefetch_map
// Loads tiles of packed operands, by the tensor memory accelerator. What another loader would do
// otherwise is `fill`: all chunks of all tiles of this block, in order, by one thread; and where
// the scales of two rows of a are.
struct PackedLoader {
    static constexpr bool kHasFallback = false;  // another kernel makes products that halves do not
    CUtensorMap a, b;

    __device__ __forceinline__ StridedScales row_scales(const TileGrid& grid,
                                                        const TileScales& scales,
                                                        const TileAt& tile, int row,
                                                        int64_t) const {
        const int64_t first =
            (scales.a_batched ? int64_t(tile.batch) : 0) * grid.intervals + tile.first;
        const float* scale = scales.a + first * scales.a_rows + row;
        return {scale, scale, scales.a_rows};
    }

    template <typename T>
    int open(const PackedOperands& from) {
        const int error = make_tensor_map(&a, from.a, T::kTileM, T::kWidth);
        return error ? error : make_tensor_map(&b, from.b, T::kTileN / T::kBlocks, T::kWidth);
    }
    template <typename T>
    __device__ __forceinline__ void fill(typename T::Memory& memory, const TileGrid& grid,
                                         const TileScales& scales) const {
        using Depth = typename T::Depth;
        const typename T::Blocks blocks;
        constexpr int kPart = T::kTileN / T::kBlocks;
        prefetch_map(&a);
        prefetch_map(&b);
        Ring<T::kStages> ring;
        ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
        for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
            const TileAt tile(grid, index);
            const int row = (tile.row * T::kBlocks + blocks.rank) * T::kTileM;
            const int column = tile.column * T::kTileN + blocks.rank * kPart;
            const int first = tile.first * Depth::kPerInterval;
            const int last = tile.last * Depth::kPerInterval;
            for (int chunk = first; chunk < last; ++chunk) {
                auto& stage = memory.stage[ring.stage];
                const Barrier& full = memory.full[ring.stage];
                memory.empty[ring.stage].wait(ring.parity);
                memory.full[ring.stage].expect(sizeof(stage.a) + sizeof(stage.b));
                copy_tile<false>(stage.a, &a, full, chunk * T::kWidth, row,
                                 scales.a_batched ? tile.batch : 0, 0);
                copy_tile<(T::kBlocks > 1)>(stage.b + blocks.rank * kPart * T::kChunkBytes, &b,
                                            full, chunk * T::kWidth, column,
                                            scales.b_batched ? tile.batch : 0, T::Blocks::kAll);
                ring.advance();
            }
        }
    }
};

}  // namespace op
