// Convolutions by halos in shared memory (halo.cuh): how they are multiplied and given, and the
// form that launches them. Filters are packed before, as those of windows (window_tiles.cuh).

namespace op {

// @load_filters deps: HaloSize, Halos, Ring, TileGrid, cluster, copy_tile, prefetch_map
// All taps of all intervals of a block's tiles, in order, by one thread.
template <typename T>
OPWELD_FN void load_filters(typename T::Memory& memory, const Halos& halos, const TileGrid& grid,
                            const CUtensorMap* filters) {
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

// @HaloScales deps:
// What is known of the values of a tile, which have been multiplied by 2^up at last, and by
// 2^least_up in the interval of the largest.
struct HaloScales {
    int up, marks, least_up;
};

// @sum_halos deps: HaloScales, HaloSize, Halos, Ring, Sums, Type, tile_descriptor, wgmma_order
// A warpgroup's sums of a tile, of two blocks of 64 pixels.
template <typename T, int kPiece>
OPWELD_FN HaloScales sum_halos(Sums<T::kTileN, kPiece> (&sums)[2], typename T::Memory& memory,
                               const Halos& halos, const TileAt& tile, Ring<T::kStages>& ring,
                               Ring<2>& buffer) {
    const HaloShape& shape = halos.shape;
    const bool is_line = shape.group[2] > 0;
    const int of_line = shape.box[2], of_group = is_line ? 8 : of_line;
    const int of_block =
        (shape.block[0] * shape.box[1] + shape.block[1]) * of_line + shape.block[2];
    const int taps = int(halos.c.taps()), first = int(threadIdx.x) / 128 * 2;
    HaloScales known{0, 0, 127};
    sums[0].clear(), sums[1].clear();
#pragma unroll 1
    for (int interval = tile.first; interval < tile.last; ++interval) {
        memory.ready[buffer.stage].wait(buffer.parity);
        const auto packed = memory.packed[buffer.stage];
        if (interval > tile.first && packed.up != known.up) {
            const float by = power_of_two(packed.up - known.up);
            wgmma_wait<0>();  // said again: else products are taken to be under way here
            pin(sums[0].value[0]), pin(sums[1].value[0]);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < kPiece / 2; ++j) sums[i].value[0][j] *= by;
        }
        known = {packed.up, known.marks | packed.marks, min(known.least_up, packed.up)};
        const uint64_t a =
            tile_descriptor<T::kRowBytes>(memory.halo[buffer.stage], of_group * T::kRowBytes);
        const auto moved = [](uint64_t descriptor, int units) {  // its upper word stays
            return (descriptor & ~uint64_t(0xFFFFFFFF)) | (uint32_t(descriptor) + uint32_t(units));
        };
        int row[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int patch = (first + i) / shape.blocks, block = first + i - patch * shape.blocks;
            row[i] = patch * shape.rows + block * of_block;
        }
        int before = 0;
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) {
            const int of_tap = memory.tap_row[tap];
            memory.full[ring.stage].wait(ring.parity);
            const uint64_t b = tile_descriptor<T::kRowBytes>(memory.stage[ring.stage].b);
            pin(sums[0].value[0]), pin(sums[1].value[0]);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < T::kWidth / 16; ++step) {
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    wgmma(Type<half>(), sums[i].value[0],
                          moved(a, (row[i] + of_tap) * (T::kRowBytes / 16) + 2 * step),
                          moved(b, 2 * step), 1);
            }
            wgmma_commit();
            wgmma_wait<1>();
            pin(sums[0].value[0]), pin(sums[1].value[0]);
            if (tap > 0 && threadIdx.x % 128 == 0) memory.empty[before].arrive();
            before = ring.stage;
            ring.advance();
        }
        wgmma_wait<0>();
        pin(sums[0].value[0]), pin(sums[1].value[0]);
        if (threadIdx.x % 128 == 0) {
            memory.empty[before].arrive();
            memory.taken[buffer.stage].arrive();
        }
        buffer.advance();
    }
    return known;
}

// @halo_runs deps: Halos, RowRuns, own_thread
// Where the 16 rows of a warp go that are of this block of a tile.
OPWELD_FN RowRuns halo_runs(const Halos& halos, const TileAt& tile, int block) {
    RowRuns to{{}, {}, int(halos.c.filters)};
#pragma unroll
    for (int run = 0; run < 2; ++run)
        to.count[run] = halos.run_of(tile, block, own_thread() / 32 % 4 * 2 + run, &to.first[run]);
    return to;
}

