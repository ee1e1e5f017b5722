// Convolutions by halos in shared memory (halo.cuh): how they are loaded and multiplied, and the
// form that launches them.

namespace op {

// @make_halo_map deps: Convolution, HaloShape, swizzle_of, tensor_map_encoder
// The map of packed pixels of `pitch` values, `width` of which are a row of a halo's box.
static int make_halo_map(CUtensorMap* map, const half* packed, int64_t pitch, const Convolution& c,
                         const HaloShape& shape, int width) {
    static const auto encode =
        tensor_map_encoder<PFN_cuTensorMapEncodeTiled_v12000>("cuTensorMapEncodeTiled");
    if (!encode) return cudaErrorNotSupported;
    // From the innermost axis on: channels, the axes of space, images.
    cuuint64_t sizes[5] = {cuuint64_t(pitch)}, strides[4];
    cuuint32_t box[5] = {cuuint32_t(width)};
    const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
    cuuint64_t stride = cuuint64_t(pitch) * 2;
    for (int i = 0; i < 3; ++i) {
        const int axis = 2 - i;
        sizes[i + 1] = cuuint64_t(c.size[axis]);
        box[i + 1] = cuuint32_t(axis == 2 ? shape.box[2] / shape.copies : shape.box[axis]);
        strides[i] = stride;
        stride *= cuuint64_t(c.size[axis]);
    }
    sizes[4] = cuuint64_t(c.batches), box[4] = 1, strides[3] = stride;
    const CUresult result =
        encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 5, const_cast<half*>(packed), sizes, strides,
               box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(width),
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

// @copy_box deps: Barrier, tensor_map_header
// A box of pixels from `at` on, which may begin outside of the image; zeros there.
OPWELD_FN void copy_box(void* to, const CUtensorMap* map, const Barrier& barrier, int channel,
                        const int (&at)[3], int image) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
        "l"(map), "r"(barrier.at()), "r"(channel), "r"(at[2]), "r"(at[1]), "r"(at[0]), "r"(image)
        : "memory");
}

// @load_halos deps: HaloSize, Halos, Ring, TileGrid, copy_box, prefetch_map
// The halos of all intervals of a block's tiles, in order, and what is known of them, by one warp.
template <typename T>
OPWELD_FN void load_halos(typename T::Memory& memory, const Halos<T::kWidth>& halos,
                          const TileGrid& grid, const CUtensorMap* pixels) {
    const HaloShape& shape = halos.shape;
    const int lane = int(threadIdx.x) % 32, patches = shape.patches_of_tile();
    HaloRing buffer(halos.buffers);
    buffer.parity = 1;  // the buffers are empty: the phase before the first counts as ended
    if (lane == 0) prefetch_map(pixels);
    for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
        const TileAt tile(grid, index);
#pragma unroll 1
        for (int interval = tile.first; interval < tile.last; ++interval) {
            Barrier& ready = memory.ready[buffer.stage];
            auto& known = memory.known[buffer.stage];
            memory.taken[buffer.stage].wait(buffer.parity);
            if (lane == 0)
                ready.expect(
                    uint32_t(patches * shape.copies * shape.rows_of_copy() * T::kRowBytes));
            uint32_t marks = 0;
#pragma unroll 1
            for (int i = 0; i < patches; ++i) {
                int at[3];
                const int image = halos.first_of(tile.row * patches + i, at);
                for (int axis = 0; axis < 3; ++axis) at[axis] -= halos.c.padding[axis];
                if (image >= 0) marks = max(marks, halos.marks_of(image, at, interval, lane));
                if (lane != 0) continue;
                known.of_patch[i] = image >= 0 ? __ldg(halos.scales + image) : 0.0f;
                for (int copy = 0; copy < shape.copies; ++copy) {
                    const int row = i * shape.rows + copy * shape.rows_of_copy();
                    copy_box(memory.halo + buffer.stage * halos.buffer_bytes + row * T::kRowBytes,
                             pixels, ready, interval * T::kWidth, at,
                             image >= 0 ? image : int(halos.c.batches));
                    at[2] += shape.box[2] / shape.copies;
                }
            }
            for (int i = lane; interval == tile.first && i < T::kTileN; i += 32) {
                const int column = tile.column * T::kTileN + i;
                const bool exists = column < int(halos.c.filters);
                const float scale = exists ? __ldg(halos.filter_scales + column) : 0.0f;
                marks = max(marks, __float_as_uint(scale) & kScaleMarks);
                known.of_filter[i] = unmarked(scale);
            }
            marks = __reduce_max_sync(~0u, marks);  // the greater mark tells all
            if (lane == 0) known.marks = marks;
            ready.arrive();  // each lane says so itself of what it has written
            buffer.advance();
        }
    }
}

