// Convolutions in groups of several channels: filters of neighbouring groups are the columns of one
// product over the channels of all of them, with zeros where a filter does not see a channel, so
// that tiles are full. Each tile of columns multiplies the channels of its product alone.

namespace op {

// @TapsOfGroups deps: AllTaps
// As AllTaps, of groups of `seen` channels and `filters`, `joined` of which are a product.
struct TapsOfGroups : AllTaps {
    int seen, filters, joined;

    TapsOfGroups(const Convolution& c, int groups, int joined)
        : seen(int(c.channels / groups)), filters(int(c.filters / groups)), joined(joined) {}
    __host__ __device__ __forceinline__ int64_t channels(const Convolution&) const {
        return int64_t(seen) * joined;
    }
    __device__ __forceinline__ int first_interval(int column, int of_product) const {
        return column / (filters * joined) * of_product;
    }
    __device__ __forceinline__ int64_t filter_stride(const Convolution& c) const {
        return seen * c.taps();
    }
    __device__ __forceinline__ const float* filter(const Convolution& c, int64_t number) const {
        return static_cast<const float*>(c.weight) + number * filter_stride(c);
    }
    __device__ __forceinline__ int64_t place_in_filter(const Convolution& c, int, int column,
                                                       int channel, int tap) const {
        const int own = channel - column / filters % joined * seen;
        return unsigned(own) < unsigned(seen) ? own * c.taps() + tap : -1;
    }
};

// @sum_groups_in_float32 deps: TapsOfGroups, sum_windows_in_float32
// A warp's sums of intervals of k in float32, of columns next to each other that may see other
// channels.
template <int kWidth, int kTileN, int kPiece>
OPWELD_FN void sum_windows_in_float32(Sums<kTileN, kPiece>& sums, const Convolution& c,
                                      const TapsOfGroups& taps_of, const Taps& first, int,
                                      int intervals, const Corner<int> (&corners)[2], int column) {
    const int64_t channels = taps_of.channels(c), left = c.filters - column;
    const int before = taps_of.first_interval(column, first.of_channels) * kWidth;
    sums.clear();
#pragma unroll
    for (int i = 0; i < kTileN / 2; ++i) {
        const int row = i / 2 % 2, beside = i / 4 * 8 + i % 2;
        Taps taps = first;
#pragma unroll 1
        for (int interval = 0; interval < intervals && beside < left; ++interval) {
            int at[3];
#pragma unroll
            for (int axis = 0; axis < 3; ++axis)
                at[axis] = corners[row].at[axis] + taps.at[axis] * c.dilation[axis];
            const int begin = taps.interval * kWidth;
            const int end = int(min(channels, int64_t(begin + kWidth)));
            float some = 0.0f;
#pragma unroll 1
            for (int channel = begin; channel < end; ++channel) {
                const int64_t place =
                    taps_of.place_in_filter(c, 0, column + beside, channel, taps.tap);
                if (place < 0) continue;  // another group's
                const float value = taps_of.pixel(c, corners[row].image, at, before + channel);
                some = fmaf(value, taps_of.filter(c, column + beside)[place], some);
            }
            sums.value[i * 2 / kPiece][i % (kPiece / 2)] += some;
            taps.advance(c.kernel);
        }
    }
}

// @GroupEpilogue deps:
// Hands the elements of one group's product of so many columns, from column `first` of the whole
// result on, to its epilogue.
template <typename Epilogue>
struct GroupEpilogue {
    static constexpr int kLanes = 1;
    Epilogue whole;
    int64_t columns, first;

    template <int n, typename Index>
    __device__ __forceinline__ void operator()(Index at, const float (&values)[n]) const {
        const Index row = at / Index(columns), column = at - row * Index(columns);
        whole.template give<false>(whole.row_at(row), Index(first) + column, values);
    }
};

// @GroupTiles deps: GroupEpilogue, TapsOfGroups, WindowTiles, sum_groups_in_float32
// A convolution in kGroups by the tiles of Form, a WindowTiles, kJoined groups a product: their
// channels are whole intervals and their filters whole tiles, or they are all groups.
template <typename Form, int kGroups, int kJoined>
struct GroupTiles : ConvolutionForm {
    static bool fits(int64_t channels, const TensorView& weight) {
        return weight.sizes[1] * kGroups == channels && weight.sizes[0] % kGroups == 0;
    }
    static int64_t workspace_bytes(const Convolution& c) {
        const int64_t channels = TapsOfGroups(c, kGroups, kJoined).channels(c);
        return Form::takes(c) ? typename Form::Call(c, channels, nullptr).bytes : 0;
    }

    template <typename Epilogue>
    static int launch(const Convolution& c, void* workspace, const EpilogueStore<Epilogue>& sink,
                      cudaStream_t stream) {
        const TapsOfGroups taps_of(c, kGroups, kJoined);
        if (Form::takes(c))
            return Form::launch_packed(c, taps_of, PixelsOf<Form::kWidth>(c), workspace, sink,
                                       stream);
        for (int group = 0; group < kGroups; ++group) {
            Convolution own = c;
            own.channels = taps_of.seen, own.filters = taps_of.filters;
            own.x = static_cast<const float*>(c.x) + group * taps_of.seen * c.channel;
            own.weight = static_cast<const float*>(c.weight) +
                         int64_t(group) * taps_of.filters * taps_of.seen * c.taps();
            const GroupEpilogue<Epilogue> part{sink.epilogue, own.filters, group * own.filters};
            const int64_t extent = c.batches * c.places() * own.filters;
            const auto to =
                EpilogueStore<GroupEpilogue<Epilogue>>::of(part, sink.narrow, false, extent);
            const int error = launch_fma_product<float>(product_of_windows(own), Windows{own}, to,
                                                        nullptr, stream);
            if (error) return error;
        }
        return cudaSuccess;
    }
};

}  // namespace op
