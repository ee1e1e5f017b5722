// The matrix product on Hopper's tensor cores: a persistent, warp-specialised kernel over packed
// operands. One warpgroup loads tiles into a ring of shared memory (contract_sm90_load.cuh), two
// sum them (contract_sm90_sum.cuh) and give the sums to the epilogue (contract_sm90_give.cuh).

namespace op {

// @contract_sm90_kernel deps: TileSums, tile_at, make_stages, own_thread, sync_cluster, give_sums, setmaxnreg, dependents
template <typename T, typename Loader, typename Epilogue>
OPWELD_FN void multiply_tiles(typename T::Memory& memory, const Loader& loader,
                              const TileGrid& grid, const TileScales& scales,
                              const EpilogueStore<Epilogue>& sink, int64_t m, int64_t n) {
    using Making = TileSums<typename T::Mode>;
    const int group = threadIdx.x / 128 - 1;
    const typename T::Blocks blocks;
    const auto staging = [&]() -> auto& { return memory.staging.warp[own_thread() / 32 - 4]; };
    const auto first_row = [&](const TileAt& tile) {
        return (tile.row * T::kBlocks + blocks.rank) * T::kTileM + (own_thread() / 32 - 4) * 16;
    };
    Ring<T::kStages> ring;
    for (int index = cluster_index(); index < grid.count(); index += num_clusters()) {
        const TileAt tile = tile_at(loader, grid, index);
        const int64_t column = int64_t(tile.column) * T::kTileN;
        Sums<T::kTileN, Making::template kPiece<T>> sums;
        sums.clear();
        Making::template sum<T>(sums, memory, ring, grid, tile, group, loader, scales, column, m, n,
                                staging, first_row);
        // With several parts of k, part `split` is a result of its own.
        const int64_t result = int64_t(tile.split) * grid.batches + tile.batch;
        const RowsAt to{result * m, first_row(tile), int(m), int(n)};
        give_sums<T::Mode::kScaled>(sums, sink, staging(), to, int(column));
    }
}

template <typename T, typename Loader, typename Epilogue>
static __global__ void __launch_bounds__(T::kThreads, T::kResident)
    contract_sm90_kernel(const __grid_constant__ Loader loader, const TileGrid grid,
                         const TileScales scales, const EpilogueStore<Epilogue> sink,
                         const int64_t m, const int64_t n) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = make_stages<T>();
    griddepcontrol_wait();
    const bool fits = !scales.call || scales.call->needs_fallback == 0;
    if (!fits && threadIdx.x == 0) scales.call->again = 1;
    if (threadIdx.x < 128) {
        setmaxnreg<T::kLoaderRegisters, false>();
        if (threadIdx.x == 0 && fits) loader.template fill<T>(memory, grid, scales);
    } else {
        setmaxnreg<T::kSumRegisters, true>();
        if (fits) multiply_tiles<T>(memory, loader, grid, scales, sink, m, n);
    }
    // A block must not end while another may still copy into its memory or arrive at its barriers.
    if constexpr (T::kBlocks > 1) sync_cluster();
#endif
}

// @TilePlan deps: Product, num_multiprocessors
// Which tiles, and in how many parts k is summed. Times are microseconds at a clock of 1.6 GHz.
struct TilePlan {
    static constexpr int64_t kShortestWide = 256;  // where few sums are promoted their errors show
    // Of few rows or columns cuBLAS adds up short sums: a part has so many intervals at most, then.
    static constexpr int64_t kFewRows = 16, kMostIntervals = 32;
    bool wide;  // tiles of 128 x 256 in pairs, else single ones of 128 x 128
    int splits;
    double time;

    // `interval_us`: of a wide tile; `sms`: multiprocessors
    static double of(const Product& p, int64_t intervals, double interval_us, int sms, bool wide,
                     int splits) {
        const int64_t side = wide ? 256 : 128, slots = wide ? sms / 2 : sms;
        const int64_t tiles = p.batches * ((p.m + side - 1) / side) * ((p.n + side - 1) / side);
        const int64_t turns = (tiles * splits + slots - 1) / slots;
        const double of_tile = wide ? 1.0 : 0.53, ends_us = wide ? 4.0 : 2.2;
        double time = turns * ((intervals + splits - 1) / splits * interval_us * of_tile + ends_us);
        // parts are written, read and combined: 4 bytes each way at about 3 TB/s
        if (splits > 1) time += 4.0 + splits * double(p.batches * p.m * p.n) * 8.0 / 3e6;
        return time;
    }
    // `exact`: as float32, so that sums of few rows or columns are short.
    static TilePlan choose(const Product& p, int64_t intervals, double interval_us,
                           bool exact = true) {
        const int sms = num_multiprocessors();
        const int64_t parts =
            std::min<int64_t>((intervals + kMostIntervals - 1) / kMostIntervals, sms);
        const bool few = exact && std::min(p.m, p.n) <= kFewRows;
        const int least = few ? int(std::max<int64_t>(parts, 1)) : 1;
        TilePlan best{false, least, of(p, intervals, interval_us, sms, false, least)};
        for (int wide = 0; wide < (p.k < kShortestWide || sms < 2 ? 1 : 2); ++wide) {
            for (int splits = least; splits <= sms && splits * 4 <= intervals + 3; ++splits) {
                const double time = of(p, intervals, interval_us, sms, wide != 0, splits);
                if (time < best.time * 0.99) best = {wide != 0, splits, time};
            }
        }
        return best;
    }
};

