// Transposed convolutions, as a convolution of stride 1 for each *phase* of the stride s: the
// output pixels s q + r of one r along each axis see the same taps, evenly spaced ones, of
// neighbouring pixels. So nothing is multiplied by zeros between pixels, and no two blocks add to
// one sum. The phases are products side by side: the tiles of all are made by one kernel. Those
// along the last axis may be columns of one product instead, kPhaseColumns for each filter, with
// zeros where only others have a tap: a tile reads pixels once for all of them, and its results are
// neighbours in memory where else each would write every s-th element.

namespace op {

// @Phases deps: Convolution
[[maybe_unused]] constexpr int kMostPhases = 32, kMostPhaseColumns = 8;

// By phase: its taps along each axis, and how far its windows begin behind those of `c`.
struct PhaseTaps {
    struct Of {
        int kernel[3], shift[3];

        __host__ __device__ int taps() const { return kernel[0] * kernel[1] * kernel[2]; }
    } of[kMostPhases];
};

// The output pixels of `c` are the q, as many as the largest phase has; its windows begin where the
// first ones of any phase do, and its taps are the most along each axis.
// Where phases are columns, the last axis has one, of all their taps, and c has all their columns.
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
    // How far the windows of a phase begin behind the first ones.
    int shift(const Convolution& c, int axis, int r) const {
        return kernel[r] ? c.padding[axis] - padding[r] : 0;
    }
    // Makes all of them one, whose taps are those of any; its step must be 1.
    void join(Phases& all, int axis) const {
        Convolution& c = all.c;
        for (int r = 0; r < num; ++r) {
            const int end = kernel[r] ? shift(c, axis, r) + kernel[r] : 0;
            c.kernel[axis] = c.kernel[axis] > end ? c.kernel[axis] : end;
        }
        all.num[axis] = 1, all.begin[axis] = 0, all.sign[axis] = 1;
    }
};

// @PhasedWeight deps: Phases
// A weight [channels][filters][taps] of any strides, and which of its taps those of phases are.
struct PhasedWeight {
    const float* from;
    int64_t channels, filters, channel, filter, tap[3];  // the last ones are strides
    int step[3], first[kMostPhases][3];
    // Of phases that are columns of a filter: along the last axis the first taps, how many, and how
    // far they begin behind the first of any.
    struct Column {
        int first, taps, shift;
    } column[kMostPhaseColumns];

    // Where the weight of a channel at tap number `number` of a phase is, from its filter on; below
    // 0 where this of kColumns columns has none.
    template <int kColumns>
    __device__ __forceinline__ int64_t place(const PhaseTaps::Of& own, int phase, int of_filter,
                                             int64_t of_channel, int number) const {
        int64_t at = of_channel * channel;
        bool exists = true;
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const int next = number / own.kernel[axis];
            int i = number - next * own.kernel[axis], taps = own.kernel[axis];
            int begin = first[phase][axis];
            if (kColumns > 1 && axis == 2) {
                const Column& of = column[of_filter];
                i -= of.shift, taps = of.taps, begin = of.first;
                exists = unsigned(i) < unsigned(taps);
            }
            at += (begin + (taps - 1 - i) * step[axis]) * tap[axis];
            number = next;
        }
        return exists ? at : -1;
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
            exists ? from[weight.place<1>(own, phase, 0, channel, i - channel * taps)] : 0.0f;
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *table = phases;
}

// @TransposedWindows deps: AxisPhases, ConvolutionForm, InputView, PhasedWeight, TensorView, Workspace
// The operands of a transposed convolution as tensors: as Windowed, but for the weight, which is
// [channels][filters][taps]. With kPhaseColumns, 2, 4 or 8, of 1 or more phases that are columns,
// stride must be that many or fewer and a multiple of dilation along the last axis.
template <int kSpace, int kPhaseColumnsOf = 1>
struct TransposedWindows {
    static constexpr int kPhaseColumns = kPhaseColumnsOf;
    int axes[kSpace + 2], stride[kSpace], padding[kSpace], dilation[kSpace];

    struct Call {
        Phases phases;
        InputView x;
        PhasedWeight weight;
        bool fits;  // there are not too many phases
    };
    // Its copies are taken from `space`. With so many columns, or 1.
    template <int kColumns>
    Call of(const TensorView& x, const TensorView& weight, const TensorView& result,
            Workspace& space) const {
        Call call{};
        Phases& all = call.phases;
        call.x = InputView::of<kSpace>(all.c, x, axes, ConvolutionForm::reads, space);
        call.weight.from = static_cast<const float*>(weight.data);
        call.weight.channels = weight.sizes[0], call.weight.channel = weight.strides[0];
        call.weight.filters = weight.sizes[1];
        all.c.filters = call.weight.filters * kColumns;
        call.weight.filter = weight.strides[1];
        const auto along = [&](int axis) {
            const int own = axis - 3 + kSpace;  // of the axes of space
            if (own < 0) return AxisPhases(all, axis, 1, 1, 0, 1, 1);
            call.weight.tap[axis] = weight.strides[own + 2];
            return AxisPhases(all, axis, int(weight.sizes[own + 2]), stride[own], padding[own],
                              dilation[own], result.sizes[own + 1]);
        };
        const AxisPhases each[3] = {along(0), along(1), along(2)};
        if constexpr (kColumns > 1) {
            const AxisPhases& last = each[2];
            call.fits = last.num <= kColumns && all.c.dilation[2] == 1;
            if (!call.fits) return call;
            for (int r = 0; r < last.num; ++r) {
                call.weight.column[r] = {last.first[r], last.kernel[r], last.shift(all.c, 2, r)};
            }
            last.join(all, 2);
        }
        call.fits = int64_t(all.num[0]) * all.num[1] <= kMostPhases &&
                    int64_t(all.num[0]) * all.num[1] * all.num[2] <= kMostPhases;
        if (!call.fits) return call;
        for (int n = 0; n < all.count(); ++n) {
            for (int axis = 2, rest = n; axis >= 0; rest /= all.num[axis--]) {
                const AxisPhases& own = each[axis];
                const int r = all.begin[axis] + rest % all.num[axis] * all.sign[axis];
                const bool joined = kColumns > 1 && axis == 2;
                all.taps.of[n].kernel[axis] = joined ? all.c.kernel[axis] : own.kernel[r];
                all.taps.of[n].shift[axis] = joined ? 0 : own.shift(all.c, axis, r);
                call.weight.first[n][axis] = own.first[r], call.weight.step[axis] = own.step;
            }
            if (all.taps.of[n].taps() == 0) all.taps.of[n] = {{0, 1, 1}, {}};
        }
        return call;
    }
};

}  // namespace op
