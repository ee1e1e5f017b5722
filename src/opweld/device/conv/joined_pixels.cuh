// How the input of a convolution of few channels is packed, its taps joined (joined.cuh): read once
// into shared memory, from where output pixels take what their windows show.

namespace op {

// @JoinedPixels deps: JoinedRows, Spots, num_multiprocessors
// As PixelsOf. A block packs an interval of some columns of some rows, from a tile of the input in
// shared memory: of each row the lines (row, channel) that the interval has taps of, of each line
// the columns by their remainder, divided by the stride, so that neighbouring outputs see
// neighbours. Where not even the tile of a warp fits, values are read one by one.
struct JoinedPixels {
    static constexpr int kMostValues = 6 * 1024, kMostColumns = 256, kMostRows = 8;
    JoinedRows by;
    int64_t rows, segments, intervals;
    int columns, rows_of_block, lines;  // lines of an interval at most
    Divisor stride;
    int remainders;  // that have a tap
    bool in_tiles;

    explicit JoinedPixels(const JoinedRows& by)
        : by(by),
          rows(by.to.batches * by.to.size[0] * by.to.size[1]),
          intervals(interval_count(by.to.channels)),
          stride(by.from.stride[2]) {
        const Convolution& c = by.from;
        const int across = c.kernel[2], out = by.to.size[2];
        lines = std::min((kInterval + across - 2) / across + 1, by.rows * int(c.channels));
        remainders = c.dilation[2] == 1 ? std::min(across, c.stride[2]) : c.stride[2];
        columns = std::min(out, kMostColumns);
        while (columns > 32 && values() > kMostValues) columns = (columns - 1) / 32 * 32;
        in_tiles = values() <= kMostValues;
        segments = (out + columns - 1) / columns;
        if (segments > 1) columns = int((out + segments * 32 - 1) / (segments * 32)) * 32;
        choose_rows();
    }
    // So many rows that each warp has 32 columns to pack, if so many blocks are left.
    void choose_rows() {
        const int groups = (columns + 31) / 32;
        const auto used = [&](int num) { return num * groups / double((num * groups + 7) / 8); };
        rows_of_block = 1;
        for (int num = 2; num <= kMostRows; ++num) {
            const int64_t blocks = rows / num * segments * intervals;
            if (in_tiles && num * values() > kMostValues) break;
            if (blocks < 4 * num_multiprocessors()) break;
            if (used(num) > 1.15 * used(rows_of_block)) rows_of_block = num;
        }
    }
    int64_t num_blocks() const {
        return (rows + rows_of_block - 1) / rows_of_block * segments * intervals;
    }
    // Columns of a remainder, of a line and of all lines of a row; a line has an odd number, so
    // that those below each other lie in other banks. Zeros stand behind the lines.
    __host__ __device__ int64_t length() const {
        return columns + int64_t(by.from.kernel[2] - 1) * by.from.dilation[2] / by.from.stride[2];
    }
    __host__ __device__ int64_t pitch() const { return remainders * length() | 1; }
    __host__ __device__ int64_t values() const { return lines * pitch() + columns; }

    template <int kParts>
    __device__ __forceinline__ void pack(int64_t block, half* packed, float* scale) const;
};

// @JoinedSpace deps: JoinedPixels
// The shared memory of a block.
struct JoinedSpace {
    float value[JoinedPixels::kMostValues];
    uint4 packed[8][32 * 4];     // of each warp's columns
    int place[kInterval];        // of each value of the interval, in a row's tile
    int64_t channel[kInterval];  // of each line, where it lies in the input
    int row[kInterval];          // of each line, from that of the first tap
    int64_t pixel[JoinedPixels::kMostRows], scale[JoinedPixels::kMostRows];  // where a row begins
    int first[JoinedPixels::kMostRows];  // the row of its first tap
    uint32_t least;                      // of the tile, see least_of
};

// @JoinedBlock deps: JoinedSpace
// Which part of the packed input a block makes.
struct JoinedBlock {
    const JoinedPixels& pixels;
    JoinedSpace& space;
    int interval, begin, columns, rows, line, lines, values;
    int64_t row;