// @launch_clusters deps: Launch, OnEachDevice, num_multiprocessors
// A persistent kernel of T::kResident blocks a multiprocessor: as many clusters as run together,
// for those that wait for others to end would double the time. `together` is the kernel's own.
template <typename T, typename Kernel, typename... Arguments>
static int launch_clusters(OnEachDevice& together, int tiles, Kernel kernel, cudaStream_t stream,
                           const Arguments&... arguments) {
    constexpr int kBlocks = T::kBlocks;
    const int most = together.get([&] {
        const int all_blocks = num_multiprocessors() * T::kResident / kBlocks * kBlocks;
        Launch all(all_blocks, T::kThreads, T::kBytes, stream);
        int clusters = 0;
        all.in_clusters(kBlocks);
        if (!all.allow(kernel)) cudaOccupancyMaxActiveClusters(&clusters, kernel, &all.config);
        return clusters;
    });
    if (most == 0) return cudaErrorInvalidConfiguration;
    Launch launch((tiles < most ? tiles : most) * kBlocks, T::kThreads, T::kBytes, stream);
    launch.in_clusters(kBlocks);
    launch.start_early();
    return launch.run_allowed(kernel, arguments...);
}

// @launch_tiles deps: contract_sm90_kernel, launch_clusters
template <typename T, typename Loader, typename Epilogue>
static int launch_tiles(const TileGrid& grid, const Loader& loader, const TileScales& scales,
                        const EpilogueStore<Epilogue>& sink, int64_t m, int64_t n,
                        cudaStream_t stream) {
    static OnEachDevice together;
    return launch_clusters<T>(together, grid.count(), contract_sm90_kernel<T, Loader, Epilogue>,
                              stream, loader, grid, scales, sink, m, n);
}

// @TilesSm90 deps: PackedLoader, TilePlan, launch_tiles
struct TilesSm90 {
    using Plan = TilePlan;
    template <typename Mode>
    static constexpr double kIntervalUs = !Mode::kScaled      ? 0.42
                                          : Mode::kParts == 2 ? 1.9
                                                              : 0.65;

    static int64_t scale_rows(int64_t m) { return (m + 255) / 256 * 256; }  // of whole tiles
    template <typename Mode>
    static Plan plan(const Product& p, int64_t intervals) {
        return Plan::choose(p, intervals, kIntervalUs<Mode>, Mode::kParts == 2);
    }
    template <typename Mode, typename Epilogue>
    static int launch(const PackedOperands& from, const Product& p, const Plan& plan,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        // Where cuBLAS has few tiles it sums k in parts, which is more exact: so does the small
        // tile.
        using Wide = Tiles<Mode, 256, 2, 4, 64>;
        using Single = Tiles<Mode, 128, 1, 6, Mode::kParts == 2 ? 32 : 64>;
        const auto launch = plan.wide ? launch_of<Wide, Epilogue> : launch_of<Single, Epilogue>;
        return launch(from, p, plan.splits, sink, stream);
    }
    template <typename T, typename Epilogue>
    static int launch_of(const PackedOperands& from, const Product& p, int splits,
                         const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        constexpr int kBlocks = T::kBlocks;
        constexpr int64_t kHeight = T::kTileM * kBlocks, kWidth = T::kTileN;
        PackedLoader loader;
        const int error = loader.open<T>(from);
        if (error) return error;
        const auto grid =
            TileGrid::of(int((p.m + kHeight - 1) / kHeight), int((p.n + kWidth - 1) / kWidth),
                         splits, int(p.batches), int(from.intervals));
        const TileScales scales{from.a_scale,       from.b_scale,       from.scale_rows,
                                from.a.batches > 1, from.b.batches > 1, from.call};
        return launch_tiles<T>(grid, loader, scales, sink, p.m, p.n, stream);
    }
};

}  // namespace op