// @load_filters deps: HaloSize, Halos, Ring, TileGrid, cluster, copy_tile, prefetch_map
// All taps of all intervals of a block's tiles, in order, by one thread.
template <typename T>
OPWELD_FN void load_filters(typename T::Memory& memory, const Halos<T::kWidth>& halos,
                            const TileGrid& grid, const CUtensorMap* filters) {
    const int taps = int(halos.c.taps());
    Ring<T::kStages> ring;
    ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
    prefetch_map(filters);
    for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
        const TileAt tile(grid, index);
        for (int interval = tile.first; interval < tile.last; ++interval) {
            for (int tap = 0; tap < taps; ++tap) {
                memory.empty[ring.stage].wait(ring.parity);
                memory.full[ring.stage].expect(sizeof(memory.stage[0].b));
                copy_tile<false>(memory.stage[ring.stage].b, filters, memory.full[ring.stage],
                                 (tap * grid.intervals + interval) * T::kWidth,
                                 tile.column * T::kTileN, 0, 0);
                ring.advance();
            }
        }
    }
}

// @sum_halos deps: HaloScales, HaloSize, Halos, Ring, Type, tile_descriptor, wgmma_half_128, wgmma_order
// A warpgroup's sums of a tile, of 64 filters and two blocks of pixels.
template <typename T>
OPWELD_FN HaloScales sum_halos(float (&sums)[2][64], typename T::Memory& memory,
                               const Halos<T::kWidth>& halos, const TileAt& tile,
                               Ring<T::kStages>& ring, HaloRing& buffer) {
    const HaloShape& shape = halos.shape;
    const int of_line = shape.box[2], of_group = shape.group[2] > 0 ? 8 : of_line;
    const int taps = int(halos.c.taps());
    const int warp = int(threadIdx.x) / 32, filter = warp * 16 + int(threadIdx.x) % 32 / 4;
    const int filters = warp / 4 * 64 * T::kRowBytes;
    int patch[2], row[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        patch[i] = i / shape.blocks;
        row[i] = patch[i] * shape.rows +
                 i % shape.blocks * (shape.second[0] * shape.box[1] * of_line + shape.second[2]);
    }
    HaloScales known{};
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 64; ++j) sums[i][j] = 0.0f;
    const auto pin_all = [&] {
#pragma unroll
        for (int i = 0; i < 2; ++i) pin(sums[i]);
    };
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        memory.ready[buffer.stage].wait(buffer.parity);
        const auto& found = memory.known[buffer.stage];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            known.of_block[i] = found.of_patch[patch[i]];
            if (interval == tile.first) known.of_filter[i] = found.of_filter[filter + 8 * i];
        }
        known.marks = max(known.marks, found.marks);
        const uint64_t pixels = tile_descriptor<T::kRowBytes>(
            memory.halo + buffer.stage * halos.buffer_bytes, of_group * T::kRowBytes);
        const auto moved = [](uint64_t descriptor, int units) {  // its upper word stays
            return (descriptor & ~uint64_t(0xFFFFFFFF)) | (uint32_t(descriptor) + uint32_t(units));
        };
        int before = 0;
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) {
            const int of_tap = memory.tap_row[tap];
            memory.full[ring.stage].wait(ring.parity);
            const uint64_t weights =
                tile_descriptor<T::kRowBytes>(memory.stage[ring.stage].b + filters);
            pin_all();
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < T::kWidth / 16; ++step) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    wgmma(Type<half>(), sums[i], moved(weights, 2 * step),
                          moved(pixels, (row[i] + of_tap) * (T::kRowBytes / 16) + 2 * step), 1);
            }
            wgmma_commit();
            wgmma_wait<1>();
            pin_all();
            if (tap > 0 && threadIdx.x % 128 == 0) memory.empty[before].arrive();
            before = ring.stage;
            ring.advance();
        }
        wgmma_wait<0>();
        pin_all();
        if (threadIdx.x % 128 == 0) memory.empty[before].arrive();
        __syncwarp();  // all lanes have read what is known
        if (threadIdx.x % 32 == 0) memory.taken[buffer.stage].arrive();
        buffer.advance();
    }
    return known;
}

