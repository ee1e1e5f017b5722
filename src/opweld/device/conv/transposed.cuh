// Transposed convolutions by their phases (phases.cuh): what tiles sum for them, and how their
// elements become those of the whole result.

namespace op {

// @PhasedWindows deps: Convolution, Phases, Product, Windows
// As Windows, of the products of all phases: zeros behind the k of a phase.
struct PhasedWindows {
    using T = float;
    const Phases* phases;

    __device__ __forceinline__ float one(int64_t at) const {
        const Convolution& c = phases->c;
        const int64_t row = at / phases->depth(), k = at - row * phases->depth();
        const int64_t phase = row / phases->rows();
        const PhaseTaps::Of& own = phases->taps.of[phase];
        const int64_t taps = own.taps();
        if (k >= c.channels * taps) return 0.0f;
        Corner<int64_t> corner(c, row - phase * phases->rows());
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) corner.at[axis] += own.shift[axis];
        return value_in_window(c, own.kernel, corner, k / taps, int(k % taps));
    }
    static Product product(const Phases& all, const float* arranged) {
        const int64_t k = all.depth(), rows = all.rows();
        return {{nullptr, rows * k, k, 1},
                {arranged, all.c.filters * k, k, 1},
                all.count(),
                rows,
                all.c.filters,
                k};
    }
};

// @TapsOfPhase deps: AllTaps, PhasedWeight, WindowLoader
// As AllTaps, of the taps of phases, which are the batches or, kColumns of each filter, columns.
template <int kColumns>
struct TapsOfPhase : AllTaps {
    static constexpr int kOfFilter = kColumns;
    PhaseTaps taps;
    PhasedWeight weight;

    TapsOfPhase(const PhaseTaps& taps, const PhasedWeight& weight) : taps(taps), weight(weight) {}
    __device__ __forceinline__ const TapCounts& kernel(const Convolution&, int phase) const {
        return taps.of[phase].kernel;
    }
    __device__ __forceinline__ int shift(int phase, int axis) const {
        return taps.of[phase].shift[axis];
    }
    __device__ __forceinline__ const float* filter(const Convolution& c, int64_t number) const {
        return weight.from + number % c.filters / kColumns * weight.filter;
    }
    __device__ __forceinline__ int64_t filter_stride(const Convolution&) const {
        return weight.filter;
    }
    __device__ __forceinline__ int64_t place_in_filter(const Convolution&, int phase, int column,
                                                       int channel, int tap) const {
        return weight.place<kColumns>(taps.of[phase], phase, column % kColumns, channel, tap);
    }
};
template <int kSpace, int kColumns, int kWidth>
OPWELD_FN TileAt tile_at(const WindowLoader<kSpace, TapsOfPhase<kColumns>, kWidth>& loader,
                         const TileGrid& grid, int index) {
    TileAt tile(grid, index);
    const int intervals = loader.taps_of.taps.of[tile.batch].taps() * loader.of_channels;
    tile.first = 0, tile.last = intervals;
    if (grid.splits == 1) return tile;
    tile.first = int(int64_t(intervals) * tile.split / grid.splits);
    tile.last = int(int64_t(intervals) * (tile.split + 1) / grid.splits);
    return tile;
}

// @PhaseEpilogue deps: Divisor, Phases
// Hands the elements of phases, rows (phase, image, q), to an epilogue of the whole result where
// they are in it; some phases have fewer output pixels than others. Of kColumns columns of each
// filter one is the output pixel behind the other.
template <typename Epilogue, int kColumns>
struct PhaseEpilogue {
    static constexpr int kLanes = Epilogue::kLanes;
    static constexpr bool kTakesRows = true, kMayBeAcross = Epilogue::kMayBeAcross;
    Epilogue whole;
    bool across;  // as of the whole
    Divisor columns, rows, out[3], num[3];
    int stride[3], size[3], begin[3], sign[3];

