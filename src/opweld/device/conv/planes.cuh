// Convolutions of which each channel has a filter of its own, of tensors with their channels first:
// what they are, how they are shared out, and a kernel for any of them. Sums are chains of fused
// multiply-adds in the order of the taps, and start from zero.

namespace op {

// @Planes deps: Depthwise, Divisor
// A Depthwise whose channels lie apart, as the taps of its weight may, and all places of x. The
// result is [image][channel][place] without gaps: one slice, a plane of one channel, after the
// other.
struct Planes : Depthwise {
    int64_t channel_step, filter_step, tap_step[3];

    __host__ __device__ int64_t num_slices() const { return images * channels * result[0]; }
    __host__ __device__ int64_t places() const { return result[1] * result[2]; }  // of a slice
    // Whether neighbours in memory are places of other channels.
    bool has_channels_last() const { return channel_step == 1 && step[2] != 1 && channels > 1; }
    // Whether numbers of slices and of places have 31 bits.
    bool is_near() const {
        constexpr int64_t kFar = 1ll << 31;
        return Depthwise::is_near() && num_slices() < kFar && places() < kFar;
    }
};
// By what slices are divided to find their image, channel and place in depth.
struct PlaneOrder {
    Divisor deep, channels, multiplier;

    explicit PlaneOrder(const Planes& c)
        : deep(c.result[0]), channels(c.channels), multiplier(c.multiplier) {}
};

// @PlaneSlice deps: Planes
// A slice of the result: the planes of x below it, the filter, and where in depth its first tap is.
struct PlaneSlice {
    const float *x, *weight;
    int corner;

    PlaneSlice() = default;
    __device__ __forceinline__ PlaneSlice(const Planes& c, const PlaneOrder& by, uint32_t slice) {
        const uint32_t plane = by.deep.quotient(slice), image = by.channels.quotient(plane);
        const uint32_t channel = plane - image * uint32_t(c.channels);
        const int64_t below = int64_t(by.multiplier.quotient(channel)) * c.channel_step;
        x = static_cast<const float*>(c.x) + image * c.image_step + below;
        weight = static_cast<const float*>(c.weight) + channel * c.filter_step;
        const int deep = int(slice - plane * uint32_t(c.result[0]));
        corner = deep * int(c.stride[0]) - int(c.padding[0]);
    }
};

// @sum_windows deps: PlaneSlice
// The sums of any windows, of which the first has its first tap in this row and column, and others
// have theirs every `gap` columns: what is not there adds nothing, whatever the tap is.
template <int kPlaces>
OPWELD_FN void sum_windows(const Planes& c, const PlaneSlice& slice, int row, int column, int gap,
                           float (&sums)[kPlaces]) {
    const int taps[] = {int(c.taps[0]), int(c.taps[1]), int(c.taps[2])};
    const int dilation[] = {int(c.dilation[0]), int(c.dilation[1]), int(c.dilation[2])};
#pragma unroll 1
    for (int line = 0; line < taps[0] * taps[1]; ++line) {
        const int deep = line / taps[1], down = line - deep * taps[1];
        const int z = slice.corner + deep * dilation[0], y = row + down * dilation[1];
        if (unsigned(z) >= unsigned(c.extent[0]) || unsigned(y) >= unsigned(c.extent[1])) continue;
        const float* x = slice.x + z * c.step[0] + y * c.step[1];
        const float* weight = slice.weight + deep * c.tap_step[0] + down * c.tap_step[1];
#pragma unroll 1
        for (int s = 0; s < taps[2]; ++s) {
            const float tap = weight[s * c.tap_step[2]];
#pragma unroll
            for (int j = 0; j < kPlaces; ++j) {
                const int place = column + s * dilation[2] + j * gap;
                if (unsigned(place) < unsigned(c.extent[2]))
                    sums[j] = fmaf(x[place * c.step[2]], tap, sums[j]);
            }
        }
    }
}

// @AnyPlanes deps: EpilogueStore, Launch, sum_windows
// Any filters and any strides. A thread has some places of a row, as far apart as there are threads
// for it; its neighbours have the next ones, or, where x has its channels last, other channels.
struct PlaneThreads {
    static constexpr int kPlaces = 4;
    Divisor channels, across, rows;
    PlaneOrder order;
    bool channels_last;

