// Transposed convolutions, as a convolution of stride 1 for each *phase* of the stride s: the
// output pixels s q + r of one r along each axis see the same taps, evenly spaced ones, of
// neighbouring pixels. So nothing is multiplied by zeros between pixels, and no two blocks add to
// one sum. The phases are products side by side: the tiles of all are made by one kernel.

namespace op {

// @Phases deps: Convolution
[[maybe_unused]] constexpr int kMostPhases = 32;

// By phase: its taps along each axis, and how far its windows begin behind those of `c`.
struct PhaseTaps {
    struct Of {
        int kernel[3], shift[3];

        __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    } of[kMostPhases];
};

// The output pixels of `c` are the q, as many as the largest phase has; its windows begin where the
// first ones of any phase do, and its taps are the most along each axis.
struct Phases {
    Convolution c;
    int num[3], stride[3], size[3];  // phases along each axis; its output pixels
    int begin[3], sign[3];           // phase i along an axis is that of r = begin + i sign
    PhaseTaps taps;

    __host__ __device__ int count() const { return num[0] * num[1] * num[2]; }
    __host__ __device__ int64_t rows() const { return c.batches * c.places(); }
    __host__ __device__ int64_t depth() const { return c.channels * c.taps(); }
};

// @AxisPhases deps: Phases
// The phases along one axis, where tap k brings pixel i to output pixel i s - p + k d: the taps of
// each are `step` apart, and the last of them sees the first pixel. Padding is below 0 where
// windows begin inside of the image.
struct AxisPhases {
    int num, step, kernel[kMostPhases], first[kMostPhases], padding[kMostPhases];

    AxisPhases(Phases& all, int axis, int taps, int s, int p, int d, int64_t pixels) {
        Convolution& c = all.c;
        int g = s, rest = d % s;
        while (rest) {
            const int next = g % rest;
            g = rest, rest = next;
        }
        step = s / g, num = int(s < pixels ? s : pixels);
        c.stride[axis] = 1, c.dilation[axis] = d / g, c.kernel[axis] = c.padding[axis] = 0;
        c.out[axis] = int((pixels + s - 1) / s);
        all.num[axis] = num, all.stride[axis] = s, all.size[axis] = int(pixels);
        for (int r = 0; r < num && num <= kMostPhases; ++r) {
            int tap = 0;
            while (tap < step && (r + p - tap * d) % s != 0) ++tap;
            const int count = tap < step && tap < taps ? (taps - tap + step - 1) / step : 0;
            const int before = ((tap + (count - 1) * step) * d - r - p) / s;
            kernel[r] = count, first[r] = tap, padding[r] = before;
            if (count == 0) continue;
            c.padding[axis] = c.kernel[axis] && c.padding[axis] > before ? c.padding[axis] : before;
            c.kernel[axis] = c.kernel[axis] > count ? c.kernel[axis] : count;
        }
        // Those with the most taps come first: their tiles take longest.
        const bool rises = num <= kMostPhases && num > 0 && kernel[num - 1] > kernel[0];
        all.begin[axis] = rises ? num - 1 : 0, all.sign[axis] = rises ? -1 : 1;
    }
};

// @PhasedWeight deps: Phases
// A weight [channels][filters][taps] of any strides, and which of its taps those of phases are.
struct PhasedWeight {
    const float* from;
    int64_t channels, filters, channel, filter, tap[3];  // the last ones are strides
    int step[3], first[kMostPhases][3];

    // Where the weight of a channel at tap number `tap` of a phase is, from its filter on.
    __device__ __forceinline__ int64_t place(const PhaseTaps::Of& own, int phase,
                                             int64_t of_channel, int number) const {
        int64_t at = of_channel * channel;
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const int next = number / own.kernel[axis], i = number - next * own.kernel[axis];
            at += (first[phase][axis] + (own.kernel[axis] - 1 - i) * step[axis]) * tap[axis];
            number = next;
        }
        return at;
    }
};