    PhaseEpilogue(const Epilogue& whole, const Phases& all)
        : whole(whole), across(whole.across), columns(all.c.filters), rows(all.rows()) {
        for (int i = 0; i < 3; ++i) {
            out[i] = all.c.out[i], num[i] = all.num[i], stride[i] = all.stride[i];
            size[i] = all.size[i], begin[i] = all.begin[i], sign[i] = all.sign[i];
        }
    }
    template <int n, typename Index>
    __device__ __forceinline__ void operator()(Index at, const float (&values)[n]) const {
        const Index row = columns.quotient(at);
        give<true>(row_at(row), at - row * Index(columns.by), values);
    }
    // The row of the whole, and how many of it and of those behind it are there.
    template <typename Index>
    struct Row {
        decltype(PhaseEpilogue::whole.row_at(Index())) of_whole;
        int count;
    };
    template <typename Index>
    __device__ __forceinline__ Row<Index> row_at(Index row) const {
        Index phase = rows.quotient(row), place = row - phase * Index(rows.by), to = 0, step = 1;
        int count = kColumns;
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const Index next = out[axis].quotient(place), next_phase = num[axis].quotient(phase);
            const int i = int(phase - next_phase * Index(num[axis].by));
            const int q = int(place - next * Index(out[axis].by));
            const int o = q * stride[axis] + begin[axis] + i * sign[axis];
            if (kColumns > 1 && axis == 2) count = min(stride[axis], size[axis] - o);
            else if (o >= size[axis]) count = 0;
            to += Index(o) * step, step *= Index(size[axis]);
            place = next, phase = next_phase;
        }
        return {whole.row_at(place * step + to), count};
    }
    template <bool packed, int n, typename Index>
    __device__ __forceinline__ void give(const Row<Index>& row, Index column,
                                         const float (&values)[n]) const {
        if constexpr (kColumns == 1) {
            if (row.count) whole.template give<packed>(row.of_whole, column, values);
        } else {
            constexpr int kEach = n < kColumns ? 1 : n / kColumns;  // filters
            const auto one_row = whole.row_at(Index(1));
            const int first = int(column) % kColumns;
            auto to = row.of_whole;
            for (int i = 0; i < first; ++i) to.add(one_row);
#pragma unroll
            for (int i = 0; i < n / kEach; ++i) {
                float own[kEach];
#pragma unroll
                for (int j = 0; j < kEach; ++j) own[j] = values[j * kColumns + i];
                if (first + i < row.count) {
                    whole.template give<packed>(to, column / kColumns, own);
                }
                to.add(one_row);
            }
        }
    }
};

// @PhaseTiles deps: PackedFilters, PixelsOf, TapsOfPhase, WindowTiles, parts_of_windows
// The phases of a call by the kernels of WindowTiles, kColumns of each filter as columns.
template <typename Form, int kColumns>
struct PhaseTiles {
    static constexpr int kParts = Form::Mode::kParts;
    typename Form::Pixels pixels;
    PackedFilters filters;
    int splits;
    float* parts;

    PhaseTiles(const Phases& all, Workspace& space) {
        const Convolution& c = all.c;
        const int64_t num_filters = c.filters * all.count(), rows = all.rows() * all.count();
        int64_t taps = 0;
        for (int n = 0; n < all.count(); ++n) taps += all.taps.of[n].taps();
        pixels = Form::Pixels::take(c, space);
        filters = PackedFilters::take<kParts, Form::kWidth>(c.channels, num_filters * c.taps(),
                                                            num_filters, space);
        splits = parts_of_windows<typename Form::T>(rows, c.filters,
                                                    taps * pixels.of_channels / all.count());
        parts = space.take<float>(splits > 1 ? splits * rows * c.filters : 0);
    }
    static bool takes(const Phases& all) {
        const Convolution& c = all.c;
        Convolution last = c;  // its offsets are as large as those of any phase
        bool any = c.taps() > 0 && Form::takes(c);
        for (int axis = 0; axis < 3 && any; ++axis) {
            for (int n = 0; n < all.count(); ++n) {
                const auto& own = all.taps.of[n];
                const int farthest = own.shift[axis] + (own.kernel[axis] - 1) * c.dilation[axis];
                last.kernel[axis] = std::max(last.kernel[axis], farthest + 1);
            }
            last.dilation[axis] = 1;
        }
        return any && Form::has_offsets_of(last);
    }
    template <typename Epilogue>
    int launch(const Phases& all, const PhasedWeight& weight, const EpilogueStore<Epilogue>& sink,
               cudaStream_t stream) const {
        const Convolution& c = all.c;
        const TapsOfPhase<kColumns> taps_of(all.taps, weight);
        const int error = Form::pack(c, taps_of, PixelsOf<Form::kWidth>(c), pixels, filters,
                                     c.filters * all.count(), stream);
        if (error) return error;
        return in_parts(sink, splits, parts, nullptr, stream, [&](const auto& to) {
            return Form::launch_all(c, taps_of, all.count(), pixels, filters, splits, to, stream);
        });
    }
};

