// The driver's tensor maps, and the copies that go by them.
#include "runtime.h"

namespace emulation {
namespace {

struct Layout {
    CUtensorMapDataType type;
    CUtensorMapInterleave interleave;
    CUtensorMapSwizzle swizzle;
};

bool is_between(int64_t least, int64_t value, int64_t most) {
    return least <= value && value <= most;
}

unsigned bytes_of(CUtensorMapSwizzle swizzle) { return 16u << swizzle; }

// What the driver asks of every map; emulated are those of 16-bit values in swizzled rows.
bool encode(CUtensorMap* map, const Layout& layout, cuuint32_t rank, const void* data,
            const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* steps) {
    if (layout.type != CU_TENSOR_MAP_DATA_TYPE_UINT16 ||
        layout.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
        layout.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE)
        fail("such tensor maps are not emulated");
    if (uintptr_t(map) % 64 || uintptr_t(data) % 16 || !is_between(1, rank, 5)) return false;
    *map = {};
    map->data = static_cast<const char*>(data);
    map->rank = uint8_t(rank);
    map->swizzle = uint8_t(layout.swizzle);
    for (cuuint32_t i = 0; i < rank; ++i) {
        if (!is_between(1, int64_t(sizes[i]), 0xffffffff) || !is_between(1, steps[i], 8))
            return false;
        map->size[i] = uint32_t(sizes[i]);
        map->step[i] = uint8_t(steps[i]);
        if (i + 1 == rank) continue;
        const uint64_t nearer = i ? strides[i - 1] : 2;
        if (strides[i] % 16 || strides[i] >= 1ull << 40 || strides[i] < nearer) return false;
        map->stride[i] = strides[i];
    }
    return true;
}

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* steps, CUtensorMapInterleave interleave,
                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    if (!encode(map, {type, interleave, swizzle}, rank, data, sizes, strides, steps))
        return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; ++i) {
        if (!is_between(1, box[i], 256) || steps[i] != 1) return CUDA_ERROR_INVALID_VALUE;
        map->box[i] = uint16_t(box[i]);
    }
    return 2 * box[0] == bytes_of(swizzle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult encode_im2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* data,
                       const cuuint64_t* sizes, const cuuint64_t* strides, const int* lower,
                       const int* upper, cuuint32_t channels, cuuint32_t pixels,
                       const cuuint32_t* steps, CUtensorMapInterleave interleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill) {
    if (!is_between(3, rank, 5) || 2 * channels != bytes_of(swizzle) ||
        !is_between(1, pixels, 1024))
        return CUDA_ERROR_INVALID_VALUE;
    if (!encode(map, {type, interleave, swizzle}, rank, data, sizes, strides, steps))
        return CUDA_ERROR_INVALID_VALUE;
    const int far = 1 << (rank == 3 ? 15 : rank == 4 ? 7 : 4);
    for (cuuint32_t i = 0; i + 2 < rank; ++i) {
        if (!is_between(-far, lower[i], far - 1) || !is_between(-far, upper[i], far - 1))
            return CUDA_ERROR_INVALID_VALUE;
        if (lower[i] >= int64_t(sizes[i + 1]) + upper[i]) return CUDA_ERROR_INVALID_VALUE;
        map->lower[i] = int16_t(lower[i]);
        map->upper[i] = int16_t(upper[i]);
    }
    map->box[0] = uint16_t(channels);
    map->pixels = uint16_t(pixels);
    return CUDA_SUCCESS;
}

// Rows as they stand in shared memory from `to` on, not yet swizzled.
using Rows = std::vector<char>;

// Values of which the first is at `at`, axis by axis; zeros outside of the tensor.
void append_row(Rows& rows, const CUtensorMap& map, const int64_t* at) {
    const char* from = map.data + 2 * at[0];
    bool inside = true;
    for (int axis = 1; axis < map.rank; ++axis) {
        inside = inside && is_between(0, at[axis], int64_t(map.size[axis]) - 1);
        from += at[axis] * int64_t(map.stride[axis - 1]);
    }
    const size_t begin = rows.size();
    rows.resize(begin + 2 * size_t(map.box[0]));
    for (int i = 0; inside && i < map.box[0]; ++i)
        if (is_between(0, at[0] + i, int64_t(map.size[0]) - 1))
            memcpy(&rows[begin + 2 * size_t(i)], from + 2 * i, 2);
}

void start_copies(unsigned to, const Rows& rows, const CUtensorMap& map, unsigned barrier,
                  unsigned blocks, int line) {
    if (to % 128) fail("%s: line %d: misaligned access: a tile", place().c_str(), line);
    const unsigned begin = to & ~1023u, lead = to - begin;
    const unsigned row_bytes = bytes_of(CUtensorMapSwizzle(map.swizzle));
    Rows placed(rows.size());
    for (unsigned i = 0; i < rows.size(); i += 16)
        memcpy(&placed[swizzled(lead + i, row_bytes) - lead], &rows[i], 16);
    for (unsigned block = 0; blocks >> block; ++block)
        if (blocks >> block & 1) start_copy_into(block, to, placed, barrier);
}

void require_map(const CUtensorMap* map, bool is_tile, int rank, int line) {
    if (uintptr_t(map) % 64 || map->rank != rank || (map->pixels == 0) != is_tile)
        fail("%s: line %d: a copy by a tensor map of another kind", place().c_str(), line);
}

}  // namespace

