// How the input of a convolution of few channels is packed, its taps joined (joined.cuh): read once
// into shared memory, from where output pixels take what their windows show.

namespace op {

// @JoinedPixels deps: Divisor, JoinedRows, Spots, num_multiprocessors
// As PixelsOf. A block packs an interval of some columns of some rows, from a tile of the input in
// shared memory: of each row the lines (row, channel) that the interval has taps of; of each line
// the columns by their remainder, divided by the stride, so that neighbours of the output lie side
// by side. Where a tile would be too large, values are read one by one.
struct JoinedPixels {
    static constexpr int kMostValues = 8 * 1024, kMostColumns = 256;
    static constexpr int kMostRows = 8, kMostLines = 256;
    JoinedRows by;
    int rows, columns, rows_of_block, lines;  // rows of all images; lines of an interval at most
    int length, pitch, remainders;  // of a remainder, of a line; how many remainders have a tap
    bool in_tiles;
    Divisor intervals, segments, across, channels, stride, height, depth;

    explicit JoinedPixels(const JoinedRows& by)
        : by(by),
          rows(int(by.to.batches * by.to.size[0] * by.to.size[1])),
          intervals(interval_count(by.to.channels)),
          across(by.from.kernel[2]),
          channels(by.from.channels),
          stride(by.from.stride[2]),
          height(by.to.size[1]),
          depth(by.to.size[0]) {
        const Convolution& c = by.from;
        const int taps = c.kernel[2], out = by.to.size[2];
        lines = std::min((kInterval + taps - 2) / taps + 1, by.rows * int(c.channels));
        remainders = c.dilation[2] == 1 ? std::min(taps, c.stride[2]) : c.stride[2];
        columns = std::min(out, kMostColumns);
        while (columns > 32 && !fits()) columns = (columns - 1) / 32 * 32;
        in_tiles = fits();
        segments = Divisor((out + columns - 1) / columns);
        if (segments.by > 1) columns = int((out + segments.by * 32 - 1) / (segments.by * 32)) * 32;
        if (in_tiles) lay_out();
        // as many as give each warp some columns, if all multiprocessors have blocks
        const int few = std::min(kMostRows, kMostLines / lines);
        const int most = in_tiles ? std::min(few, int(kMostValues / values())) : few;
        rows_of_block = 1;
        while (rows_of_block < most && rows_of_block * columns < kMostColumns &&
               rows / (rows_of_block + 1) * pairs() >= 4 * num_multiprocessors()) {
            ++rows_of_block;
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
    bool fits() {
        const Convolution& c = by.from;
        constexpr int64_t kFar = 1 << 24;
        if (c.stride[2] > kMostValues || (c.kernel[2] - 1ll) * c.dilation[2] > kFar) return false;
        if (c.size[2] * c.pixel > kFar) return false;  // offsets within a line are 32-bit ones
        lay_out();
        return values() <= kMostValues;
    }
    int64_t pairs() const { return segments.by * intervals.by; }
    int64_t num_blocks() const { return (rows + rows_of_block - 1) / rows_of_block * pairs(); }
    // Of a row, with zeros behind its lines.
    __host__ __device__ int64_t values() const { return int64_t(lines) * pitch + columns; }

    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scale) const;
};

// @JoinedSpace deps: JoinedPixels
// The shared memory of a block.
struct JoinedSpace {
    struct Line {
        const float* from;  // its first column in the input; null outside of the image
        int to, padding;    // its place in the tile
    };
    float value[JoinedPixels::kMostValues];
    Line line[JoinedPixels::kMostLines];  // of each row
    int place[kInterval];  // in bytes, of each value of the interval, from its row's on
    int scale[JoinedPixels::kMostRows];
};

// @JoinedBlock deps: JoinedSpace
// Which part of the packed input a block makes.
struct JoinedBlock {
    const JoinedPixels& pixels;
    JoinedSpace& space;
    int interval, row, rows, begin, columns, values, line, lines;