    __device__ __forceinline__ JoinedBlock(const JoinedPixels& pixels, JoinedSpace& space,
                                           int64_t block)
        : pixels(pixels), space(space) {
        const Convolution& to = pixels.by.to;
        const int64_t segment = block / pixels.intervals, band = segment / pixels.segments;
        interval = int(block - segment * pixels.intervals);
        begin = int(segment - band * pixels.segments) * pixels.columns;
        columns = min(pixels.columns, to.size[2] - begin);
        row = band * pixels.rows_of_block;
        rows = int(min(int64_t(pixels.rows_of_block), pixels.rows - row));
        const int first = interval * kInterval, across = pixels.by.from.kernel[2];
        values = min(kInterval, int(to.channels) - first);
        line = first / across;
        lines = (first + values - 1) / across - line + 1;
    }
    // Columns of the input: the first, and how many.
    __device__ __forceinline__ int left() const {
        return begin * pixels.by.from.stride[2] - pixels.by.from.padding[2];
    }
    __device__ __forceinline__ int width() const {
        const Convolution& c = pixels.by.from;
        return (columns - 1) * c.stride[2] + (c.kernel[2] - 1) * c.dilation[2] + 1;
    }
    // Where the values, lines and rows lie.
    __device__ __forceinline__ void find_places() const {
        const Convolution &c = pixels.by.from, &to = pixels.by.to;
        const int own = threadIdx.x, pitch = int(pixels.pitch());
        if (own == 0) space.least = 0;
        if (own < kInterval) {
            const JoinedRows::InputIndex at(c, (line + own) * c.kernel[2]);
            space.channel[own] = at.channel * c.channel;
            space.row[own] = at.row * c.dilation[1];
            const int k = interval * kInterval + own, below = k / c.kernel[2];
            const int column = (k - below * c.kernel[2]) * c.dilation[2];
            const int next = column / c.stride[2], left = column - next * c.stride[2];
            const int place = (below - line) * pitch + left * int(pixels.length()) + next;
            space.place[own] = own < values ? place : pixels.lines * pitch;
        } else if (own - kInterval < rows) {
            const int i = own - kInterval;
            const int64_t all = row + i, rest = all / to.size[1], image = rest / to.size[0];
            const int64_t depth = rest - image * to.size[0];
            space.first[i] = int(all - rest * to.size[1]) * c.stride[1] - c.padding[1];
            space.pixel[i] = image * c.batch + depth * c.size[1] * c.size[2] * c.pixel;
            space.scale[i] = image * (pixels.intervals - 1) * to.pixels() + interval * to.pixels() +
                             all * to.size[2] + begin;
        }
    }
    // The first column of a line of a row in memory; none where the line is outside of the image.
    __device__ __forceinline__ const float* line_at(int i, int line) const {
        const Convolution& c = pixels.by.from;
        const int y = space.first[i] + space.row[line];
        if (unsigned(y) >= unsigned(c.size[1])) return nullptr;
        return static_cast<const float*>(c.x) + space.pixel[i] + space.channel[line] +
               int64_t(y) * c.size[2] * c.pixel;
    }
};

// @load_joined deps: JoinedBlock
// Of values, as a number that is larger the nearer they are to zero, which itself is 0; the largest
// for NaN.
[[maybe_unused]] OPWELD_FN uint32_t least_of(float x) {
    return x != x ? ~0u : 0u - 2 * __float_as_uint(x);
}

// Fills the tile; gives the largest least_of its values. A warp takes a line, and its lanes
// columns.
OPWELD_FN uint32_t load_lines(const JoinedBlock& block) {
    constexpr int kAtOnce = 4;
    const JoinedPixels& pixels = block.pixels;
    const Convolution& c = pixels.by.from;
    const int lane = threadIdx.x % 32, stride = c.stride[2], length = int(pixels.length());
    const int first = int(pixels.stride.quotient(unsigned(lane)));
    const int steps = 32 / stride, rest = 32 - steps * stride, pitch = int(pixels.pitch());
    const int left = block.left(), width = block.width();
    uint32_t least = 0;
    for (int i = threadIdx.x / 32; i < block.rows * block.lines; i += 8) {
        const int row = i / block.lines, line = i - row * block.lines;
        const float* const from = block.line_at(row, line);
        float* const to = block.space.value + row * int(pixels.values()) + line * pitch;
        int next = first, remainder = lane - first * stride;
#pragma unroll 1
        for (int x = lane; x < width; x += 32 * kAtOnce) {
            float v[kAtOnce];
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j) {
                const int at = left + x + j * 32;
                const bool is_in = from && x + j * 32 < width && unsigned(at) < unsigned(c.size[2]);
                v[j] = is_in ? from[at * c.pixel] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < kAtOnce; ++j) {
                if (x + j * 32 < width && remainder < pixels.remainders) {
                    to[remainder * length + next] = v[j];
                    least = max(least, least_of(v[j]));
                }
                next += steps, remainder += rest;
                if (remainder >= stride) remainder -= stride, ++next;
            }
        }
    }
    return least;
}