unsigned own_block() { return 1u << block_in_cluster(); }

void start_tile_copy(unsigned to, const CUtensorMap* map, unsigned barrier, const int* at, int rank,
                     unsigned blocks, int line) {
    require_map(map, true, rank, line);
    int count = 1;
    for (int axis = 1; axis < rank; ++axis) count *= map->box[axis];
    Rows rows;
    for (int i = 0; i < count; ++i) {
        int64_t row[5] = {at[0]};
        for (int axis = 1, rest = i; axis < rank; rest /= map->box[axis++])
            row[axis] = int64_t(at[axis]) + rest % map->box[axis];
        append_row(rows, *map, row);
    }
    start_copies(to, rows, *map, barrier, blocks, line);
}

// The corners go through the box of each image in steps, from row to row and from image to image.
void start_window_copy(unsigned to, const CUtensorMap* map, unsigned barrier, int channel,
                       const int* at, int image, const uint16_t* offset, int space, int line) {
    require_map(map, false, space + 2, line);
    const int most_offset = space == 3 ? 31 : 255;
    int64_t corner[4] = {0, 0, 0, image};
    for (int i = 0; i < space; ++i) {
        corner[i] = at[i];
        const int64_t end = int64_t(map->size[i + 1]) + map->upper[i];
        if (!is_between(map->lower[i], at[i], end - 1))
            fail("%s: line %d: a window's corner outside of the box", place().c_str(), line);
        if (offset[i] > most_offset)
            fail("%s: line %d: an offset of more bits than there are", place().c_str(), line);
    }
    Rows rows;
    for (int pixel = 0; pixel < map->pixels; ++pixel) {
        int64_t row[5] = {channel};
        for (int i = 0; i < space; ++i) row[i + 1] = corner[i] + offset[i];
        row[space + 1] = corner[3];
        append_row(rows, *map, row);
        int axis = 0;
        for (; axis < space; ++axis) {
            corner[axis] += map->step[axis + 1];
            if (corner[axis] < int64_t(map->size[axis + 1]) + map->upper[axis]) break;
            corner[axis] = map->lower[axis];
        }
        if (axis == space) corner[3] += 1;
    }
    start_copies(to, rows, *map, barrier, own_block(), line);
}

}  // namespace emulation

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** found, unsigned, int,
                                             cudaDriverEntryPointQueryResult*) {
    *found = nullptr;
    if (!strcmp(name, "cuTensorMapEncodeTiled"))
        *found = reinterpret_cast<void*>(emulation::encode_tiled);
    if (!strcmp(name, "cuTensorMapEncodeIm2col"))
        *found = reinterpret_cast<void*>(emulation::encode_im2col);
    return cudaSuccess;
}
