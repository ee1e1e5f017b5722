// Convolutions of which each channel has a filter of its own, of tensors with their channels first:
// what they are, how they are shared out, and a kernel for any of them. Sums are chains of fused
// multiply-adds in the order of the taps, and start from zero.

namespace op {

// @Planes deps: Depthwise
// A Depthwise whose channels lie apart, as the taps of its weight may, and all places of x. The
// result is [image][channel][place] without gaps: one slice, a plane of one channel, after the
// other.
struct Planes : Depthwise {
    int64_t channel_step, filter_step, tap_step[3];

    __host__ __device__ int64_t num_slices() const { return images * channels * result[0]; }
};

// @PlaneSlice deps: Divisor, Planes
// A slice of the result: the planes of x below it, the filter, and where in depth its first tap is.
struct PlaneSlice {
    const float *x, *weight;
    int corner;

    PlaneSlice() = default;
    template <typename Index>
    __device__ __forceinline__ PlaneSlice(const Planes& c, const Divisor (&by)[3], Index slice) {
        const Index plane = by[0].quotient(slice), image = by[1].quotient(plane);
        const Index channel = plane - image * Index(by[1].by);
        const int64_t below = int64_t(by[2].quotient(channel)) * c.channel_step;
        x = static_cast<const float*>(c.x) + image * c.image_step + below;
        weight = static_cast<const float*>(c.weight) + channel * c.filter_step;
        corner = int(slice - plane * Index(by[0].by)) * int(c.stride[0]) - int(c.padding[0]);
    }
    // What finds one: planes of an image, images, and channels of x.
    struct Divisors {
        Divisor by[3];
        bool narrow;  // there are fewer than 2^31

