// Where the input of a convolution of few channels is packed from, its taps joined (joined.cuh): it
// is read once into shared memory. Output pixels take from there what they see
// (joined_columns.cuh).

namespace op {

// @JoinedPixels deps: Divisor, JoinedRows, Spots, num_multiprocessors
// As PixelsOf. A block packs an interval, of kWidth values, of some columns of some rows, from a
// tile of the input in shared memory: of each row the lines (row, channel) that the interval has
// taps of; of each line the columns by their remainder, divided by the stride, so that neighbours
// of the output lie side by side. Where a tile would be too large, values are read one by one.
template <int kWidth>
struct JoinedPixels {
    static constexpr int kMostValues = 10 * 1024, kMostColumns = 256, kEnoughColumns = 512;
    static constexpr int kMostLines = 192;  // of up to eight rows, one for each warp
    JoinedRows by;
    int rows, columns, lines;       // rows of all images; lines of an interval at most
    int rows_of_block;              // a power of two
    int length, pitch, remainders;  // of a remainder, of a line; how many remainders have a tap
    bool in_tiles;
    Divisor intervals, segments, across, channels, stride, height, depth;

    explicit JoinedPixels(const JoinedRows& by)
        : by(by),
          rows(int(by.to.batches * by.to.size[0] * by.to.size[1])),
          intervals(interval_count(by.to.channels, kWidth)),
          across(by.from.kernel[2]),
          channels(by.from.channels),
          stride(by.from.stride[2]),
          height(by.to.size[1]),
          depth(by.to.size[0]) {
        const Convolution& c = by.from;
        const int taps = c.kernel[2], out = by.to.size[2];
        lines = std::min((kWidth + taps - 2) / taps + 1, by.rows * int(c.channels));
        remainders = c.dilation[2] == 1 ? std::min(taps, c.stride[2]) : c.stride[2];
        columns = std::min(out, kMostColumns);
        while (columns > 32 && !fits()) columns = (columns - 1) / 32 * 32;
        in_tiles = fits();
        segments = Divisor((out + columns - 1) / columns);
        if (segments.by > 1) columns = int((out + segments.by * 32 - 1) / (segments.by * 32)) * 32;
        if (in_tiles) lay_out();
        // as many as give each warp some columns, if all multiprocessors have blocks
        const int most = std::min(kMostLines / lines, in_tiles ? int(kMostValues / values()) : 8);
        const int64_t least = 4 * num_multiprocessors();
        rows_of_block = 1;
        for (int num = 2; num <= std::min(most, 8) && num * columns < 2 * kEnoughColumns;
             num *= 2) {
            if (rows / num * segments.by * intervals.by >= least) rows_of_block = num;
        }
    }
    // In banks of shared memory neighbours along k are neighbours too, as far as can be.
    void lay_out() {
        const Convolution& c = by.from;
        const int s = c.stride[2], odd = s % 32;
        const int step = s % 2 ? odd * (2 - odd * odd) : 1;  // 1 / s, modulo 32
        const int last = int(int64_t(c.kernel[2] - 1) * c.dilation[2] / s);
        length = aligned(columns + last, step, s < 8 ? 32 : 8);
        pitch = aligned(remainders * length, c.kernel[2] * step, 32);
    }
    static int aligned(int least, int to, int by) { return least + ((to - least) & (by - 1)); }
    // Whether a row of so many columns does, which is laid out.
    bool fits() {
        const Convolution& c = by.from;
        constexpr int64_t kFar = 1 << 24;
        if (c.stride[2] > kMostValues || (c.kernel[2] - 1ll) * c.dilation[2] > kFar) return false;
        if (c.size[2] * c.pixel > kFar) return false;  // offsets within a line are 32-bit ones
        lay_out();
        return values() <= kMostValues;
    }
    int64_t num_blocks() const {
        return (rows + rows_of_block - 1) / rows_of_block * segments.by * intervals.by;
    }
    // Of a row, with zeros behind its lines.
    __host__ __device__ int64_t values() const { return int64_t(lines) * pitch + columns; }

    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scale) const;
};