// The same where channels are neighbours: the threads of a block take those of a row's columns.
OPWELD_FN uint32_t load_pixels(const JoinedBlock& block, int row, int first, int count) {
    constexpr int kAtOnce = 4;
    const JoinedPixels& pixels = block.pixels;
    const Convolution& c = pixels.by.from;
    const float* const from = block.line_at(row, first);
    const int pitch = int(pixels.pitch()), length = int(pixels.length());
    float* const to = block.space.value + row * int(pixels.values()) + first * pitch;
    const int steps = 256 / count, rest = 256 - steps * count;
    const int left = block.left(), width = block.width();
    int column = threadIdx.x / count, channel = threadIdx.x - column * count;
    uint32_t least = 0;
#pragma unroll 1
    while (column < width) {
        float v[kAtOnce];
        int place[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            const int at = left + column, next = int(pixels.stride.quotient(unsigned(column)));
            const int remainder = column - next * c.stride[2];
            const bool is_needed = column < width && remainder < pixels.remainders;
            place[j] = is_needed ? channel * pitch + remainder * length + next : -1;
            const bool is_in = from && is_needed && unsigned(at) < unsigned(c.size[2]);
            v[j] = is_in ? from[at * c.pixel + channel] : 0.0f;
            column += steps, channel += rest;
            if (channel >= count) channel -= count, ++column;
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            if (place[j] < 0) continue;
            to[place[j]] = v[j];
            least = max(least, least_of(v[j]));
        }
    }
    return least;
}

OPWELD_FN void load_joined(const JoinedBlock& block) {
    const JoinedPixels& pixels = block.pixels;
    const Convolution& c = pixels.by.from;
    const int channels = int(c.channels), end = block.line + block.lines;
    uint32_t least = 0;
    if (c.channel == 1 && c.pixel != 1) {
        for (int row = 0; row < block.rows; ++row) {
            for (int line = block.line; line < end;) {
                const int count = min(end, (line / channels + 1) * channels) - line;
                least = max(least, load_pixels(block, row, line - block.line, count));
                line += count;
            }
        }
    } else {
        least = load_lines(block);
    }
    for (int row = 0; row < block.rows; ++row) {
        const int zeros = row * int(pixels.values()) + pixels.lines * int(pixels.pitch());
        for (int i = threadIdx.x; i < pixels.columns; i += 256) block.space.value[zeros + i] = 0.0f;
    }
    least = __reduce_max_sync(~0u, least);
    if (threadIdx.x % 32 == 0) atomicMax(&block.space.least, least);
}

