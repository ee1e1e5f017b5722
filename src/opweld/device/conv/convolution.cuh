// Convolutions as matrix products: a row of operand a has what the windows of one output pixel
// show, k = (tap, channel) or (channel, tap), a row of b one filter. No such matrix is in memory;
// loaders find its values in the input.

namespace op {

// @Convolution deps:
// What the host tells of a convolution without groups. Sizes of space are (depth, height, width),
// 1 where there are fewer axes. Strides of x are in elements, its pixels evenly spaced; the weight
// is [filters][channels][taps] without gaps. `padding` is what stands before the first pixel.
struct Convolution {
    const void *x, *weight;
    int64_t batches, channels, filters;
    int64_t batch, pixel, channel;  // strides of x
    int size[3], kernel[3], stride[3], padding[3], dilation[3], out[3];

    __host__ __device__ int64_t taps() const { return int64_t(kernel[0]) * kernel[1] * kernel[2]; }
    __host__ __device__ int64_t pixels() const { return int64_t(size[0]) * size[1] * size[2]; }
    __host__ __device__ int64_t places() const { return int64_t(out[0]) * out[1] * out[2]; }
};

// @Corner deps: Convolution
// An output pixel: its image, and where its window begins in it, which may be in the padding.
template <typename Index>
struct Corner {
    Index image;
    int at[3];

    __device__ __forceinline__ Corner(const Convolution& c, Index row) {
        const Index places = Index(c.places());
        image = row / places;
        unsigned place = unsigned(row - image * places);
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const unsigned next = place / unsigned(c.out[axis]);
            at[axis] = int(place - next * c.out[axis]) * c.stride[axis] - c.padding[axis];
            place = next;
        }
    }
};

// @Windows deps: Convolution, Corner
// The values of operand a where they lie, by their flat position in a matrix without gaps whose
// k are (channel, tap).
struct Windows {
    using T = float;
    Convolution c;

    __device__ __forceinline__ float one(int64_t at) const {
        const int64_t taps = c.taps(), row = at / (c.channels * taps);
        const int64_t k = at - row * (c.channels * taps), channel = k / taps;
        const Corner<int64_t> corner(c, row);
        int tap = int(k - channel * taps);
        int64_t pixel = 0, step = 1;
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const int next = tap / c.kernel[axis];
            const int place = corner.at[axis] + (tap - next * c.kernel[axis]) * c.dilation[axis];
            if (place < 0 || place >= c.size[axis]) return 0.0f;
            pixel += place * step, step *= c.size[axis], tap = next;
        }
        return static_cast<const float*>(
            c.x)[corner.image * c.batch + pixel * c.pixel + channel * c.channel];
    }
};

// @product_of_windows deps: Windows, Product
// The product whose operand a are Windows.
[[maybe_unused]] static Product product_of_windows(const Convolution& c) {
    const int64_t k = c.channels * c.taps();
    return {{nullptr, 0, k, 1}, {c.weight, 0, k, 1}, 1, c.batches * c.places(), c.filters, k};
}

}  // namespace op