// @JoinedSpace deps: JoinedPixels
// The shared memory of a block.
template <int kWidth>
struct JoinedSpace {
    static constexpr int kAtOnce = 8;  // lines
    struct alignas(16) Line {
        const float* from;  // its first column in the input
        int to, width;      // its place in the tile, in bytes; none outside of the image
    };
    float value[JoinedPixels<kWidth>::kMostValues];
    Line line[JoinedPixels<kWidth>::kMostLines + kAtOnce];  // of each row; the last one again
    int place[kWidth];  // in bytes, of each value of the interval, from its row's on
    int scale[8];
};

// @JoinedBlock deps: JoinedSpace
// Which part of the packed input a block makes.
template <int kWidth>
struct JoinedBlock {
    using Space = JoinedSpace<kWidth>;
    const JoinedPixels<kWidth>& pixels;
    Space& space;
    int interval, row, rows, begin, columns, values, line, lines;

    __device__ __forceinline__ JoinedBlock(const JoinedPixels<kWidth>& pixels, Space& space,
                                           int block)
        : pixels(pixels), space(space) {
        const Convolution& to = pixels.by.to;
        const int segment = int(pixels.intervals.quotient(unsigned(block)));
        const int band = int(pixels.segments.quotient(unsigned(segment)));
        interval = block - segment * int(pixels.intervals.by);
        begin = (segment - band * int(pixels.segments.by)) * pixels.columns;
        columns = min(pixels.columns, to.size[2] - begin);
        row = band * pixels.rows_of_block;
        rows = min(pixels.rows_of_block, pixels.rows - row);
        const int first = interval * kWidth;
        values = min(kWidth, int(to.channels) - first);
        line = int(pixels.across.quotient(unsigned(first)));
        lines = int(pixels.across.quotient(unsigned(first + values - 1))) - line + 1;
    }
    // Columns of the input: the first, and how many.
    __device__ __forceinline__ int left() const {
        return begin * pixels.by.from.stride[2] - pixels.by.from.padding[2];
    }
    __device__ __forceinline__ int width() const {
        const Convolution& c = pixels.by.from;
        return (columns - 1) * c.stride[2] + (c.kernel[2] - 1) * c.dilation[2] + 1;
    }
    // Where a column of a line's tile stands; none if no tap sees it.
    __device__ __forceinline__ int place_of(int column) const {
        const int next = int(pixels.stride.quotient(unsigned(column)));
        const int left = column - next * pixels.by.from.stride[2];
        return left < pixels.remainders ? left * pixels.length + next : -1;
    }
    // Where values, lines and rows lie. A warp takes a row.
    __device__ __forceinline__ void find_places() const {
        const int warp = threadIdx.x / 32;
        if (warp < rows) find_lines(warp);
        if (threadIdx.x >= kWidth) return;
        const Convolution& c = pixels.by.from;
        const int own = threadIdx.x, k = interval * kWidth + own;
        const int below = int(pixels.across.quotient(unsigned(k)));
        const int place =
            (below - line) * pixels.pitch + place_of((k - below * c.kernel[2]) * c.dilation[2]);
        space.place[own] = (own < values ? place : pixels.lines * pixels.pitch) * 4;
    }
    __device__ __forceinline__ void find_lines(int own) const {
        const Convolution &c = pixels.by.from, &to = pixels.by.to;
        const int all = row + own, rest = int(pixels.height.quotient(unsigned(all)));
        const int image = int(pixels.depth.quotient(unsigned(rest)));
        const int first = (all - rest * to.size[1]) * c.stride[1] - c.padding[1];
        const int row_of_depth = (rest - image * to.size[0]) * c.size[1];
        const float* const from = static_cast<const float*>(c.x) + image * c.batch;
        const int begin_of_tile = own * int(pixels.values()) * 4;
        const int more = own == rows - 1 ? Space::kAtOnce : 0;
#pragma unroll 1
        for (int i = threadIdx.x % 32; i < lines + more; i += 32) {
            const int below = min(i, lines - 1);
            const int tap = int(pixels.channels.quotient(unsigned(line + below)));
            const int channel = line + below - tap * int(c.channels);
            const int y = first + tap * c.dilation[1];
            space.line[own * lines + i] = {
                from + (channel * c.channel + int64_t(row_of_depth + y) * c.size[2] * c.pixel),
                begin_of_tile + below * pixels.pitch * 4,
                unsigned(y) < unsigned(c.size[1]) ? c.size[2] : 0};
        }
        if (threadIdx.x % 32 == 0) {
            const int images = int(pixels.intervals.by - 1) * image + interval;
            space.scale[own] = images * int(to.pixels()) + all * to.size[2] + begin;
        }
    }
    // A value of the tile, by its place in bytes.
    __device__ __forceinline__ float& at(int place) const {
        return *reinterpret_cast<float*>(reinterpret_cast<char*>(space.value) + place);
    }
};