    explicit PlaneThreads(const Planes& c)
        : channels(c.channels),
          across((c.result[2] + kPlaces - 1) / kPlaces),
          rows(c.result[1]),
          order(c),
          channels_last(c.has_channels_last()) {}
    int64_t count(const Planes& c) const { return c.num_slices() * rows.by * across.by; }
};
template <typename Epilogue>
__global__ void __launch_bounds__(256)
    any_planes_kernel(const __grid_constant__ Planes c,
                      const __grid_constant__ PlaneThreads threads, const uint32_t count,
                      const EpilogueStore<Epilogue> sink) {
    constexpr int kPlaces = PlaneThreads::kPlaces;
    uint32_t rest = blockIdx.x * 256 + threadIdx.x;
    if (rest >= count) return;
    const auto split = [&](const Divisor& by) {
        const uint32_t next = by.quotient(rest), inner = rest - next * uint32_t(by.by);
        rest = next;
        return inner;
    };
    const uint32_t channel = threads.channels_last ? split(threads.channels) : 0;
    const int first = int(split(threads.across)), row = int(split(threads.rows));
    const uint32_t deep = threads.channels_last ? split(threads.order.deep) : 0;
    const uint32_t slice =
        threads.channels_last
            ? (rest * uint32_t(c.channels) + channel) * uint32_t(c.result[0]) + deep
            : rest;
    const int across = int(threads.across.by);
    float sums[kPlaces] = {};
    sum_windows(c, PlaneSlice(c, threads.order, slice), row * int(c.stride[1]) - int(c.padding[1]),
                first * int(c.stride[2]) - int(c.padding[2]), across * int(c.stride[2]), sums);
    const int64_t at = (slice * c.result[1] + row) * c.result[2];
    __shared__ float kept[kPlaces][256];
#pragma unroll
    for (int j = 0; j < kPlaces; ++j) kept[j][threadIdx.x] = sums[j];
#pragma unroll 1
    for (int j = 0; j < kPlaces; ++j) {
        const float values[] = {kept[j][threadIdx.x]};
        const int column = first + j * across;
        if (column < c.result[2]) sink.take(0, at + column, values);
    }
}
struct AnyPlanes {
    template <typename Epilogue>
    static int launch(const Planes& c, const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        const PlaneThreads threads(c);
        const int64_t count = threads.count(c);
        if (count >= 1ll << 31) return cudaErrorInvalidConfiguration;
        return Launch((count + 255) / 256, 256, 0, stream)
            .run(any_planes_kernel<Epilogue>, c, threads, uint32_t(count), sink);
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
    const int64_t extent = c.num_slices() * c.places();
    const bool narrow = extent < kFar && max_offset < kFar;
    const auto sink = EpilogueStore<Epilogue>::of(epilogue, narrow, aligned, extent);
    if (extent == 0) return 0;
    if (!c.is_near()) return cudaErrorInvalidValue;
    return Tiles::launch(c, sink, static_cast<cudaStream_t>(stream));
}

// @PlaneWindows deps:
// How windows lie: `axes` of x are its batch, its axes of space and its channels.
template <int kSpace>
struct PlaneWindows {
    int axes[kSpace + 2], stride[kSpace], padding[kSpace], dilation[kSpace];
};

// @convolve_planes deps: type_of_float, ElementEpilogue, EpilogueStore, PlaneWindows, Planes, TensorView
// A convolution of each channel of x whose result has its channels first, as convolve has it: x and
// the weight are read where they lie, and no memory is taken beside. F::kWindows are PlaneWindows.
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
