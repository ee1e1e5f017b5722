// Convolutions as matrix products: a row of operand a has what the windows of one output pixel
// show, k = (tap, channel) or (channel, tap), a row of b one filter. No such matrix is in memory;
// loaders find its values in the input.

namespace op {

// @Convolution deps:
// What the kernels are told of a convolution without groups. Sizes of space are (depth, height,
// width), 1 where there are fewer axes. Strides of x are in elements, its pixels evenly spaced; the
// weight is [filters][channels][taps] without gaps. `padding` is what stands before the first
// pixel.
struct Convolution {
    const void *x, *weight;
    int64_t batches, channels, filters;
    int64_t batch, pixel, channel;  // strides of x
    int size[3], kernel[3], stride[3], padding[3], dilation[3], out[3];

    __host__ __device__ int64_t taps() const { return int64_t(kernel[0]) * kernel[1] * kernel[2]; }
    __host__ __device__ int64_t pixels() const { return int64_t(size[0]) * size[1] * size[2]; }
    __host__ __device__ int64_t places() const { return int64_t(out[0]) * out[1] * out[2]; }
};

// @copy_in_order deps: Launch
// A tensor of five axes at most, as one without gaps in the order of these axes.
struct Strided {
    int64_t sizes[5], strides[5];

    int64_t count() const { return sizes[0] * sizes[1] * sizes[2] * sizes[3] * sizes[4]; }
};
static __global__ void __launch_bounds__(256)
    copy_in_order_kernel(const float* __restrict__ from, float* __restrict__ to, const Strided by,
                         const int64_t count) {
    const int64_t step = int64_t(gridDim.x) * 256;
    for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < count; i += step) {
        int64_t rest = i, at = 0;
#pragma unroll
        for (int axis = 4; axis >= 0; --axis) {
            at += rest % by.sizes[axis] * by.strides[axis];
            rest /= by.sizes[axis];
        }
        to[i] = from[at];
    }
}
static int copy_in_order(const void* from, float* to, const Strided& by, cudaStream_t stream) {
    constexpr int64_t kMostBlocks = 1 << 16;
    const int64_t blocks = (by.count() + 255) / 256;
    return Launch(blocks < kMostBlocks ? blocks : kMostBlocks, 256, 0, stream)
        .run(copy_in_order_kernel, static_cast<const float*>(from), to, by, by.count());
}

// @InputView deps: Convolution, TensorView, Workspace, copy_in_order
// The input of a convolution, which is copied where its pixels are not evenly spaced.
struct InputView {
    Strided lies;
    float* copy;

    // Of the axes of x that are its batch, its axes of space and its channels: as c has it. A copy
    // with channels last is taken from `space` where `reads(c)` says that x is not read as it lies.
    template <int kSpace, typename Reads>
    static InputView of(Convolution& c, const TensorView& x, const int (&axes)[kSpace + 2],
                        const Reads& reads, Workspace& space) {
        constexpr int kFirst = 3 - kSpace;  // of the axes of space
        InputView input{};
        Strided& lies = input.lies;
        c.x = x.data, c.batches = x.sizes[axes[0]], c.channels = x.sizes[axes[kSpace + 1]];
        lies = {{c.batches, 1, 1, 1, c.channels}, {x.strides[axes[0]]}};
        lies.strides[4] = x.strides[axes[kSpace + 1]];
        for (int i = 0; i < 3; ++i) {
            const int axis = axes[i < kFirst ? 0 : i - kFirst + 1];
            c.size[i] = i < kFirst ? 1 : int(x.sizes[axis]);
            lies.sizes[i + 1] = c.size[i];
            lies.strides[i + 1] = i < kFirst ? 0 : x.strides[axis];
        }
        c.batch = lies.strides[0], c.channel = lies.strides[4];
        const bool even = is_even(lies, 1, 3, &c.pixel);
        if (!even || !reads(c)) {
            input.copy = space.take<float>(lies.count());
            c.x = input.copy, c.batch = c.pixels() * c.channels, c.pixel = c.channels;
            c.channel = 1;
        }
        return input;
    }
    // Whether these axes are as one, and the step along it.
    static bool is_even(const Strided& by, int first, int last, int64_t* step) {
        int64_t next = -1;
        for (int axis = last; axis >= first; --axis) {
            if (by.sizes[axis] == 1) continue;
            if (next < 0) *step = by.strides[axis];
            else if (by.strides[axis] != next) return false;
            next = by.strides[axis] * by.sizes[axis];
        }
        return true;
    }
    int fill(const TensorView& x, cudaStream_t stream) const {
        return copy ? copy_in_order(x.data, copy, lies, stream) : 0;
    }
};