// @load_joined deps: JoinedBlock
// Fills the tile from an image whose columns are neighbours: a warp takes 32 of some lines at once.
template <int kWidth>
OPWELD_FN void load_lines(const JoinedBlock<kWidth>& block) {
    constexpr int kAtOnce = JoinedSpace<kWidth>::kAtOnce;
    const Convolution& c = block.pixels.by.from;
    const int step = int(c.pixel), width = block.width(), count = block.rows * block.lines;
    const int chunks = (width + 31) / 32, left = block.left();
    int chunk = threadIdx.x / 32, first = 0;
    while (true) {
        while (chunk >= chunks) chunk -= chunks, first += kAtOnce;
        if (first >= count) break;
        const int column = chunk * 32 + threadIdx.x % 32, at = left + column;
        const int place = column < width ? block.place_of(column) : -1;
        const unsigned in_line = place < 0 ? ~0u : unsigned(at);
        float v[kAtOnce];
        int to[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const auto line = block.space.line[first + i];
            to[i] = line.to + place * 4;
            v[i] = in_line < unsigned(line.width) ? __ldg(line.from + at * step) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            if (place >= 0) block.at(to[i]) = v[i];
        }
        chunk += 8;
    }
}

// Fills the tile from an image whose channels are neighbours: the threads of a block take some
// columns of `count` of them at a time.
template <int kWidth>
OPWELD_FN void load_channels(const JoinedBlock<kWidth>& block, int line, int count) {
    constexpr int kAtOnce = 4;
    const Convolution& c = block.pixels.by.from;
    const auto lines = block.space.line[line];
    const int width = block.width(), step = int(c.pixel), columns = int(256u / unsigned(count));
    int column = int(threadIdx.x / unsigned(count)), at = block.left() + column;
    const int channel = threadIdx.x - column * count;
    float* const to = &block.at(lines.to) + channel * block.pixels.pitch;
    if (column >= columns) return;
#pragma unroll 1
    while (column < width) {
        float v[kAtOnce];
        int place[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i, column += columns, at += columns) {
            place[i] = column < width ? block.place_of(column) : -1;
            const bool is_in = place[i] >= 0 && unsigned(at) < unsigned(lines.width);
            v[i] = is_in ? __ldg(lines.from + (at * step + channel)) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            if (place[i] >= 0) to[place[i]] = v[i];
        }
    }
}

template <int kWidth>
OPWELD_FN void load_joined(const JoinedBlock<kWidth>& block) {
    const JoinedPixels<kWidth>& pixels = block.pixels;
    const Convolution& c = pixels.by.from;
    if (c.channel == 1 && c.pixel != 1) {
        const int channels = int(c.channels);
        const int taps = int(pixels.channels.quotient(unsigned(block.line)));
        const int before = block.line - taps * channels;  // channels of its row
        for (int row = 0, i = 0; row < block.rows; ++row) {
            int channel = before;
            for (const int end = i + block.lines; i < end; channel = 0) {
                const int own = min(channels - channel, end - i);
                load_channels(block, i, own);
                i += own;
            }
        }
    } else {
        load_lines(block);
    }
    if (block.values == kWidth) return;
    for (int row = 0; row < block.rows; ++row) {
        const int zeros = row * int(pixels.values()) + pixels.lines * pixels.pitch;
#pragma unroll 1
        for (int i = threadIdx.x; i < pixels.columns; i += 256) block.space.value[zeros + i] = 0.0f;
    }
}

}  // namespace op