// @arrange_phases_kernel deps: PhasedWeight
// A block arranges a filter of a phase in `arranged` [phase][filter][k], k = (channel, tap) and
// zeros behind: for the float32 kernel.
static __global__ void __launch_bounds__(256)
    arrange_phases_kernel(const __grid_constant__ Phases phases,
                          const __grid_constant__ PhasedWeight weight, Phases* table,
                          float* arranged) {
    const int phase = int(blockIdx.x / weight.filters);
    const int64_t filter = blockIdx.x - phase * weight.filters;
    const PhaseTaps::Of& own = phases.taps.of[phase];
    const int depth = int(phases.depth()), taps = own.taps();
    const float* const from = weight.from + filter * weight.filter;
    for (int i = threadIdx.x; i < depth; i += 256) {
        const int channel = taps ? i / taps : depth;
        const bool exists = channel < weight.channels;
        arranged[int64_t(blockIdx.x) * depth + i] =
            exists ? from[weight.place(own, phase, channel, i - channel * taps)] : 0.0f;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *table = phases;
}

// @TransposedWindows deps: AxisPhases, InputView, PhasedWeight, TensorView, Workspace
// The operands of a transposed convolution as tensors: as Windowed, but for the weight, which is
// [channels][filters][taps].
template <int kSpace>
struct TransposedWindows {
    int axes[kSpace + 2], stride[kSpace], padding[kSpace], dilation[kSpace];

    struct Call {
        Phases phases;
        InputView x;
        PhasedWeight weight;
        bool fits;  // there are not too many phases
    };
    // Its copies are taken from `space`.
    Call of(const TensorView& x, const TensorView& weight, const TensorView& result,
            Workspace& space) const {
        Call call{};
        Phases& all = call.phases;
        call.x = InputView::of<kSpace>(all.c, x, axes, false, space);
        call.weight.from = static_cast<const float*>(weight.data);
        call.weight.channels = weight.sizes[0], call.weight.channel = weight.strides[0];
        all.c.filters = call.weight.filters = weight.sizes[1];
        call.weight.filter = weight.strides[1];
        const auto along = [&](int axis) {
            const int own = axis - 3 + kSpace;  // of the axes of space
            if (own < 0) return AxisPhases(all, axis, 1, 1, 0, 1, 1);
            call.weight.tap[axis] = weight.strides[own + 2];
            return AxisPhases(all, axis, int(weight.sizes[own + 2]), stride[own], padding[own],
                              dilation[own], result.sizes[own + 1]);
        };
        const AxisPhases each[3] = {along(0), along(1), along(2)};
        call.fits = int64_t(each[0].num) * each[1].num <= kMostPhases &&
                    int64_t(each[0].num) * each[1].num * each[2].num <= kMostPhases;
        if (!call.fits) return call;
        for (int n = 0; n < all.count(); ++n) {
            for (int axis = 2, rest = n; axis >= 0; rest /= all.num[axis--]) {
                const AxisPhases& own = each[axis];
                const int r = all.begin[axis] + rest % own.num * all.sign[axis];
                all.taps.of[n].kernel[axis] = own.kernel[r];
                all.taps.of[n].shift[axis] =
                    own.kernel[r] ? all.c.padding[axis] - own.padding[r] : 0;
                call.weight.first[n][axis] = own.first[r], call.weight.step[axis] = own.step;
            }
            if (all.taps.of[n].taps() == 0) all.taps.of[n] = {{0, 1, 1}, {}};
        }
        return call;
    }
};

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
// As AllTaps, of the taps of phases, which are the batches.
struct TapsOfPhase : AllTaps {
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
        return weight.from + number % c.filters * weight.filter;
    }
    __device__ __forceinline__ int64_t filter_stride(const Convolution&) const {
        return weight.filter;
    }
    __device__ __forceinline__ int64_t place_in_filter(const Convolution&, int phase, int channel,
                                                       int tap) const {
        return weight.place(taps.of[phase], phase, channel, tap);
    }
};
template <int kSpace, int kWidth>
OPWELD_FN TileAt tile_at(const WindowLoader<kSpace, TapsOfPhase, kWidth>& loader,
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
// they are in it; some phases have fewer output pixels than others.
template <typename Epilogue>
struct PhaseEpilogue {
    static constexpr int kLanes = Epilogue::kLanes;
    static constexpr bool kTakesRows = true;
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
    // The row of the whole, and whether it is there.
    template <typename Index>
    struct Row {
        decltype(PhaseEpilogue::whole.row_at(Index())) of_whole;
        bool inside;
    };
    template <typename Index>
    __device__ __forceinline__ Row<Index> row_at(Index row) const {
        Index phase = rows.quotient(row), place = row - phase * Index(rows.by), to = 0, step = 1;
        bool inside = true;
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const Index next = out[axis].quotient(place), next_phase = num[axis].quotient(phase);
            const int i = int(phase - next_phase * Index(num[axis].by));
            const int q = int(place - next * Index(out[axis].by));
            const int o = q * stride[axis] + begin[axis] + i * sign[axis];
            inside = inside && o < size[axis];
            to += Index(o) * step, step *= Index(size[axis]);
            place = next, phase = next_phase;
        }
        return {whole.row_at(place * step + to), inside};
    }
    template <bool packed, int n, typename Index>
    __device__ __forceinline__ void give(const Row<Index>& row, Index column,
                                         const float (&values)[n]) const {
        if (row.inside) whole.template give<packed>(row.of_whole, column, values);
    }
};

