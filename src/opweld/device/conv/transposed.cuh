// Transposed convolutions, as a convolution of stride 1 for each *phase* of the stride s: the
// output pixels s q + r of one r along each axis see the same taps, evenly spaced ones, of
// neighbouring pixels. So nothing is multiplied by zeros between pixels, and no two blocks add to
// one sum.

namespace op {

// @Phase deps: Convolution
[[maybe_unused]] constexpr int kMostPhases = 32;

// One phase as a convolution: its taps are `first`, first + step, ..., the last of them first, as
// that one sees the first pixel. Padding is below 0 where windows begin inside of the image. There
// may be no tap: all sums are zero.
struct Phase {
    Convolution c;
    int at[3], first[3], step[3];
    int64_t before;  // taps of the phases before it

    // Along one axis tap k brings pixel i to output pixel i s - p + k d.
    void set(int axis, int r, int taps, int s, int p, int d, int64_t pixels) {
        int g = s, rest = d % s;
        while (rest) {
            const int next = g % rest;
            g = rest, rest = next;
        }
        int tap = 0, most = s / g;
        while (tap < most && (r + p - tap * d) % s != 0) ++tap;
        const int count = tap < most && tap < taps ? (taps - tap + most - 1) / most : 0;
        const int last = tap + (count - 1) * most;
        at[axis] = r, first[axis] = tap, step[axis] = most;
        c.kernel[axis] = count, c.stride[axis] = 1, c.dilation[axis] = d / g;
        c.padding[axis] = count ? (last * d - r - p) / s : 0;
        c.out[axis] = pixels > r ? int((pixels - r + s - 1) / s) : 0;
    }
};

// @PhasedWeight deps: Phase
// A weight [channels][filters][taps] of any strides, and the taps of each phase.
struct PhasedWeight {
    const float* from;
    int64_t channels, filters, channel, filter, tap[3];  // the last ones are strides
    int step[3];
    struct Taps {
        int first[3], count[3], before;
    } of_phase[kMostPhases];
};

// @pack_phases_kernel deps: CallState, PhasedWeight, pack_filter, start_dependents
// A block arranges a filter of a phase in `arranged` [phase][filter][channel][tap], and packs it
// where `call` is given: as pack_filters_kernel.
template <int kParts>
static __global__ void __launch_bounds__(256)
    pack_phases_kernel(const __grid_constant__ PhasedWeight weight, float* arranged,
                       const PackedFilters filters, CallHead* call) {
    start_dependents();
    const int phase = int(blockIdx.x / weight.filters);
    const int64_t filter = blockIdx.x - phase * weight.filters;
    const PhasedWeight::Taps& own = weight.of_phase[phase];
    const int64_t taps = int64_t(own.count[0]) * own.count[1] * own.count[2];
    float* const to = arranged + (own.before * weight.filters + filter * taps) * weight.channels;
    for (int64_t i = threadIdx.x; i < weight.channels * taps; i += 256) {
        const int64_t channel = i / taps;
        int64_t from = channel * weight.channel + filter * weight.filter;
        int rest = int(i - channel * taps);
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const int next = rest / own.count[axis], place = rest - next * own.count[axis];
            const int tap = own.first[axis] + (own.count[axis] - 1 - place) * weight.step[axis];
            from += tap * weight.tap[axis], rest = next;
        }
        to[i] = weight.from[from];
    }
    if (!call) return;
    if (blockIdx.x == 0 && threadIdx.x == 0) *call = {};
    __syncthreads();
    pack_filter<kParts>(
        Filter{to, weight.channels, taps}, weight.channels, taps,
        filters.of_phase<kParts>(weight.channels, weight.filters, phase, own.before), filter);
}

// @TransposedWindows deps: InputView, Launch, PhasedWeight, TensorView, Workspace
// The operands of a transposed convolution as tensors: as Windowed, but for the weight, which is
// [channels][filters][taps].
template <int kSpace>
struct TransposedWindows {
    int axes[kSpace + 2], stride[kSpace], padding[kSpace], dilation[kSpace];

