// Convolutions of few channels: an interval of k would be almost empty with the channels of one
// tap. So the taps across, of several rows below each other, are joined with the channels, as the
// channels of a convolution with one tap across. Its input is packed as if it were in memory:
// [image][depth][row][output column] of channels (row, channel, tap across).

namespace op {

// @JoinedRows deps: Convolution
// The convolution `from`, and what it becomes where so many rows are joined. A packed row begins
// `stride` rows of the input below the one before.
struct JoinedRows {
    Convolution from, to;
    int rows;

    JoinedRows(const Convolution& c, int rows) : from(c), to(c), rows(rows) {
        const int taps = (c.kernel[1] + rows - 1) / rows;
        to.channels = rows * c.channels * c.kernel[2];
        to.dilation[1] = rows * c.dilation[1] / c.stride[1], to.dilation[2] = 1;
        to.size[1] = c.out[1] + (taps - 1) * to.dilation[1], to.size[2] = c.out[2];
        to.kernel[1] = taps, to.kernel[2] = 1;
        for (int axis = 1; axis < 3; ++axis) to.stride[axis] = 1, to.padding[axis] = 0;
    }
    // Which value of the input a channel is.
    struct InputIndex {
        int row, tap;
        int64_t channel;

        __device__ __forceinline__ InputIndex(const Convolution& c, int joined) {
            const int line = joined / c.kernel[2];
            tap = joined - line * c.kernel[2];
            row = line / int(c.channels);
            channel = line - row * int(c.channels);
        }
    };
};

// @JoinedTaps deps: AllTaps, JoinedRows
// As AllTaps, where `c` is what the convolution becomes: its operands lie in memory as before.
struct JoinedTaps : AllTaps {
    JoinedRows by;

    explicit JoinedTaps(const JoinedRows& by) : by(by) {}
    __device__ __forceinline__ float pixel(const Convolution&, int64_t image, const int (&at)[3],
                                           int channel) const {
        const Convolution& from = by.from;
        const JoinedRows::InputIndex own(from, channel);
        const int row = at[1] * from.stride[1] - from.padding[1] + own.row * from.dilation[1];
        const int column = at[2] * from.stride[2] - from.padding[2] + own.tap * from.dilation[2];
        return value_at(from, image, {at[0], row, column}, own.channel);
    }
    __device__ __forceinline__ const float* filter(const Convolution&, int64_t number) const {
        return AllTaps::filter(by.from, number);
    }
    __device__ __forceinline__ int64_t filter_stride(const Convolution&) const {
        return AllTaps::filter_stride(by.from);
    }
    __device__ __forceinline__ int64_t place_in_filter(const Convolution& to, int, int, int channel,
                                                       int tap) const {
        const Convolution& from = by.from;
        const JoinedRows::InputIndex own(from, channel);
        const int depth = tap / to.kernel[1];
        const int row = (tap - depth * to.kernel[1]) * by.rows + own.row;
        if (row >= from.kernel[1]) return -1;
        const int64_t line = (own.channel * from.kernel[0] + depth) * from.kernel[1] + row;
        return line * from.kernel[2] + own.tap;
    }
};

// @JoinedTiles deps: JoinedTaps, pack_joined, WindowTiles, Windows, launch_fma_product, product_of_windows
// As WindowTiles, of few channels: kRows rows of taps are joined, which are whole steps of stride.
template <typename Mode, int kSpace, int kColumns, int kRows, int kWidth = kInterval>
struct JoinedTiles : ConvolutionForm {
    using Form = WindowTiles<Mode, kSpace, kColumns, kWidth>;
    static bool takes(const Convolution& c) {
        return Form::takes(JoinedRows(c, kRows).to) && c.batches * c.pixels() < 1ll << 30;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        if (!takes(c)) return 0;
        const Convolution to = JoinedRows(c, kRows).to;
        return typename Form::Call(to, to.channels, nullptr).bytes;
    }
    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        if (!takes(c)) {
            return launch_fma_product<float>(product_of_windows(c), Windows{c}, sink, nullptr,
                                             stream);
        }
        const JoinedRows by(c, kRows);
        return Form::launch_packed(by.to, JoinedTaps(by), JoinedPixels<kWidth>(by), workspace, sink,
                                   stream);
    }
};

}  // namespace op
