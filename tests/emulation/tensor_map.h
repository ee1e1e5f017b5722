// Tensor maps: what the driver encodes in them, and the copies that go by them, as the PTX ISA
// (9.0, "Tensor") and the driver's own reference describe both. What either leaves undefined is a
// fault.
#pragma once

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_INVALID_VALUE = 1 };
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_UINT16 };
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_INTERLEAVE_16B };
enum CUtensorMapSwizzle {
    CU_TENSOR_MAP_SWIZZLE_NONE,
    CU_TENSOR_MAP_SWIZZLE_32B,
    CU_TENSOR_MAP_SWIZZLE_64B,
    CU_TENSOR_MAP_SWIZZLE_128B
};
enum CUtensorMapL2promotion {
    CU_TENSOR_MAP_L2_PROMOTION_NONE,
    CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3
};
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };

// Axes from the innermost on. A box is of `box` elements of each axis, or of `box[0]` channels of
// `pixels` pixels, the corners of whose windows lie in [lower, size + upper). Rows of a box have as
// many bytes as its swizzle.
struct alignas(64) CUtensorMap {
    const char* data;
    uint64_t stride[4];  // in bytes, of the axes but the first
    uint32_t size[5];
    int16_t lower[3], upper[3];
    uint16_t box[5], pixels;  // no pixels: a tile
    uint8_t step[5], rank, swizzle;
};
static_assert(sizeof(CUtensorMap) == 128, "a kernel's parameter holds as much");

using PFN_cuTensorMapEncodeTiled_v12000 = CUresult (*)(
    CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* data, const cuuint64_t* sizes,
    const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps,
    CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
using PFN_cuTensorMapEncodeIm2col_v12000 = CUresult (*)(
    CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* data, const cuuint64_t* sizes,
    const cuuint64_t* strides, const int* lower, const int* upper, cuuint32_t channels,
    cuuint32_t pixels, const cuuint32_t* steps, CUtensorMapInterleave, CUtensorMapSwizzle,
    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

using cudaDriverEntryPointQueryResult = int;
constexpr int cudaEnableDefault = 0;
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned version,
                                             int flags, cudaDriverEntryPointQueryResult* result);

namespace emulation {

// Into the same place of all blocks of the cluster whose bits are set. `at`: from the innermost
// axis on.
void start_tile_copy(unsigned to, const CUtensorMap* map, unsigned barrier, const int* at, int rank,
                     unsigned blocks, int line);
// `at` and `offset`: from the innermost axis of space on.
void start_window_copy(unsigned to, const CUtensorMap* map, unsigned barrier, int channel,
                       const int* at, int image, const uint16_t* offset, int space, int line);
unsigned own_block();  // its bit

// Where 16 bytes at this address stand in rows of so many bytes: of 128, bits 4 to 6 are changed by
// bits 7 to 9; of 64, bits 4 and 5 by 7 and 8; of 32, bit 4 by 7.
inline unsigned swizzled(unsigned at, unsigned row_bytes) {
    return at ^ (at >> 7 & (row_bytes / 16 - 1)) << 4;
}

}  // namespace emulation

#define OPWELD_HERE int line = __builtin_LINE()
inline void prefetch_tensormap(const CUtensorMap*) {}
inline void cp_async_bulk_tensor_3d_shared_cluster_global_tile_mbarrier_complete_tx_bytes(
    unsigned to, const CUtensorMap* map, unsigned barrier, int x, int y, int z, uint16_t blocks,
    OPWELD_HERE) {
    const int at[3] = {x, y, z};
    emulation::start_tile_copy(to, map, barrier, at, 3, blocks, line);
}
inline void cp_async_bulk_tensor_3d_shared_cluster_global_tile_mbarrier_complete_tx_bytes(
    unsigned to, const CUtensorMap* map, unsigned barrier, int x, int y, int z) {
    const int at[3] = {x, y, z};
    emulation::start_tile_copy(to, map, barrier, at, 3, emulation::own_block(), 0);
}
inline void cp_async_bulk_tensor_5d_shared_cluster_global_tile_mbarrier_complete_tx_bytes(
    unsigned to, const CUtensorMap* map, unsigned barrier, int v, int w, int x, int y, int z,
    OPWELD_HERE) {
    const int at[5] = {v, w, x, y, z};
    emulation::start_tile_copy(to, map, barrier, at, 5, emulation::own_block(), line);
}
inline void cp_async_bulk_tensor_4d_shared_cluster_global_im2col_mbarrier_complete_tx_bytes(
    unsigned to, const CUtensorMap* map, unsigned barrier, int channel, int w, int h, int image,
    uint16_t off_w, uint16_t off_h, OPWELD_HERE) {
    const int at[2] = {w, h};
    const uint16_t offset[2] = {off_w, off_h};
    emulation::start_window_copy(to, map, barrier, channel, at, image, offset, 2, line);
}
inline void cp_async_bulk_tensor_5d_shared_cluster_global_im2col_mbarrier_complete_tx_bytes(
    unsigned to, const CUtensorMap* map, unsigned barrier, int channel, int w, int h, int d,
    int image, uint16_t off_w, uint16_t off_h, uint16_t off_d, OPWELD_HERE) {
    const int at[3] = {w, h, d};
    const uint16_t offset[3] = {off_w, off_h, off_d};
    emulation::start_window_copy(to, map, barrier, channel, at, image, offset, 3, line);
}
#undef OPWELD_HERE
