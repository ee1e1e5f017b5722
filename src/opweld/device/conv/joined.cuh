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

// @pack_joined_filters_kernel deps: CallState, JoinedRows, pack_filter, start_dependents
// A block packs a filter, as pack_filters_kernel does.
struct JoinedFilter {
    const Convolution &from, &to;
    const float* data;
    int rows;

    __device__ __forceinline__ int64_t count() const { return from.channels * from.taps(); }
    __device__ __forceinline__ float any(int64_t i) const { return data[i]; }
    __device__ __forceinline__ float at(int64_t channel, int64_t tap) const {
        const JoinedRows::InputIndex own(from, int(channel));
        const int depth = int(tap) / to.kernel[1];
        const int row = (int(tap) - depth * to.kernel[1]) * rows + own.row;
        if (row >= from.kernel[1]) return 0.0f;
        const int64_t line = (own.channel * from.kernel[0] + depth) * from.kernel[1] + row;
        return data[line * from.kernel[2] + own.tap];
    }
};
template <int kParts>
static __global__ void __launch_bounds__(256)
    pack_joined_filters_kernel(const JoinedRows by, const PackedFilters filters, CallHead* call) {
    start_dependents();
    const int64_t filter = blockIdx.x;
    if (filter == 0 && threadIdx.x == 0) *call = {};
    const auto* all = static_cast<const float*>(by.from.weight);
    const JoinedFilter own{by.from, by.to, all + filter * by.from.channels * by.from.taps(),
                           by.rows};
    const int64_t row = by.to.taps() * interval_count(by.to.channels) * (kParts * kInterval);
    pack_filter<kParts>(own, by.to.channels, by.to.taps(), filters.packed + filter * row, filters,
                        filter);
}

// @pack_joined_kernel deps: JoinedRows, PackedFilters, Spots, dependents, pack_values, tell_call
// A block packs an interval of some columns of a row: 16 threads that of one column.
constexpr int kJoinedColumns = 128;

template <int kParts>
static __global__ void __launch_bounds__(256)
    pack_joined_kernel(const JoinedRows by, const PackedFilters filters, const int num_filters,
                       half* packed, float* scale, CallHead* call) {
    start_dependents();
    const Convolution &c = by.from, &to = by.to;
    const int64_t segments = (to.size[2] + kJoinedColumns - 1) / kJoinedColumns;
    const int64_t line = blockIdx.x / segments, rest = line / to.size[1];
    const int64_t image = rest / to.size[0];
    const int row = int(line - rest * to.size[1]), depth = int(rest - image * to.size[0]);
    const int begin = int(blockIdx.x - line * segments) * kJoinedColumns;
    const int interval = blockIdx.y, first = begin + threadIdx.x / kSpotThreads;
    const int k = interval * kInterval + threadIdx.x % kSpotThreads * 4;
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
    const int64_t pitch = int64_t(gridDim.y) * (kParts * kInterval);
    half* const own = packed + (image * to.pixels() + pixel) * pitch;
    float* const scales = scale + (image * gridDim.y + interval) * to.pixels() + pixel;
    int known = 0;
#pragma unroll 1
    for (int i = 0; i < kJoinedColumns && begin + i < to.size[2]; i += 256 / kSpotThreads) {
        const int column = first + i;
        const bool exists = column < to.size[2];
        Four v{};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int at = column * c.stride[2] + across[j];
            if (exists && unsigned(at) < unsigned(c.size[2])) v.x[j] = x[from[j] + at * c.pixel];
        }
        known |= pack_values<kParts>(v, exists, own + column * pitch, k, scales + column);
    }
    griddepcontrol_wait();  // for the filters, and the call's state
    if (blockIdx.x == 0 && blockIdx.y == 0) {
        for (int i = threadIdx.x; i < num_filters; i += 256) known |= filters.known[i];
    }
    tell(call, known);
}

// @JoinedTiles deps: JoinedRows, Launch, WindowTiles, Windows, launch_fma_product, pack_joined_filters_kernel, pack_joined_kernel, product_of_windows
// As WindowTiles, of few channels: kRows rows of taps are joined, which are whole steps of stride.
template <typename Mode, int kSpace, int kColumns, int kRows>
struct JoinedTiles {
    using Form = WindowTiles<Mode, kSpace, kColumns>;
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
        const typename Form::Call call(by.to, workspace);
        int error =
            Launch(c.filters, 256, 0, stream)
                .run(pack_joined_filters_kernel<Mode::kParts>, by, call.filters, call.pixels.head);
        if (!error) error = pack(by, call, stream);
        return error ? error : Form::multiply(by.to, call, c, sink, stream);
    }
    static int pack(const JoinedRows& by, const typename Form::Call& call, cudaStream_t stream) {
        const Convolution& to = by.to;
        const int64_t segments = (to.size[2] + kJoinedColumns - 1) / kJoinedColumns;
        Launch launch(to.batches * to.size[0] * to.size[1] * segments, 256, 0, stream);
        launch.config.gridDim.y = unsigned(call.pixels.of_channels);
        launch.start_early();
        return launch.run(pack_joined_kernel<Mode::kParts>, by, call.filters, int(by.from.filters),
                          call.pixels.packed, call.pixels.scales, call.pixels.head);
    }
};

}  // namespace op