    struct Call {
        Convolution c;  // the input
        InputView x;
        PhasedWeight weight;
        float* arranged;
        Phase phases[kMostPhases];  // those that have output pixels
        int num;
        int64_t taps;  // of all phases
    };
    // Its copies are taken from `space`. Without phases where there are too many.
    Call of(const TensorView& x, const TensorView& weight, const TensorView& result,
            Workspace& space) const {
        constexpr int kFirst = 3 - kSpace;  // of the axes of space
        Call call{};
        int strides[3] = {1, 1, 1}, all = 1;
        call.x = InputView::of<kSpace>(call.c, x, axes, false, space);
        call.weight.from = static_cast<const float*>(weight.data);
        call.weight.channels = weight.sizes[0], call.weight.channel = weight.strides[0];
        call.weight.filters = weight.sizes[1], call.weight.filter = weight.strides[1];
        for (int i = 0; i < kSpace; ++i) {
            strides[kFirst + i] = stride[i], all *= stride[i];
            call.weight.tap[kFirst + i] = weight.strides[i + 2];
        }
        for (int n = 0; n < all; ++n) {
            Phase phase{call.c};
            phase.c.filters = weight.sizes[1], phase.before = call.taps;
            for (int i = 2, rest = n; i >= 0; rest /= strides[i--]) {
                const int own = i - kFirst, r = rest % strides[i];
                if (own < 0) phase.set(i, 0, 1, 1, 0, 1, 1);
                else
                    phase.set(i, r, int(weight.sizes[own + 2]), stride[own], padding[own],
                              dilation[own], result.sizes[own + 1]);
            }
            if (phase.c.places() == 0) continue;
            if (call.num == kMostPhases) return call.num = 0, call;
            auto& taps = call.weight.of_phase[call.num];
            for (int i = 0; i < 3; ++i) {
                call.weight.step[i] = phase.step[i];
                taps.first[i] = phase.first[i], taps.count[i] = phase.c.kernel[i];
            }
            taps.before = int(phase.before), call.taps += phase.c.taps();
            call.phases[call.num++] = phase;
        }
        call.arranged = space.take<float>(call.taps * weight.sizes[0] * weight.sizes[1]);
        for (int n = 0; n < call.num; ++n) {
            Convolution& c = call.phases[n].c;
            c.weight = call.arranged + call.phases[n].before * c.channels * c.filters;
        }
        return call;
    }
};

// @PhaseViews deps: Along, TensorView
// Operands of a functor as one phase sees them: every stride-th element along each axis of space,
// but for those that are the same along it.
template <int kSpace, typename... X>
struct PhaseViews {
    static constexpr int kCount = sizeof...(X);
    int64_t sizes[kCount][kSpace + 2], strides[kCount][kSpace + 2];
    TensorView views[kCount];

    PhaseViews(const TensorView* x, const int (&stride)[kSpace], const Phase& phase, Types<X...>) {
        constexpr const int* kAxis[] = {X::kAxis...};
        constexpr int64_t kBytes[] = {sizeof(typename X::T)...};
        for (int i = 0; i < kCount; ++i) {
            views[i] = {x[i].data, x[i].type, x[i].rank, sizes[i], strides[i]};
            for (int j = 0; j < x[i].rank; ++j) {
                const int own = kAxis[i][j] - 1;
                int64_t size = x[i].sizes[j], step = x[i].strides[j];
                if (size != 1 && own >= 0 && own < kSpace) {
                    const int axis = 3 - kSpace + own;
                    views[i].data =
                        static_cast<char*>(views[i].data) + phase.at[axis] * step * kBytes[i];
                    size = phase.c.out[axis], step *= stride[own];
                }
                sizes[i][j] = size, strides[i][j] = step;
            }
        }
    }
    PhaseViews(const PhaseViews&) = delete;
};

// @PhaseTiles deps: PackedFilters, Phase, Windows, WindowTiles, launch_fma_product, pack_phases_kernel, product_of_windows
// The phases of a call by the kernels of WindowTiles: its input is packed once, their filters by
// one kernel. They follow each other, and share the memory of sums in parts.
template <typename Form>
struct PhaseTiles {
    static constexpr int kParts = Form::Mode::kParts;
    bool takes;  // all phases; else the float32 kernel makes them
    typename Form::Pixels pixels;
    PackedFilters filters;
    float* parts;