        static Divisors of(const Planes& c) {
            return {{Divisor(c.result[0]), Divisor(c.channels), Divisor(c.multiplier)},
                    c.num_slices() < 1ll << 31};
        }
        __device__ __forceinline__ PlaneSlice at(const Planes& c, int64_t slice) const {
            return narrow ? PlaneSlice(c, by, uint32_t(slice)) : PlaneSlice(c, by, uint64_t(slice));
        }
    };
};

// @sum_window deps: PlaneSlice
// The sum of any window, whose first tap is in this row and column: what is not there adds nothing,
// whatever the tap is.
OPWELD_FN float sum_window(const Planes& c, const PlaneSlice& slice, int row, int column) {
    const int taps[] = {int(c.taps[0]), int(c.taps[1]), int(c.taps[2])};
    const int dilation[] = {int(c.dilation[0]), int(c.dilation[1]), int(c.dilation[2])};
    float sum = 0.0f;
#pragma unroll 1
    for (int line = 0; line < taps[0] * taps[1]; ++line) {
        const int deep = line / taps[1], down = line - deep * taps[1];
        const int z = slice.corner + deep * dilation[0], y = row + down * dilation[1];
        if (unsigned(z) >= unsigned(c.extent[0]) || unsigned(y) >= unsigned(c.extent[1])) continue;
        const float* x = slice.x + z * c.step[0] + y * c.step[1];
        const float* weight = slice.weight + deep * c.tap_step[0] + down * c.tap_step[1];
        for (int s = 0; s < taps[2]; ++s) {
            const int place = column + s * dilation[2];
            if (unsigned(place) < unsigned(c.extent[2]))
                sum = fmaf(x[place * c.step[2]], weight[s * c.tap_step[2]], sum);
        }
    }
    return sum;
}

// @AnyPlanes deps: EpilogueStore, Launch, sum_window
// Any filters and any strides: a thread has one place.
template <typename Epilogue>
__global__ void __launch_bounds__(256)
    any_planes_kernel(const __grid_constant__ Planes c, const PlaneSlice::Divisors slices,
                      const Divisor rows, const Divisor columns,
                      const EpilogueStore<Epilogue> sink) {
    const int64_t at = int64_t(blockIdx.x) * 256 + threadIdx.x;
    if (at >= c.num_slices() * c.result[1] * c.result[2]) return;
    const auto split = [&](auto place) {
        const auto line = columns.quotient(place);
        const auto slice = rows.quotient(line);
        const int row = int(line - slice * decltype(line)(rows.by));
        const int column = int(place - line * decltype(line)(columns.by));
        return sum_window(c, slices.at(c, int64_t(slice)),
                          row * int(c.stride[1]) - int(c.padding[1]),
                          column * int(c.stride[2]) - int(c.padding[2]));
    };
    const float values[] = {sink.narrow ? split(uint32_t(at)) : split(uint64_t(at))};
    sink.take(0, at, values);
}
struct AnyPlanes {
    template <typename Epilogue>
    static int launch(const Planes& c, const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const int64_t blocks = (c.num_slices() * c.result[1] * c.result[2] + 255) / 256;
        if (blocks >= 1ll << 31) return cudaErrorInvalidConfiguration;
        return Launch(blocks, 256, 0, stream)
            .run(any_planes_kernel<Epilogue>, c, PlaneSlice::Divisors::of(c), Divisor(c.result[1]),
                 Divisor(c.result[2]), sink);
    }
};

// @planes deps: EpilogueStore, Planes
// Makes a convolution by `Tiles`, with `epilogue(at, values)` and the rest as in a product; `conv`
// is a Planes. Returns a CUDA error code.
template <typename Tiles, typename Epilogue>
static int planes(const void* conv, const Epilogue& epilogue, int64_t max_offset, bool aligned,
                  void* stream) {
    constexpr int64_t kFar = 1ll << 31;  // from here on 32-bit positions would wrap round
    const auto& c = *static_cast<const Planes*>(conv);
    const int64_t extent = c.num_slices() * c.result[1] * c.result[2];
    const bool narrow = extent < kFar && max_offset < kFar;
    const auto sink = EpilogueStore<Epilogue>::of(epilogue, narrow, aligned, extent);
    if (extent == 0) return 0;
    if (!c.is_near()) return cudaErrorInvalidValue;
    return Tiles::launch(c, sink, static_cast<cudaStream_t>(stream));
}

// @convolve_planes deps: type_of_float, ElementEpilogue, EpilogueStore, Planes, Windowed
// A convolution of each channel of x whose result has its channels first, as convolve has it: x and
// the weight are read where they lie, and no memory is taken beside.
template <typename F>
static Planes planes_of(const TensorView& x, const TensorView& weight, const TensorView& result) {
    constexpr int kSpace = F::kRank - 2, kFirst = 3 - kSpace;  // of the axes of space
    const auto& windows = F::kWindows;
    const int64_t of_x = x.sizes[windows.axes[kSpace + 1]];
    Planes c{{x.data, weight.data, x.sizes[windows.axes[0]], weight.sizes[0],
              of_x > 0 ? weight.sizes[0] / of_x : 1}};
    c.image_step = x.strides[windows.axes[0]];
    c.channel_step = x.strides[windows.axes[kSpace + 1]], c.filter_step = weight.strides[0];
    for (int i = 0; i < 3; ++i) {
        c.extent[i] = c.result[i] = c.taps[i] = c.stride[i] = c.dilation[i] = 1;
        if (i < kFirst) continue;
        const int own = i - kFirst, axis = windows.axes[own + 1];
        c.extent[i] = x.sizes[axis], c.step[i] = x.strides[axis];
        c.taps[i] = weight.sizes[own + 2], c.tap_step[i] = weight.strides[own + 2];
        c.result[i] = result.sizes[own + 2], c.stride[i] = windows.stride[own];
        c.padding[i] = windows.padding[own], c.dilation[i] = windows.dilation[own];
    }
    return c;
}
// `own` are F's operands and results. Returns a cudaError_t, or which of them does not fit.
template <typename F, typename Tiles>
static int convolve_planes(const TensorView& x, const TensorView& weight,
                           std::initializer_list<TensorView> own, void* stream) {
    if (x.type != type_of<float> || weight.type != type_of<float>) return -1;
    const int64_t channels = x.sizes[F::kWindows.axes[F::kRank - 1]];
    const bool fits = channels > 0 && weight.sizes[0] % channels == 0;
    if (!fits || weight.sizes[1] != 1) return -2;
    ElementEpilogue<F, typename F::Operands> epilogue;
    const auto known = epilogue.laid_out_along(own.begin());
    if (known.misfit != 0 || known.num == 0) return known.misfit;
    const Planes c = planes_of<F>(x, weight, own.end()[-1]);
    const auto sink = EpilogueStore<decltype(epilogue)>::of(epilogue, !known.far,
                                                            epilogue.takes_packets(), known.num);
    if (!c.is_near()) return cudaErrorInvalidValue;
    return Tiles::launch(c, sink, static_cast<cudaStream_t>(stream));
}

}  // namespace op