// @sum_in_float32 deps: laid_out_rows, own_thread, value_in_window
// 64 columns of a warp's 16 rows in float32, from the operands in memory: where halves do not do.
template <int kPitch>
OPWELD_FN void sum_in_float32(float (&rows)[16][kPitch], const Convolution& c, const RowRuns& to,
                              int column) {
    constexpr int kEach = 4;
    const int lane = own_thread() % 32, row = lane % 16;
    const int64_t taps = c.taps(), step = c.channels * taps;
    if (!has_row(to, row)) return;
    const Corner<int64_t> corner(c, row_of<int64_t>(to, row));
#pragma unroll 1
    for (int first = lane / 16 * kEach; first < 64; first += 2 * kEach) {
        float total[kEach] = {};
#pragma unroll 1
        for (int tap = 0; tap < taps; ++tap) {
            float some[kEach] = {};  // long sums lose less in levels
#pragma unroll 1
            for (int64_t channel = 0; channel < c.channels; ++channel) {
                const float value = value_in_window(c, c.kernel, corner, channel, tap);
                const float* const weight = static_cast<const float*>(c.weight) +
                                            (column + first) * step + channel * taps + tap;
#pragma unroll
                for (int i = 0; i < kEach; ++i) {
                    if (column + first + i < to.n) some[i] = fmaf(value, weight[i * step], some[i]);
                }
            }
#pragma unroll
            for (int i = 0; i < kEach; ++i) total[i] += some[i];
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) rows[row][first + i] = total[i];
    }
}

// @give_halos deps: Drowned, HaloScales, Sums, give_laid_out, give_run, halo_runs, pack_values, sum_in_float32, sync_threads
// The scales of a thread's columns of 64, in the order of its sums.
OPWELD_FN uint32_t load_scales(float (&scale)[16], const float* scales, int column, int n) {
    uint32_t marks = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int at = column + i / 2 * 8 + own_thread() % 4 * 2 + i % 2;
        scale[i] = at < n ? __ldg(scales + at) : 0.0f;
        marks |= __float_as_uint(scale[i]) & kScaleMarks;
    }
    return marks;
}
// Lays out 64 columns of a warp's sums, from register kFirst on, times `scale`.
template <int kFirst, int kCount, int kPitch>
OPWELD_FN void lay_out_scaled(const float (&sums)[kCount], float (&rows)[16][kPitch],
                              const float (&scale)[16]) {
    const int lane = own_thread() % 32;
    __syncwarp();  // what was there has been read
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const float* const by = scale + i / 4 * 2;
        *reinterpret_cast<float2*>(&rows[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2]) =
            make_float2(sums[kFirst + i] * by[0], sums[kFirst + i + 1] * by[1]);
    }
    __syncwarp();
}
// Where halos or filters are marked: whether 64 laid out columns of sums are so small that digits
// are missing, of values that were multiplied by 1 / `largest` at least.
template <int kPitch>
OPWELD_FN bool are_cancelled(const float (&rows)[16][kPitch], const float* scales, float largest,
                             int column, int n) {
    Drowned<1> cancelled;
    const int lane = own_thread() % 32;
    for (int i = 0; i < 2; ++i) {
        const int at = column + lane * 2 + i;
        const float most = at < n ? unmarked(__ldg(scales + at)) * largest : 0.0f;
        for (int row = 0; row < 16; ++row) cancelled.add(rows[row][lane * 2 + i], most);
    }
    return cancelled.are_many();
}