// @halo_kernel deps: dependents, give_halos, load_filters, load_halos, make_stages, setmaxnreg, sum_halos
template <typename T, typename Epilogue>
static __global__ void __launch_bounds__(T::kThreads, T::kResident)
    halo_kernel(const __grid_constant__ Halos<T::kWidth> halos,
                const __grid_constant__ CUtensorMap pixels,
                const __grid_constant__ CUtensorMap filters, const TileGrid grid,
                const EpilogueStore<Epilogue> sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = tile_memory<typename T::Memory>();
    for (int i = int(threadIdx.x); i < halos.c.taps(); i += T::kThreads)
        memory.tap_row[i] = uint16_t(halos.shape.row_of(halos.c, i));
    if (threadIdx.x < T::kMostHalos) {
        memory.ready[threadIdx.x].init(1 + 32);  // the copies are told of, and what is known
        memory.taken[threadIdx.x].init(T::kConsumers / 32);
    }
    make_stages<T>();
    if (threadIdx.x < T::kConsumers) {
        setmaxnreg<T::kSumRegisters, true>();
        griddepcontrol_wait();
        Ring<T::kStages> ring;
        HaloRing buffer(halos.buffers);
        for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
            const TileAt tile(grid, index);
            const auto runs = find_runs<T>(halos, tile, sink.epilogue);  // halos are under way
            const auto group = find_group<T>(halos, tile);
            float sums[2][64];
            const auto known = sum_halos<T>(sums, memory, halos, tile, ring, buffer);
            give_halos<T>(sums, memory, halos, tile, known, runs, group, sink);
        }
    } else {
        setmaxnreg<T::kLoadRegisters, false>();
        griddepcontrol_wait();
        if (threadIdx.x == T::kConsumers) load_filters<T>(memory, halos, grid, &filters);
        if (threadIdx.x / 32 == T::kConsumers / 32 + 1) load_halos<T>(memory, halos, grid, &pixels);
    }
#endif
}

// @HaloTiles deps: AllTaps, ConvolutionForm, Launch, LiftedPixels, PackedFilters, Windows, Workspace, halo_kernel, launch_clusters, launch_fma_product, make_halo_map, make_tensor_map, pack_operands_kernel, product_of_windows, takes_rows
// A convolution of float32, of stride 1, in tiles of kColumns filters and intervals of kWidth
// channels, and patches of kBlocks blocks, of whose halos those of a tile fit T::kMostRows.
template <int kColumns, int kWidth, Blocks kKind, int kBlocks>
struct HaloTiles : ConvolutionForm {
    using T = HaloSize<kColumns, kWidth, kKind == Blocks::kColumns && kBlocks == 2>;
    struct Call {
        int64_t intervals;
        half* packed;
        float* scales;
        uint32_t* marks;
        PackedFilters filters;
        int64_t bytes;

        Call(const Convolution& c, void* workspace)
            : intervals(interval_count(c.channels, kWidth)) {
            Workspace space{static_cast<char*>(workspace)};
            packed = space.take<half>(c.batches * c.pixels() * intervals * kWidth);
            scales = space.take<float>(c.batches);
            marks = space.take<uint32_t>(PixelsOf<kWidth>(c).spots.count());
            filters =
                PackedFilters::take<1, kWidth>(c.channels, c.filters * c.taps(), c.filters, space);
            bytes = space.used;
        }
    };

    static bool takes(const Convolution& c, const HaloShape& shape) {
        constexpr int64_t kMost = 1ll << 30;
        const int64_t patches = shape.tiles(c) * shape.patches_of_tile();
        const bool ones = c.stride[0] == 1 && c.stride[1] == 1 && c.stride[2] == 1;
        return ones && shape.can_be_copied() &&
               shape.rows * shape.patches_of_tile() <= T::kMostRows && c.taps() <= T::kMostTaps &&
               c.batches * c.pixels() < kMost && c.batches * c.places() < kMost && patches < kMost;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        return takes(c, HaloShape(c, kKind, kBlocks)) ? Call(c, nullptr).bytes : 0;
    }

    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        const HaloShape shape(c, kKind, kBlocks);
        if (!takes(c, shape))
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        const Call call(c, workspace);
        const LiftedPixels<kWidth> pixels(c, call.marks);
        const int64_t pitch = call.intervals * kWidth, depth = c.taps() * pitch;
        CUtensorMap halo_map, filter_map;
        int error = make_halo_map(&halo_map, call.packed, pitch, c, shape, kWidth);
        if (!error)
            error =
                make_tensor_map(&filter_map, {call.filters.packed, 1, 0, c.filters, depth, depth},
                                kColumns, kWidth);
        if (!error)
            error =
                Launch(c.filters + pixels.num_blocks(), 256, 0, stream)
                    .run(pack_operands_kernel<1, kWidth, AllTaps, LiftedPixels<kWidth>>, c,
                         AllTaps(), pixels, call.filters, int(c.filters), call.packed, call.scales);
        if (error) return error;
        const int columns = int((c.filters + kColumns - 1) / kColumns);
        const auto grid = TileGrid::of(int(shape.tiles(c)), columns, 1, 1, int(call.intervals));
        const Halos<kWidth> halos(c, shape, pixels, call.scales, call.filters.scale, T::kHaloBytes,
                                  T::kMostHalos);
        static OnEachDevice together;
        return launch_clusters<T>(together, grid.count(), halo_kernel<T, Epilogue>, stream, halos,
                                  halo_map, filter_map, grid, sink);
    }
};

}  // namespace op