// @pack_columns deps: JoinedBlock, pack_values
// What of packed columns a warp packs: where they begin, and from one to the next.
struct PackedColumns {
    half* packed;
    float* scales;
    int64_t pitch;
    int count;  // up to 32
};

// With as many threads for a column as a spot has: they read(column, i) four values each.
template <int kParts, typename Read>
OPWELD_FN void pack_spots(const PackedColumns& to, int interval, const Read& read) {
    const int k = interval * kInterval + threadIdx.x % kSpotThreads * 4;
#pragma unroll 1
    for (int i = 0; i < to.count; i += 32 / kSpotThreads) {
        const int column = i + threadIdx.x % 32 / kSpotThreads;
        Four v{};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (column < to.count) v.x[j] = read(column, j);
        }
        pack_values<kParts, true>(v, column < to.count, to.packed + column * to.pitch, k,
                                  to.scales + column);
    }
}

// Whether none but zero loses digits of those down to this one.
template <int kParts>
OPWELD_FN bool keeps_digits(uint32_t least, int up) {
    return least == 0 ||
           __uint_as_float((0u - least) >> 1) * power_of_two(up) >= kLeastKept<kParts>;
}

// Eight neighbours along k that lose no digits, as upper or as upper and lower parts.
template <int kParts>
OPWELD_FN void put_pieces(const float (&v)[8], uint4& upper, uint4& lower) {
    alignas(16) half2 high[4];
    [[maybe_unused]] alignas(16) half2 low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        high[i] = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
        if constexpr (kParts == 2) {
            const float2 wide = __half22float2(high[i]);
            low[i] = __floats2half2_rn(v[2 * i] - wide.x, v[2 * i + 1] - wide.y);
        }
    }
    upper = *reinterpret_cast<const uint4*>(high);
    if constexpr (kParts == 2) lower = *reinterpret_cast<const uint4*>(low);
}

// Calls visit(k, values) for eight neighbours along k after the other.
template <typename Visit>
OPWELD_FN void visit_column(const JoinedSpace& space, const float* column, int begin, int end,
                            const Visit& visit) {
#pragma unroll 2
    for (int k = begin; k < end; k += 8) {
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const int4 at = *reinterpret_cast<const int4*>(space.place + k + i);
            v[i] = column[at.x], v[i + 1] = column[at.y];
            v[i + 2] = column[at.z], v[i + 3] = column[at.w];
        }
        visit(k, v);
    }
}

// Columns whose values lose no digits. Lanes make parts of a column each, for `kStep` values at a
// time, and write neighbouring pieces of 16 bytes.
template <int kParts>
OPWELD_FN void put_columns(const JoinedBlock& block, const float* column, float scale,
                           const PackedColumns& to) {
    constexpr int kStep = kInterval < 32 / kParts ? kInterval : 32 / kParts;
    constexpr int kPieces = kStep * kParts / 8, kDepth = 64 / kParts;
    const int lane = threadIdx.x % 32;
    uint4* const pieces = block.space.packed[threadIdx.x / 32];
    const auto place = [](int column, int piece) {  // such that banks do not collide
        return column * kPieces + (piece ^ column * kPieces / 8 % kPieces);
    };
#pragma unroll 1
    for (int begin = 0; begin < kInterval; begin += kStep) {
        __syncwarp();  // what stands there has been written
        const int end = min(begin + kStep, block.values);
#pragma unroll
        for (int i = 0; i < kStep / 8; ++i) {
            uint4 upper{}, lower{};
            const int k = begin + i * 8;
            if (k < end) {
                visit_column(block.space, column, k, k + 1, [&](int, float(&v)[8]) {
#pragma unroll
                    for (int j = 0; j < 8; ++j) v[j] *= scale;
                    put_pieces<kParts>(v, upper, lower);
                });
            }
            pieces[place(lane, i)] = upper;
            if (kParts == 2) pieces[place(lane, i + kStep / 8)] = lower;
        }
        __syncwarp();
        const int piece = lane % kPieces, part = piece / (kStep / 8);
        const int k = block.interval * kInterval + begin + (piece - part * (kStep / 8)) * 8;
        half* const first = to.packed + k / kDepth * 64 + k % kDepth + part * kDepth;
#pragma unroll
        for (int own = lane / kPieces; own < 32; own += 32 / kPieces) {
            if (own >= to.count) break;
            *reinterpret_cast<uint4*>(first + own * to.pitch) = pieces[place(own, piece)];
        }
    }
}