// Lays out 64 columns of a warpgroup's sums, all of its four warps together, times `scale`.
template <int kFirst, int kCount, int kPitch>
OPWELD_FN void lay_out_columns(const float (&sums)[kCount], float (&columns)[64][kPitch],
                               const float (&scale)[16]) {
    const int lane = own_thread() % 32, row = own_thread() / 32 % 4 * 16 + lane / 4;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
        columns[i / 4 * 8 + lane % 4 * 2 + i % 2][row + i / 2 % 2 * 8] =
            sums[kFirst + i] * scale[i / 4 * 2 + i % 2];
    }
}
// 64 laid out columns to an epilogue that takes runs of rows: four of them of a column a thread, so
// that neighbours of a line are written together.
template <int kPitch, typename Epilogue>
OPWELD_FN void give_columns(const float (&columns)[64][kPitch], const Halos& halos,
                            const TileAt& tile, int block, int column, const Epilogue& epilogue) {
    constexpr int kEach = 4, kThreads = 64 / kEach;  // of a column
    const int thread = own_thread() % 128, quad = thread % kThreads;
    const int left = int(halos.c.filters) - column;
    int64_t first;
    const int count = halos.run_of(tile, block, quad / 2, &first) - quad % 2 * kEach;
    if (count <= 0) return;
    const auto row = uint32_t(first) + quad % 2 * kEach;
    if (count >= kEach && row % kEach == 0) {
        const auto starts = epilogue.row_at(row);
#pragma unroll 2
        for (int i = thread / kThreads; i < min(left, 64); i += 128 / kThreads)
            give_run(epilogue, starts, uint32_t(column + i),
                     load_vector<kEach>(&columns[i][quad * kEach]).lane);
        return;
    }
    for (int j = 0; j < min(count, kEach); ++j) {
        const auto starts = epilogue.row_at(row + j);
        for (int i = thread / kThreads; i < min(left, 64); i += 128 / kThreads) {
            const float value[1] = {columns[i][quad * kEach + j]};
            epilogue.template give<false>(starts, uint32_t(column + i), value);
        }
    }
}

// A warpgroup's sums to the epilogue, 64 columns of a block of pixels at a time.
template <typename T, int kPiece, typename Epilogue>
OPWELD_FN void give_halos(const Sums<T::kTileN, kPiece> (&sums)[2], typename T::Memory& memory,
                          const Halos& halos, const TileAt& tile, const float* scales,
                          const HaloScales& known, const EpilogueStore<Epilogue>& sink) {
    constexpr int kParts = T::kTileN / 64, kBehind = T::kTileN / 2 - 32;
    auto& space = memory.space[own_thread() / 128];
    const float back = power_of_two(-known.up);
#pragma unroll 1
    for (int part = 0; part < 2 * kParts; ++part) {
        const int half = part / 2, block = own_thread() / 128 * 2 + part % 2;
        const int column = tile.column * T::kTileN + half * 64;
        float scale[16];
        const uint32_t marks =
            load_scales(scale, scales, column, int(halos.c.filters)) | known.marks;
#pragma unroll
        for (int i = 0; i < 16; ++i) scale[i] = unmarked(scale[i]) * back;
        const auto lay = [&](const auto& lay_out) {
            if (part == 0) lay_out(std::integral_constant<int, 0>(), sums[0].value[0]);
            else if (part == 1) lay_out(std::integral_constant<int, 0>(), sums[1].value[0]);
            else if (part == 2) lay_out(std::integral_constant<int, kBehind>(), sums[0].value[0]);
            else lay_out(std::integral_constant<int, kBehind>(), sums[1].value[0]);
        };
        const bool is_marked = __any_sync(~0u, marks != 0);  // in all warps alike
        sync_threads<128>(2 + own_thread() / 128);           // what was there has been read
        if constexpr (takes_rows<Epilogue>) {
            if (halos.in_runs && !is_marked) {
                lay([&](auto from, const auto& values) {
                    lay_out_columns<decltype(from)::value>(values, space.columns, scale);
                });
                sync_threads<128>(2 + own_thread() / 128);
                give_columns(space.columns, halos, tile, block, column, sink.epilogue);
                continue;
            }
        }
        auto& rows = space.rows[own_thread() / 32 % 4];
        lay([&](auto from, const auto& values) {
            lay_out_scaled<decltype(from)::value>(values, rows, scale);
        });
        const RowRuns to = halo_runs(halos, tile, block);
        if (is_marked) {
            const bool fits = !__any_sync(~0u, (marks & kDoesNotFit) != 0);
            const float most = power_of_two(-known.least_up);
            if (are_cancelled(rows, scales, most, column, to.n) || !fits) {
                __syncwarp();
                sum_in_float32(rows, halos.c, to, column);
                __syncwarp();
            }
        }
        give_laid_out(rows, sink, to, column);
    }
}