    __device__ __forceinline__ JoinedBlock(const JoinedPixels& pixels, JoinedSpace& space,
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
        const int first = interval * kInterval;
        values = min(kInterval, int(to.channels) - first);
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
    // Where values, lines and rows lie.
    __device__ __forceinline__ void find_places() const {
        const Convolution &c = pixels.by.from, &to = pixels.by.to;
        for (int i = threadIdx.x; i < rows * lines; i += 256) {
            const int own = i / lines, below = line + i - own * lines;
            const int all = row + own, rest = int(pixels.height.quotient(unsigned(all)));
            const int image = int(pixels.depth.quotient(unsigned(rest)));
            const int depth = rest - image * to.size[0];
            const int tap = int(pixels.channels.quotient(unsigned(below)));
            const int y =
                (all - rest * to.size[1]) * c.stride[1] - c.padding[1] + tap * c.dilation[1];
            const int64_t channel = below - tap * int(c.channels);
            const float* const from = static_cast<const float*>(c.x) + image * c.batch +
                                      channel * c.channel +
                                      (int64_t(depth) * c.size[1] + y) * c.size[2] * c.pixel;
            space.line[i] = {unsigned(y) < unsigned(c.size[1]) ? from : nullptr,
                             own * int(pixels.values()) + (i - own * lines) * pixels.pitch, 0};
            if (below == line) {
                const int images = int(pixels.intervals.by - 1) * image + interval;
                space.scale[own] = images * int(to.pixels()) + all * to.size[2] + begin;
            }
        }
        if (threadIdx.x < kInterval) {
            const int k = interval * kInterval + threadIdx.x;
            const int below = int(pixels.across.quotient(unsigned(k)));
            const int own = place_of((k - below * c.kernel[2]) * c.dilation[2]);
            const bool exists = int(threadIdx.x) < values;
            const int lines_before = exists ? below - line : pixels.lines;
            space.place[threadIdx.x] = (lines_before * pixels.pitch + (exists ? own : 0)) * 4;
        }
    }
};

// @load_joined deps: JoinedBlock
// Fills the tile from an image whose columns are neighbours: a warp takes 32 of them of four lines.
OPWELD_FN void load_lines(const JoinedBlock& block) {
    constexpr int kAtOnce = 4;
    const Convolution& c = block.pixels.by.from;
    const int step = int(c.pixel), width = block.width(), count = block.rows * block.lines;
    const int chunks = (width + 31) / 32;
    int chunk = threadIdx.x / 32, first = 0;
    while (true) {
        while (chunk >= chunks) chunk -= chunks, first += kAtOnce;
        if (first >= count) break;
        const int column = chunk * 32 + threadIdx.x % 32, at = block.left() + column;
        const int place = column < width ? block.place_of(column) : -1;
        const bool is_in = place >= 0 && unsigned(at) < unsigned(c.size[2]);
        float v[kAtOnce];
        int to[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            const JoinedSpace::Line line = block.space.line[min(first + i, count - 1)];
            to[i] = line.to + place;
            v[i] = is_in && line.from ? __ldg(line.from + at * step) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            if (place >= 0) block.space.value[to[i]] = v[i];
        }
        chunk += 8;
    }
}

// The same of an image whose channels are neighbours: the threads of a block take some columns of
// `count` of them at a time.
OPWELD_FN void load_channels(const JoinedBlock& block, int line, int count) {
    constexpr int kAtOnce = 4;
    const Convolution& c = block.pixels.by.from;
    const JoinedSpace::Line lines = block.space.line[line];
    const int width = block.width(), step = int(c.pixel), columns = 256 / count;
    int column = threadIdx.x / count, at = block.left() + column;
    const int channel = threadIdx.x - column * count;
    float* const to = block.space.value + lines.to + channel * block.pixels.pitch;
    if (column >= columns) return;
#pragma unroll 1
    while (column < width) {
        float v[kAtOnce];
        int place[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i, column += columns, at += columns) {
            place[i] = column < width ? block.place_of(column) : -1;
            const bool is_in = lines.from && place[i] >= 0 && unsigned(at) < unsigned(c.size[2]);
            v[i] = is_in ? __ldg(lines.from + (at * step + channel)) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
            if (place[i] >= 0) to[place[i]] = v[i];
        }
    }
}

OPWELD_FN void load_joined(const JoinedBlock& block) {
    const JoinedPixels& pixels = block.pixels;
    const Convolution& c = pixels.by.from;
    if (c.channel == 1 && c.pixel != 1) {
        const int channels = int(c.channels);
        const int before = block.line % channels;  // of the first row of taps
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
    if (block.values == kInterval) return;
    for (int row = 0; row < block.rows; ++row) {
        const int zeros = row * int(pixels.values()) + pixels.lines * pixels.pitch;
        for (int i = threadIdx.x; i < pixels.columns; i += 256) block.space.value[zeros + i] = 0.0f;
    }
}

// @pack_columns deps: JoinedBlock, maximum, pack_values
// Lanes that share a column. They take eight neighbours along k each, and the next so many.
constexpr int kColumnLanes = kInterval < 32 ? kInterval / 8 : 4;
constexpr int kColumnsOfWarp = 32 / kColumnLanes, kOctets = kInterval / 8 / kColumnLanes;

struct Octets {
    float x[kOctets][8];
};

// Whether none but zero loses digits, and the largest of a column.
template <int kParts>
OPWELD_FN bool keeps_digits(const Octets& v, int octets, float& largest) {
    float most = 0.0f;
    uint32_t least =
        0;  // of bits without the sign, negated: the nearest to zero, which itself is 0
#pragma unroll
    for (int i = 0; i < kOctets; ++i) {
        if (i >= octets) break;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            most = maximum(most, fabsf(v.x[i][j]));
            least = max(least, __float_as_uint(v.x[i][j]) * 0xFFFFFFFEu);
        }
    }
#pragma unroll
    for (int step = kColumnLanes / 2; step; step /= 2) {
        most = maximum(most, __shfl_xor_sync(~0u, most, step));
    }
    largest = most;
    const float nearest = __uint_as_float((0u - least) >> 1);
    return least == 0 || nearest * power_of_two(lift(exponent_of(most))) >= kLeastKept<kParts>;
}

// Eight neighbours along k of which none but zero loses digits.
template <int kParts>
OPWELD_FN void put_octet(const float (&v)[8], float scale, half* to) {
    alignas(16) half2 upper[4];
    [[maybe_unused]] alignas(16) half2 lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
        upper[i] = __floats2half2_rn(a, b);
        if constexpr (kParts == 2) {
            const float2 wide = __half22float2(upper[i]);
            lower[i] = __floats2half2_rn(a - wide.x, b - wide.y);
        }
    }
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(upper);
    if constexpr (kParts == 2) {
        *reinterpret_cast<uint4*>(to + 64 / kParts) = *reinterpret_cast<const uint4*>(lower);
    }
}

// The same of any values; tells how many lose digits as excess_of does.
template <int kParts>
OPWELD_FN int put_exactly(const float (&v)[8], float scale, half* interval, int k, bool exists) {
    int excess = 0;
#pragma unroll
    for (int i = 0; i < 8; i += 4) {
        const Four lifted = scaled({{v[i], v[i + 1], v[i + 2], v[i + 3]}}, scale);
        excess += excess_of<kParts>(lifted);
        if (exists) put_parts<kParts>(interval, k + i, lifted);
    }
    return excess;
}

// As pack_values, from where a column's interval begins on: of all its lanes, which have values in
// so many of their octets.
template <int kParts>
OPWELD_FN void pack_octets(const Octets& v, int octets, bool exists, half* interval, float* scale) {
    constexpr int kStep = kColumnLanes * 8;
    static_assert(64 / kParts % kStep == 0, "upper and lower parts of octets are as far apart");
    float largest;
    const bool keeps = keeps_digits<kParts>(v, octets, largest);
    const int up = lift(exponent_of(largest)), begin = threadIdx.x % kColumnLanes * 8;
    int excess = 0;
    if (__all_sync(~0u, keeps)) {
#pragma unroll
        for (int i = 0; i < kOctets; ++i) {
            half* const to = interval + i * (kStep * kParts) + begin;
            if (exists) put_octet<kParts>(v.x[i], power_of_two(up), to);
        }
    } else {
#pragma unroll
        for (int i = 0; i < kOctets; ++i) {
            const int k = begin + i * kStep;
            excess += put_exactly<kParts>(v.x[i], power_of_two(up), interval, k, exists);
        }
#pragma unroll
        for (int step = kColumnLanes / 2; step; step /= 2) {
            excess += __shfl_xor_sync(~0u, excess, step);
        }
    }
    if (exists && begin == 0) *scale = packed_scale(largest, up, excess > 0);
}

// Calls visit(row, first column, its number among all pixels) for so many columns of the block's
// after the other, by all warps in turn.
template <int kColumns, typename Visit>
OPWELD_FN void for_columns(const JoinedBlock& block, const Visit& visit) {
    const int end = (block.columns + kColumns - 1) / kColumns * kColumns;
    const int width = block.pixels.by.to.size[2];
    int first = threadIdx.x / 32 * kColumns, row = 0;
    while (true) {
        while (first >= end) first -= end, ++row;
        if (row >= block.rows) return;
        visit(row, first, (block.row + row) * width + block.begin + first);
        first += 8 * kColumns;
    }
}

// From the tile.
template <int kParts>
OPWELD_FN void pack_columns(const JoinedBlock& block, half* packed, float* scale) {
    constexpr int kStep = kColumnLanes * 8, kDepth = 64 / kParts;
    const int octets = (block.values + kStep - 1) / kStep, k = block.interval * kInterval;
    const int own = threadIdx.x % 32 / kColumnLanes, values = int(block.pixels.values());
    const int pitch = int(block.pixels.intervals.by) * (kParts * kInterval);
    half* const interval = packed + k / kDepth * 64 + k % kDepth;
    int places[kOctets][8];
#pragma unroll
    for (int i = 0; i < kOctets; ++i) {
        const int* const octet = block.space.place + i * kStep + threadIdx.x % kColumnLanes * 8;
#pragma unroll
        for (int j = 0; j < 8; ++j) places[i][j] = octet[j];
    }
    for_columns<kColumnsOfWarp>(block, [&](int row, int first, int pixel) {
        const int column = min(first + own, block.columns - 1);
        const auto* const from =
            reinterpret_cast<const char*>(block.space.value + row * values + column);
        Octets v{};
#pragma unroll
        for (int i = 0; i < kOctets; ++i) {
            if (i >= octets) break;
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                v.x[i][j] = *reinterpret_cast<const float*>(from + places[i][j]);
            }
        }
        pack_octets<kParts>(v, octets, first + own < block.columns,
                            interval + int64_t(pixel + own) * pitch,
                            scale + (block.space.scale[row] + first + own));
    });
}

// From memory: as many threads for a column as a spot has.
template <int kParts>
OPWELD_FN void pack_from_memory(const JoinedBlock& block, half* packed, float* scale) {
    const Convolution& c = block.pixels.by.from;
    const int begin = threadIdx.x % kSpotThreads * 4, k = block.interval * kInterval + begin;
    const int64_t pitch = block.pixels.intervals.by * (kParts * kInterval);
    int lines[4], across[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int line = int(block.pixels.across.quotient(unsigned(k + i)));
        across[i] = block.left() + (k + i - line * c.kernel[2]) * c.dilation[2];
        lines[i] = begin + i < block.values ? line - block.line : -1;
    }
    for_columns<32 / kSpotThreads>(block, [&](int row, int first, int pixel) {
        const int own = threadIdx.x % 32 / kSpotThreads;
        const bool exists = first + own < block.columns;
        Four v{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = (first + own) * c.stride[2] + across[i];
            if (!exists || lines[i] < 0 || unsigned(at) >= unsigned(c.size[2])) continue;
            const float* const line = block.space.line[row * block.lines + lines[i]].from;
            if (line) v.x[i] = __ldg(line + at * c.pixel);
        }
        pack_values<kParts, true>(v, exists, packed + (pixel + own) * pitch, k,
                                  scale + block.space.scale[row] + first + own);
    });
}

// @pack_joined deps: load_joined, pack_columns
template <int kParts>
__device__ __forceinline__ void JoinedPixels::pack(int64_t number, half* packed,
                                                   float* scale) const {
    __shared__ JoinedSpace space;
    const JoinedBlock block(*this, space, int(number));
    block.find_places();
    __syncthreads();
    if (in_tiles) {
        load_joined(block);
        __syncthreads();
        pack_columns<kParts>(block, packed, scale);
    } else {
        pack_from_memory<kParts>(block, packed, scale);
    }
}

}  // namespace op
