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

// @JoinedPixels deps: JoinedRows, Spots, pack_values
// As PixelsOf. A block packs an interval of some columns of a row: kThreads that of one column.
template <int kWidth>
struct JoinedPixels {
    static constexpr int kThreads = kWidth / 4, kColumns = 128 * kInterval / kWidth;
    JoinedRows by;
    int64_t segments, intervals;

    explicit JoinedPixels(const JoinedRows& by)
        : by(by),
          segments((by.to.size[2] + kColumns - 1) / kColumns),
          intervals(interval_count(by.to.channels, kWidth)) {}
    int64_t num_blocks() const {
        return by.to.batches * by.to.size[0] * by.to.size[1] * segments * intervals;
    }
    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scale) const;
};
template <int kWidth>
template <int kParts>
__device__ __forceinline__ void JoinedPixels<kWidth>::pack(int64_t block, half* packed,
                                                           float* scale) const {
    const Convolution &c = by.from, &to = by.to;
    const int64_t segment = block / intervals, line = segment / segments, rest = line / to.size[1];
    const int64_t image = rest / to.size[0];
    const int row = int(line - rest * to.size[1]), depth = int(rest - image * to.size[0]);
    const int begin = int(segment - line * segments) * kColumns;
    const int interval = int(block - segment * intervals);
    const int first = begin + threadIdx.x / kThreads;
    const int k = interval * kWidth + threadIdx.x % kThreads * 4;
    const auto* x = static_cast<const float*>(c.x) + image * c.batch;
    int64_t from[4];
    int across[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const JoinedRows::InputIndex own(c, k + i);
        const int y = row * c.stride[1] - c.padding[1] + own.row * c.dilation[1];
        from[i] = own.channel * c.channel + (int64_t(depth) * c.size[1] + y) * c.size[2] * c.pixel;
        // none where there is no such row
        across[i] = k + i < to.channels && unsigned(y) < unsigned(c.size[1])
                        ? own.tap * c.dilation[2] - c.padding[2]
                        : -(1 << 30);
    }
    const int64_t pixel = (int64_t(depth) * to.size[1] + row) * to.size[2];
    const int64_t pitch = intervals * (kParts * kWidth);
    half* const own = packed + (image * to.pixels() + pixel) * pitch;
    float* const scales = scale + (image * intervals + interval) * to.pixels() + pixel;
#pragma unroll 1
    for (int i = 0; i < kColumns && begin + i < to.size[2]; i += 256 / kThreads) {
        const int column = first + i;
        const bool exists = column < to.size[2];
        Four v{};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int at = column * c.stride[2] + across[j];
            if (exists && unsigned(at) < unsigned(c.size[2])) v.x[j] = x[from[j] + at * c.pixel];
        }
        pack_values<kParts, true, kThreads>(v, exists, own + column * pitch, k, scales + column);
    }
}

// @JoinedTiles deps: JoinedPixels, JoinedTaps, WindowTiles, Windows, launch_fma_product, product_of_windows
// As WindowTiles, of few channels: kRows rows of taps are joined, which are whole steps of stride.
template <typename Mode, int kSpace, int kColumns, int kRows, int kWidth = kInterval>
struct JoinedTiles {
    using Form = WindowTiles<Mode, kSpace, kColumns, kWidth>;
    static constexpr bool kChannelsLast = false;

    static bool takes(const Convolution& c) {
        return Form::takes(JoinedRows(c, kRows).to) && c.batches * c.pixels() < 1ll << 30;
    }
    static bool fits(int64_t channels, const TensorView& weight) {
        return Form::fits(channels, weight);
    }
    static int64_t workspace_bytes(const Convolution& c) {
        return takes(c) ? typename Form::Call(JoinedRows(c, kRows).to, nullptr).bytes : 0;
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