// The columns of a row from `first` on, by a warp.
template <int kParts>
OPWELD_FN void pack_columns(const JoinedBlock& block, int row, int first, const PackedColumns& to) {
    const JoinedSpace& space = block.space;
    const int lane = threadIdx.x % 32;
    const float* const columns = space.value + row * int(block.pixels.values()) + first;
    const float* const own = columns + min(lane, to.count - 1);
    float largest = 0.0f;  // without NaN, which the tile's least value tells of
    visit_column(space, own, 0, block.values, [&](int, const float(&v)[8]) {
#pragma unroll
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
    });
    bool keeps = keeps_digits<kParts>(space.least, lift(exponent_of(largest)));
    if (!__all_sync(~0u, keeps)) {
        uint32_t most = 0, least = 0;
        visit_column(space, own, 0, block.values, [&](int, const float(&v)[8]) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const uint32_t bits = __float_as_uint(v[i]);
                most = max(most, bits & 0x7FFFFFFFu), least = max(least, 0u - 2 * bits);
            }
        });
        largest = __uint_as_float(most);
        keeps = keeps_digits<kParts>(least, lift(exponent_of(largest)));
    }
    if (__all_sync(~0u, keeps)) {
        const int up = lift(exponent_of(largest));
        put_columns<kParts>(block, own, power_of_two(up), to);
        if (lane < to.count) to.scales[lane] = packed_scale(largest, up, false);
    } else {
        const int* const places = space.place + threadIdx.x % kSpotThreads * 4;
        pack_spots<kParts>(to, block.interval,
                           [&](int column, int i) { return columns[places[i] + column]; });
    }
}

// @pack_joined deps: load_joined, pack_columns
// The same from memory.
template <int kParts>
OPWELD_FN void pack_from_memory(const JoinedBlock& block, int row, int first,
                                const PackedColumns& to) {
    const Convolution& c = block.pixels.by.from;
    const int begin = threadIdx.x % kSpotThreads * 4, left = block.left();
    int across[4];
    const float* lines[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int k = block.interval * kInterval + begin + i, line = k / c.kernel[2];
        across[i] = left + (k - line * c.kernel[2]) * c.dilation[2];
        lines[i] = begin + i < block.values ? block.line_at(row, line - block.line) : nullptr;
    }
    pack_spots<kParts>(to, block.interval, [&](int column, int i) {
        const int at = (first + column) * c.stride[2] + across[i];
        return lines[i] && unsigned(at) < unsigned(c.size[2]) ? lines[i][at * c.pixel] : 0.0f;
    });
}

template <int kParts>
__device__ __forceinline__ void JoinedPixels::pack(int64_t number, half* packed,
                                                   float* scale) const {
    __shared__ JoinedSpace space;
    const JoinedBlock block(*this, space, number);
    block.find_places();
    __syncthreads();
    if (in_tiles) load_joined(block);
    __syncthreads();
    const int64_t pitch = intervals * (kParts * kInterval);
    const int groups = (block.columns + 31) / 32;
    for (int i = threadIdx.x / 32; i < block.rows * groups; i += 8) {
        const int row = i / groups, first = (i - row * groups) * 32;
        const int64_t pixel = (block.row + row) * by.to.size[2] + block.begin + first;
        const PackedColumns to{packed + pixel * pitch, scale + space.scale[row] + first, pitch,
                               min(block.columns - first, 32)};
        if (in_tiles) pack_columns<kParts>(block, row, first, to);
        else pack_from_memory<kParts>(block, row, first, to);
    }
}

}  // namespace op