// @PhaseChains deps: PhasedWindows, arrange_phases_kernel, launch_fma_product
// The phases that no tiles take by the float32 kernel.
struct PhaseChains {
    Phases* table;  // in the device's memory, as what is arranged
    float* arranged;

    PhaseChains(const Phases& all, Workspace& space)
        : table(space.take<Phases>(1)),
          arranged(space.take<float>(all.c.filters * all.count() * all.depth())) {}
    template <typename Epilogue>
    int launch(const Phases& all, const PhasedWeight& weight, const EpilogueStore<Epilogue>& sink,
               cudaStream_t stream) const {
        const int error = Launch(all.c.filters * all.count(), 256, 0, stream)
                              .run(arrange_phases_kernel, all, weight, table, arranged);
        if (error) return error;
        return launch_fma_product<float>(PhasedWindows::product(all, arranged),
                                         PhasedWindows{table}, sink, nullptr, stream);
    }
};

// @with_phases deps: PhaseChains, PhaseTiles, TransposedWindows
// What `run` makes of a call, what makes it and its columns of a filter; their memory is taken from
// the workspace. Zeros of weights do not pass over an Inf of a pixel that another column sees: the
// float32 kernel has no such columns.
template <typename F, typename Form, typename Run>
static auto with_phases(const TensorView& x, const TensorView& weight, const TensorView& result,
                        Workspace& space, const Run& run) {
    constexpr int kColumns = std::decay_t<decltype(F::kWindows)>::kPhaseColumns;
    using Tiles = PhaseTiles<Form, kColumns>;
    const Workspace empty = space;
    const auto joined = F::kWindows.template of<kColumns>(x, weight, result, space);
    if (joined.fits && Tiles::takes(joined.phases)) {
        return run(joined, Tiles(joined.phases, space), std::integral_constant<int, kColumns>());
    }
    space = empty;
    const auto call = F::kWindows.template of<1>(x, weight, result, space);
    return run(call, PhaseChains(call.phases, space), std::integral_constant<int, 1>());
}

// @convolve_transposed deps: ElementEpilogue, EpilogueStore, PhaseEpilogue, type_of_float, with_phases
// All transposed convolutions of tensors: as convolve, of F::kWindows that are TransposedWindows.
template <typename F, typename Form>
static int64_t transposed_bytes(const TensorView& x, const TensorView& weight,
                                const TensorView& result) {
    Workspace space{};
    with_phases<F, Form>(x, weight, result, space,
                         [](const auto&, const auto&, auto) { return 0; });
    return space.used;
}
// `own` are F's operands and results. Returns a cudaError_t, or which of them does not fit.
template <typename F, typename Form>
static int convolve_transposed(const TensorView& x, const TensorView& weight,
                               std::initializer_list<TensorView> own, void* workspace,
                               void* stream_of_call) {
    const auto stream = static_cast<cudaStream_t>(stream_of_call);
    if (x.type != type_of<float> || weight.type != type_of<float>) return -1;
    if (weight.sizes[0] != x.sizes[F::kWindows.axes[F::kRank - 1]]) return -2;
    using Whole = ElementEpilogue<F, typename F::Operands>;
    Whole whole;
    const auto known = whole.laid_out_along(own.begin());
    if (known.misfit != 0 || known.num == 0) return known.misfit;
    Workspace space{static_cast<char*>(workspace)};
    const auto run = [&](const auto& call, const auto& by, auto columns) {
        using Epilogue = PhaseEpilogue<Whole, decltype(columns)::value>;
        if (!call.fits) return int(cudaErrorInvalidValue);
        const int64_t extent = call.phases.count() * call.phases.rows() * call.phases.c.filters;
        const auto sink = EpilogueStore<Epilogue>::of(Epilogue(whole, call.phases),
                                                      !known.far && extent < 1ll << 31,
                                                      whole.takes_packets(), extent);
        const int error = call.x.fill(x, stream);
        return error ? error : by.launch(call.phases, call.weight, sink, stream);
    };
    return with_phases<F, Form>(x, weight, own.end()[-1], space, run);
}

}  // namespace op