// @Windowed deps: InputView
// The operands of a convolution as tensors: `axes` of x are its batch, its axes of space and its
// channels; the last axis of the result are its filters. What does not lie as a Convolution has it
// is copied.
template <int kSpace>
struct Windowed {
    int axes[kSpace + 2], stride[kSpace], padding[kSpace], dilation[kSpace];

    struct Call {
        Convolution c;
        InputView x;
        Strided weight;
        float* weight_copy;
    };
    // Its copies are taken from `space`; x is copied, too, where it does not read it as it lies.
    template <typename Reads>
    Call of(const TensorView& x, const TensorView& weight, const TensorView& result,
            const Reads& reads, Workspace& space) const {
        constexpr int kFirst = 3 - kSpace;  // of the axes of space
        Call call{};
        Convolution& c = call.c;
        call.x = InputView::of<kSpace>(c, x, axes, reads, space);
        c.weight = weight.data, c.filters = weight.sizes[0];
        call.weight = {{c.filters, weight.sizes[1], 1, 1, 1},
                       {weight.strides[0], weight.strides[1]}};
        for (int i = 0; i < 3; ++i) {
            c.kernel[i] = c.stride[i] = c.dilation[i] = c.out[i] = 1;
            if (i < kFirst) continue;
            const int own = i - kFirst;
            c.kernel[i] = int(weight.sizes[own + 2]), c.out[i] = int(result.sizes[own + 1]);
            c.stride[i] = stride[own], c.padding[i] = padding[own], c.dilation[i] = dilation[own];
            call.weight.sizes[i + 2] = c.kernel[i];
            call.weight.strides[i + 2] = weight.strides[own + 2];
        }
        int64_t step = 0;
        if (!InputView::is_even(call.weight, 0, 4, &step) || step > 1) {
            call.weight_copy = space.take<float>(call.weight.count());
            c.weight = call.weight_copy;
        }
        return call;
    }
    static int copy(const TensorView& x, const TensorView& weight, const Call& call,
                    cudaStream_t stream) {
        const int error = call.x.fill(x, stream);
        if (error || !call.weight_copy) return error;
        return copy_in_order(weight.data, call.weight_copy, call.weight, stream);
    }
};

// @Permuted deps: TensorView
// A tensor with its axes in another order: `axes` are those of it that come one after the other.
template <int... axes>
struct Permuted {
    TensorView view;
    int64_t sizes[sizeof...(axes)], strides[sizeof...(axes)];

    explicit Permuted(const TensorView& x)
        : view(x), sizes{x.sizes[axes]...}, strides{x.strides[axes]...} {}
    operator TensorView() const { return {view.data, view.type, view.rank, sizes, strides}; }
};

// @Corner deps: Convolution, Divisor
// An output pixel: its image, and where its window begins in it, which may be in the padding.
template <typename Index>
struct Corner {
    Index image;
    int at[3];

    __device__ __forceinline__ Corner(const Convolution& c, Index row) {
        const Index places = Index(c.places());
        image = row / places;
        find(c, unsigned(row - image * places),
             [&](unsigned place, int axis) { return place / unsigned(c.out[axis]); });
    }
    // The same by the sizes of c's output, where there are fewer than 2^31 pixels.
    __device__ __forceinline__ Corner(const Convolution& c, const Divisor (&out)[3], Index row) {
        image = Index(find(c, unsigned(row),
                           [&](unsigned place, int axis) { return out[axis].quotient(place); }));
    }
    // Returns how many whole outputs are before `place`.
    template <typename Quotient>
    __device__ __forceinline__ unsigned find(const Convolution& c, unsigned place,
                                             const Quotient& quotient) {
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const unsigned next = quotient(place, axis);
            at[axis] = int(place - next * c.out[axis]) * c.stride[axis] - c.padding[axis];
            place = next;
        }
        return place;
    }
};