    template <typename Call>
    PhaseTiles(const Call& call, Workspace& space) : takes(true), pixels{}, filters{}, parts() {
        int64_t most = 0;
        for (int n = 0; n < call.num; ++n) {
            const Convolution& c = call.phases[n].c;
            if (c.taps() == 0) continue;
            takes = takes && Form::takes(c);
            most = std::max(most, typename Form::Parts(c).count);
        }
        if (!takes) return;
        const int64_t num_filters = call.weight.filters;
        pixels = Form::Pixels::take(call.c, space);
        filters = PackedFilters::take<kParts>(call.c.channels, num_filters * call.taps,
                                              num_filters * call.num, space);
        parts = space.take<float>(most);
    }
    template <typename Call>
    int pack(const Call& call, cudaStream_t stream) const {
        const int64_t all = call.weight.filters * call.num;
        const int error =
            Launch(all, 256, 0, stream)
                .run(pack_phases_kernel<kParts>, call.weight, call.arranged, filters, pixels.head);
        if (error || !takes) return error;
        return Form::pack_pixels(call.c, pixels, filters, all, stream);
    }
    // Phase `n` of a call.
    template <typename Call, typename Epilogue>
    int launch(const Call& call, int n, const EpilogueStore<Epilogue>& sink,
               cudaStream_t stream) const {
        const Phase& phase = call.phases[n];
        const Convolution& c = phase.c;
        if (!takes || c.taps() == 0) {
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        }
        const auto own = filters.of_phase<kParts>(c.channels, c.filters, n, phase.before);
        return Form::multiply(c, pixels, own, parts, sink, stream);
    }
};

// @convolve_transposed deps: ElementEpilogue, EpilogueStore, PhaseTiles, PhaseViews, TransposedWindows, type_of_float
// All transposed convolutions of tensors: as convolve, of F::kWindows that are TransposedWindows.
template <typename F, typename Form>
static int64_t transposed_bytes(const TensorView& x, const TensorView& weight,
                                const TensorView& result) {
    Workspace space{};
    const auto call = F::kWindows.of(x, weight, result, space);
    const PhaseTiles<Form> tiles(call, space);
    return space.used;
}
template <typename F, typename Form, typename... X>
static int convolve_phases(const TensorView& x, const TensorView& weight, const TensorView* own,
                           void* workspace, cudaStream_t stream, Types<X...> operands) {
    Workspace space{static_cast<char*>(workspace)};
    const auto call = F::kWindows.of(x, weight, own[sizeof...(X) - 1], space);
    const PhaseTiles<Form> tiles(call, space);
    int error = call.num ? call.x.fill(x, stream) : int(cudaErrorInvalidValue);
    if (!error) error = tiles.pack(call, stream);
    for (int n = 0; n < call.num && !error; ++n) {
        const PhaseViews<F::kRank - 2, X...> seen(own, F::kWindows.stride, call.phases[n],
                                                  operands);
        ElementEpilogue<F, Types<X...>> epilogue;
        const auto known = epilogue.laid_out_along(seen.views);
        const auto sink = EpilogueStore<decltype(epilogue)>::of(
            epilogue, !known.far, epilogue.takes_packets(), known.num);
        error = tiles.launch(call, n, sink, stream);
    }
    return error;
}
// `own` are F's operands and results. Returns a cudaError_t, or which of them does not fit.
template <typename F, typename Form>
static int convolve_transposed(const TensorView& x, const TensorView& weight,
                               std::initializer_list<TensorView> own, void* workspace,
                               void* stream) {
    if (x.type != type_of<float> || weight.type != type_of<float>) return -1;
    if (weight.sizes[0] != x.sizes[F::kWindows.axes[F::kRank - 1]]) return -2;
    ElementEpilogue<F, typename F::Operands> whole;
    const auto known = whole.laid_out_along(own.begin());
    if (known.misfit != 0 || known.num == 0) return known.misfit;
    return convolve_phases<F, Form>(x, weight, own.begin(), workspace,
                                    static_cast<cudaStream_t>(stream), typename F::Operands());
}

}  // namespace op