// @halo_kernel deps: dependents, give_halos, load_filters, make_stages, pack_halos, setmaxnreg, sum_halos
// `scales`: of the filters.
template <typename T, typename Epilogue>
static __global__ void __launch_bounds__(T::kThreads, 1)
    halo_kernel(const __grid_constant__ Halos halos, const __grid_constant__ CUtensorMap filters,
                const float* const scales, const TileGrid grid,
                const EpilogueStore<Epilogue> sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = tile_memory<typename T::Memory>();
    const HaloShape& shape = halos.shape;
    for (int i = int(threadIdx.x); i < shape.rows; i += T::kThreads)
        memory.pixel[i] = shape.pixel_of(i);
    for (int i = int(threadIdx.x); i < halos.c.taps(); i += T::kThreads)
        memory.tap_row[i] = shape.row_of(halos.c, i);
    if (threadIdx.x < 2) {
        memory.ready[threadIdx.x].init(1);
        memory.taken[threadIdx.x].init(T::kReleases);
    }
    make_stages<T>();
    if (threadIdx.x < T::kSummers) {
        setmaxnreg<T::kSumRegisters, true>();
        griddepcontrol_wait();
        Ring<T::kStages> ring;
        Ring<2> buffer;
        for (int index = int(blockIdx.x); index < grid.count(); index += int(gridDim.x)) {
            const TileAt tile(grid, index);
            Sums<T::kTileN, T::kTileN> sums[2];
            const auto known = sum_halos<T>(sums, memory, halos, tile, ring, buffer);
            give_halos<T>(sums, memory, halos, tile, scales, known, sink);
        }
    } else if (threadIdx.x < T::kSummers + T::kPackers) {
        // Not of what the kernel before, which packs filters, writes.
        setmaxnreg<T::kPackRegisters, false>();
        pack_halos<T>(memory, halos, grid);
    } else {
        setmaxnreg<T::kLoadRegisters, false>();
        griddepcontrol_wait();
        if (threadIdx.x == T::kSummers + T::kPackers)
            load_filters<T>(memory, halos, grid, &filters);
    }
#endif
}

// @HaloTiles deps: AllTaps, ConvolutionForm, Launch, PackedFilters, Windows, Workspace, halo_kernel, launch_clusters, launch_fma_product, make_tensor_map, pack_filter, product_of_windows, takes_rows
template <int kWidth>
static __global__ void __launch_bounds__(256)
    pack_filters_kernel(const __grid_constant__ Convolution c, const PackedFilters filters) {
    start_dependents();
    pack_filter<1, kWidth>(c, AllTaps(), filters, blockIdx.x);
}
// A convolution of float32, of stride 1 and of a multiple of eight channels, in tiles of kColumns
// filters and intervals of kWidth channels, and patches of kBlocks blocks, of whose halos those of
// a tile fit T::kMostRows.
template <int kColumns, int kWidth, Blocks kKind, int kBlocks>
struct HaloTiles : ConvolutionForm {
    using T = HaloSize<kColumns, kWidth>;

    static PackedFilters take(const Convolution& c, Workspace& space) {
        return PackedFilters::take<1, kWidth>(c.channels, c.filters * c.taps(), c.filters, space);
    }
    static bool takes(const Convolution& c, const HaloShape& shape) {
        constexpr int64_t kMost = 1ll << 30;
        const int64_t patches = shape.tiles(c) * shape.patches_of_tile();
        bool ones = true, near = true;
        for (int i = 0; i < 3; ++i) ones &= c.stride[i] == 1, near &= shape.box[i] < 1024;
        return ones && near && shape.rows * shape.patches_of_tile() <= T::kMostRows &&
               c.taps() <= T::kMostTaps && c.channels % 8 == 0 && c.pixels() * c.pixel < kMost &&
               c.batches * c.places() < kMost && patches < kMost;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        Workspace space{};
        take(c, space);
        return space.used;
    }

    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        const HaloShape shape(c, kKind, kBlocks);
        if (!takes(c, shape))
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        Workspace space{static_cast<char*>(workspace)};
        const PackedFilters filters = take(c, space);
        const int64_t intervals = interval_count(c.channels, kWidth);
        const int64_t depth = c.taps() * intervals * kWidth;
        CUtensorMap map;
        int error = make_tensor_map(&map, {filters.packed, 1, 0, c.filters, depth, depth}, kColumns,
                                    kWidth);
        if (!error)
            error = Launch(c.filters, 256, 0, stream).run(pack_filters_kernel<kWidth>, c, filters);
        if (error) return error;
        const int columns = int((c.filters + kColumns - 1) / kColumns);
        const auto grid = TileGrid::of(int(shape.tiles(c)), columns, 1, 1, int(intervals));
        const Halos halos(c, shape, sink.narrow && takes_runs(sink.epilogue));
        static OnEachDevice together;
        return launch_clusters<T>(together, grid.count(), halo_kernel<T, Epilogue>, stream, halos,
                                  map, filters.scale, grid, sink);
    }
};

}  // namespace op
