// Launches of the Hopper kernels: tensor maps, workspace, the order of a call's kernels.

namespace op {

// @Workspace deps: aligned_size
// Hands out parts of one block of memory; without memory it only counts.
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
inline Held take_held(Workspace& space, int64_t batches, int64_t n, int64_t k) {
    const int64_t intervals = (k + kInterval - 1) / kInterval;
    Held held{};
    held.head = space.take<HeldHead>(1);
    held.column_max = space.take<uint32_t>(k);
    held.scale = space.take<float>(batches * n);
    held.packed = space.take<half>(batches * n * intervals * 128);
    return held;
}

// @make_tensor_map deps: tensor_map_header
// The map of a packed operand: boxes of `rows` rows of one chunk of 128 bytes, swizzled.
inline int make_tensor_map(CUtensorMap* map, const void* packed, int64_t batches, int64_t rows,
                           int64_t chunks, int box_rows) {
    static PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
    if (!encode) {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        const cudaError_t error = cudaGetDriverEntryPointByVersion(
            "cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
        if (error != cudaSuccess || !found) return cudaErrorNotSupported;
        encode = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(found);
    }
    const cuuint64_t sizes[3] = {cuuint64_t(chunks) * 64, cuuint64_t(rows), cuuint64_t(batches)};
    const cuuint64_t strides[2] = {cuuint64_t(chunks) * 128, cuuint64_t(chunks) * 128 * rows};
    const cuuint32_t box[3] = {64, cuuint32_t(box_rows), 1}, steps[3] = {1, 1, 1};
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 3, const_cast<void*>(packed), sizes, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @launch_tiles deps: contract_sm90_kernel, TileGrid, make_tensor_map
// Operands in packed form, as the tile kernel reads them.
struct PackedOperand {
    const void* data;
    int64_t batches, rows;
    const float* scale;
    int64_t scale_rows;
};

template <typename T, typename Epilogue>
int launch_tiles(const PackedOperand& a, const PackedOperand& b, TileGrid grid, int64_t chunks,
                 const TileOutput<Epilogue>& out, const int* unfit, int num_sms,
                 cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    int error = make_tensor_map(&map_a, a.data, a.batches, a.rows, chunks, T::kTileM / T::kColumns);
    if (!error) error = make_tensor_map(&map_b, b.data, b.batches, b.rows, chunks, T::kTileN / T::kRows);
    if (error) return error;
    constexpr int64_t kHeight = T::kTileM * T::kRows, kWidth = T::kTileN * T::kColumns;
    grid.rows = int((out.m + kHeight - 1) / kHeight);
    grid.columns = int((out.n + kWidth - 1) / kWidth);
    auto kernel = contract_sm90_kernel<T, Epilogue>;
    static const int allowed = cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::kBytes);
    if (allowed) return allowed;
    const int blocks = T::Blocks::kBlocks, clusters = min(grid.count(), num_sms / blocks);
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(clusters * blocks);
    config.blockDim = dim3(T::kThreads);
    config.dynamicSmemBytes = T::kBytes;
    config.stream = stream;
    cudaLaunchAttribute attributes[2];
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {unsigned(blocks), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attributes;
    config.numAttrs = 2;
    return cudaLaunchKernelEx(&config, kernel, map_a, map_b, grid, int(a.batches > 1), a.scale,
                              a.scale_rows, out, unfit);
}

}  // namespace op