// @PhaseTiles deps: PackedFilters, PixelsOf, TapsOfPhase, PhasedWindows, WindowTiles, arrange_phases_kernel, launch_fma_product, parts_of_windows
// The phases of a call by the kernels of WindowTiles; what does not fit is left to the float32
// kernel.
template <typename Form>
struct PhaseTiles {
    static constexpr int kParts = Form::Mode::kParts;
    bool takes;
    typename Form::Pixels pixels;
    PackedFilters filters;
    int splits;
    float* parts;
    Phases* table;  // in the device's memory, for the float32 kernel, as what is arranged for it
    float* arranged;

    PhaseTiles(const Phases& all, Workspace& space)
        : takes(takes_all(all)), pixels{}, filters{}, splits(1), parts(), table(), arranged() {
        const Convolution& c = all.c;
        const int64_t num_filters = c.filters * all.count(), rows = all.rows() * all.count();
        if (!takes) {
            table = space.take<Phases>(1);
            arranged = space.take<float>(num_filters * all.depth());
            return;
        }
        int64_t taps = 0;
        for (int n = 0; n < all.count(); ++n) taps += all.taps.of[n].taps();
        pixels = Form::Pixels::take(c, space);
        filters = PackedFilters::take<kParts, Form::kWidth>(c.channels, num_filters * c.taps(),
                                                            num_filters, space);
        splits = parts_of_windows<typename Form::T>(rows, c.filters,
                                                    taps * pixels.of_channels / all.count());
        parts = space.take<float>(splits > 1 ? splits * rows * c.filters : 0);
    }
    static bool takes_all(const Phases& all) {
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
        const int64_t num_filters = c.filters * all.count();
        if (!takes) {
            const int error = Launch(num_filters, 256, 0, stream)
                                  .run(arrange_phases_kernel, all, weight, table, arranged);
            if (error) return error;
            return launch_fma_product<float>(PhasedWindows::product(all, arranged),
                                             PhasedWindows{table}, sink, nullptr, stream);
        }
        const TapsOfPhase taps_of(all.taps, weight);
        const int error =
            Form::pack(c, taps_of, PixelsOf<Form::kWidth>(c), pixels, filters, num_filters, stream);
        if (error) return error;
        return in_parts(sink, splits, parts, nullptr, stream, [&](const auto& to) {
            return Form::launch_all(c, taps_of, all.count(), pixels, filters, splits, to, stream);
        });
    }
};

// @convolve_transposed deps: ElementEpilogue, EpilogueStore, PhaseEpilogue, PhaseTiles, TransposedWindows, type_of_float
// All transposed convolutions of tensors: as convolve, of F::kWindows that are TransposedWindows.
template <typename F, typename Form>
static int64_t transposed_bytes(const TensorView& x, const TensorView& weight,
                                const TensorView& result) {
    Workspace space{};
    const auto call = F::kWindows.of(x, weight, result, space);
    if (call.fits) PhaseTiles<Form>(call.phases, space);
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
    ElementEpilogue<F, typename F::Operands> whole;
    const auto known = whole.laid_out_along(own.begin());
    if (known.misfit != 0 || known.num == 0) return known.misfit;
    Workspace space{static_cast<char*>(workspace)};
    const auto call = F::kWindows.of(x, weight, own.end()[-1], space);
    if (!call.fits) return cudaErrorInvalidValue;
    const PhaseTiles<Form> tiles(call.phases, space);
    const PhaseEpilogue<decltype(whole)> epilogue(whole, call.phases);
    const int64_t extent = call.phases.count() * call.phases.rows() * call.phases.c.filters;
    const auto sink = EpilogueStore<PhaseEpilogue<decltype(whole)>>::of(
        epilogue, !known.far && extent < 1ll << 31, whole.takes_packets(), extent);
    const int error = call.x.fill(x, stream);
    if (error) return error;
    return tiles.launch(call.phases, call.weight, sink, stream);
}

}  // namespace op