// @value_at deps: Convolution
// A channel of the pixel at these places; zero outside of the image.
OPWELD_FN float value_at(const Convolution& c, int64_t image, const int (&at)[3], int64_t channel) {
    int64_t pixel = 0;
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
        if (unsigned(at[axis]) >= unsigned(c.size[axis])) return 0.0f;
        pixel = pixel * c.size[axis] + at[axis];
    }
    const int64_t place = image * c.batch + pixel * c.pixel + channel * c.channel;
    return static_cast<const float*>(c.x)[place];
}

// @value_in_window deps: Corner, value_at
// What a window shows of one channel at one of its taps.
OPWELD_FN float value_in_window(const Convolution& c, const int (&kernel)[3],
                                const Corner<int64_t>& corner, int64_t channel, int tap) {
    int at[3];
#pragma unroll
    for (int axis = 2; axis >= 0; --axis) {
        const int next = tap / kernel[axis];
        at[axis] = corner.at[axis] + (tap - next * kernel[axis]) * c.dilation[axis];
        tap = next;
    }
    return value_at(c, corner.image, at, channel);
}

// @Windows deps: value_in_window
// The values of operand a where they lie, by their flat position in a matrix without gaps whose
// k are (channel, tap).
struct Windows {
    using T = float;
    Convolution c;

    __device__ __forceinline__ float one(int64_t at) const {
        const int64_t taps = c.taps(), row = at / (c.channels * taps);
        const int64_t k = at - row * (c.channels * taps), channel = k / taps;
        return value_in_window(c, c.kernel, Corner<int64_t>(c, row), channel,
                               int(k - channel * taps));
    }
};

// @product_of_windows deps: Windows, Product
// The product whose operand a are Windows.
[[maybe_unused]] static Product product_of_windows(const Convolution& c) {
    const int64_t k = c.channels * c.taps();
    return {{nullptr, 0, k, 1}, {c.weight, 0, k, 1}, 1, c.batches * c.places(), c.filters, k};
}

// @ConvolutionForm deps: Convolution, TensorView
// A way to make the products of convolutions. Each hides what it does otherwise, and has
//   workspace_bytes(convolution)
//   launch(convolution, workspace, sink, stream)    a CUDA error code
struct ConvolutionForm {
    // Whether it reads the input as it lies.
    static bool reads(const Convolution&) { return true; }
    static bool fits(int64_t channels, const TensorView& weight) {
        return weight.sizes[1] == channels;
    }
};

// @convolve deps: type_of_float, ElementEpilogue, EpilogueStore, Windowed
// All convolutions of tensors. F says what becomes of an element (F::of takes it before its
// operands and results), F::kWindows where windows lie; Form is a ConvolutionForm.
template <typename F, typename Form>
static int64_t convolution_bytes(const TensorView& x, const TensorView& weight,
                                 const TensorView& result) {
    Workspace space{};
    const auto call = F::kWindows.of(x, weight, result, Form::reads, space);
    return space.used + Form::workspace_bytes(call.c);
}
// `own` are F's operands and results. Returns a cudaError_t, or which of them does not fit.
template <typename F, typename Form>
static int convolve(const TensorView& x, const TensorView& weight,
                    std::initializer_list<TensorView> own, void* workspace, void* stream_of_call) {
    const auto stream = static_cast<cudaStream_t>(stream_of_call);
    const TensorView& result = own.end()[-1];
    if (x.type != type_of<float> || weight.type != type_of<float>) return -1;
    if (!Form::fits(x.sizes[F::kWindows.axes[result.rank - 1]], weight)) return -2;
    ElementEpilogue<F, typename F::Operands> epilogue;
    const auto known = epilogue.laid_out_along(own.begin());
    if (known.misfit != 0 || known.num == 0) return known.misfit;
    Workspace space{static_cast<char*>(workspace)};
    const auto call = F::kWindows.of(x, weight, result, Form::reads, space);
    const int error = F::kWindows.copy(x, weight, call, stream);
    if (error) return error;
    const auto sink = EpilogueStore<decltype(epilogue)>::of(epilogue, !known.far,
                                                            epilogue.takes_packets(), known.num);
    return Form::launch(call.c, space.begin + space.used, sink, stream);
}

}  // namespace op
