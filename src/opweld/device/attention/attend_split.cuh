// Attention: what it takes, and its keys and values as the tensor cores want them.
//
// out[batch, i, d] = sum over j of p[i, j] * v[j, d], p[i, .] the softmax of the scores of row i,
// which are made from q[i, .] k[j, .] one by one. A Problem, made by the compiler for one model,
// says where operands lie and what a score is:
//   kDepth, kColumns             values of a row of q and k, and of v
//   kCausal, kZeros              key j counts up to row j alone; rows without keys are zeros, not
//   NaN kHolds                       whether rows of q stay in registers kPlain, kFactor whether a
//   score is kFactor > 0 times the product query_lines(batch), key_lines(shared),
//   value_lines(shared): AttendLines shared_of(batch), place_of(batch) score_of(batch, i, j,
//   product)  anything else
// Batches that have the same keys and values share them.

namespace op {

// @AttendLines deps:
// Rows of float32 in memory, from the first on: strides in elements.
struct AttendLines {
    const float* data;
    int64_t row, inner;

    // whether rows of `count` values can be read four neighbours at once
    __device__ __forceinline__ bool are_packets(int count) const {
        return inner == 1 && row % 4 == 0 && count % 4 == 0 &&
               reinterpret_cast<uintptr_t>(data) % 16 == 0;
    }
};

// @AttendSizes deps:
// `row`: from one row of the result to the next.
struct AttendSizes {
    int64_t batches, shared, queries, keys, row;
};

// @parts_place deps:
// Where 16 bytes of a row of kLength values in two parts lie: rotated, so that those of 8 rows do
// not collide. Chunks of upper parts come first.
template <int kLength>
OPWELD_FN int parts_place(int row, int chunk) {
    constexpr int kChunks = kLength / 4;
    static_assert(kChunks == 4 || kChunks % 8 == 0, "rows of other lengths collide");
    if constexpr (kChunks == 4) {
        const int line = row / 2;
        return (line * 8 + ((row % 2 * 4 + chunk) ^ line % 4)) * 16;
    }
    return (row * kChunks + (chunk ^ row % 8)) * 16;
}

// @put_split deps: Word, half, half_header
// kCount scaled values as upper and lower parts.
template <int kCount>
OPWELD_FN void put_split(unsigned char* upper, unsigned char* lower,
                         const float (&scaled)[kCount]) {
    alignas(2 * kCount) __half2 high[kCount / 2], low[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {  // two at a time take one conversion
        high[i] = __floats2half2_rn(scaled[2 * i], scaled[2 * i + 1]);
        const float2 wide = __half22float2(high[i]);
        low[i] = __floats2half2_rn(scaled[2 * i] - wide.x, scaled[2 * i + 1] - wide.y);
    }
    using Each = Word<2 * kCount>;
    *reinterpret_cast<Each*>(upper) = *reinterpret_cast<const Each*>(high);
    *reinterpret_cast<Each*>(lower) = *reinterpret_cast<const Each*>(low);
}

// @WarpRow deps: exponents, load_vector, put_split
// A row of up to kLength values in the registers of kLanes lanes, four neighbours a lane and turn.
template <int kLength>
struct WarpRow {
    static constexpr int kTurns = (kLength + 127) / 128;
    static constexpr int kLanes = kLength <= 32 ? 8 : kLength <= 64 ? 16 : 32;
    float values[kTurns][4];

    // the first of this lane's values of a turn
    static __device__ __forceinline__ int place(int turn) {
        return turn * 128 + int(threadIdx.x) % kLanes * 4;
    }
    // `count` values, zeros beyond them; four at once where they lie as `packets`
    __device__ __forceinline__ void load(const float* from, int64_t inner, int count,
                                         bool packets) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            const int at = place(turn);
            if (packets) {
                Vector<float, 4> four{};
                if (at < count) four = load_vector<4>(from + at);
#pragma unroll
                for (int i = 0; i < 4; ++i) values[turn][i] = four.lane[i];
                continue;
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
                values[turn][i] = at + i < count ? from[(at + i) * inner] : 0.0f;
        }
    }
    // The largest of this lane: bit patterns of |x| are ordered, NaN above all.
    __device__ __forceinline__ uint32_t most() const {
        uint32_t most = 0;
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                most = max(most, __float_as_uint(values[turn][i]) & 0x7FFFFFFFu);
        return most;
    }
    // Puts the parts of the values times 2^up into a row of an image, laid out as `Parts` says.
    // Returns this lane's excess of 16 times those values that lose digits over all that are not
    // zero.
    template <typename Parts>
    __device__ __forceinline__ int put(unsigned char* image, int row, int up) {
        int excess = 0;
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                values[turn][i] *= power_of_two(up);
                if (values[turn][i] != 0.0f) excess += fabsf(values[turn][i]) < 1.0f ? 15 : -1;
            }
            const int at = place(turn);
            if (at >= kLength) continue;
            put_split(image + Parts::at(row, at, false), image + Parts::at(row, at, true),
                      values[turn]);
        }
        return excess;
    }
};

// @split_rows deps: AttendLines, WarpRow
// A warp splits `exist` rows of `count` values, from line `first` on, into kRows rows of an image
// from `row` on, and says their scales; other rows are zeros. `needs_fallback` becomes 1 where the
// parts do not hold one: its largest value is out of range, or more than one in 16, zeros apart,
// has digits below those that a lower part keeps. Many rows at once: most of the time is waiting
// for loads.
template <typename Parts, int kLength, int kRows>
OPWELD_FN void split_rows(unsigned char* image, float* scales, int row, const AttendLines& lines,
                          int64_t first, int64_t exist, int count, int& needs_fallback) {
    using Row = WarpRow<kLength>;
    constexpr int kSide = 32 / Row::kLanes,
                  kMost = 8 / Row::kTurns;  // rows side by side, one by one
    constexpr int kAtOnce = kRows / kSide < kMost ? kRows / kSide : kMost;
    static_assert(kRows % (kSide * kAtOnce) == 0, "rows of a warp come in whole turns");
    const bool packets = lines.are_packets(count);
#pragma unroll 1
    for (int begin = int(threadIdx.x) % 32 / Row::kLanes; begin < kRows; begin += kSide * kAtOnce) {
        Row rows[kAtOnce];
        uint32_t most[kAtOnce];
        int excess[kAtOnce];
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
            const int own = begin + r * kSide;
            const bool exists = own < exist;
            rows[r].load(lines.data + (exists ? first + own : 0) * lines.row, lines.inner,
                         exists ? count : 0, packets);
        }
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) most[r] = rows[r].most();
#pragma unroll
        for (int step = Row::kLanes / 2; step; step /= 2)
#pragma unroll
            for (int r = 0; r < kAtOnce; ++r)
                most[r] = max(most[r], __shfl_xor_sync(~0u, most[r], step));
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
            const int own = row + begin + r * kSide;
            const float largest = __uint_as_float(most[r]);
            const int up = lift(exponent_of(largest));
            excess[r] = rows[r].template put<Parts>(image, own, up);
            if (threadIdx.x % Row::kLanes == 0) scales[own] = power_of_two(-up);
            needs_fallback |= !is_in_range(largest);
        }
#pragma unroll
        for (int step = Row::kLanes / 2; step; step /= 2)
#pragma unroll
            for (int r = 0; r < kAtOnce; ++r) excess[r] += __shfl_xor_sync(~0u, excess[r], step);
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) needs_fallback |= excess[r] > 0;
    }
}

// @split_column deps: exponents, put_split
// kShare threads of a warp, 32 / kShare lanes apart, split kKeys values of one column, `count` of
// which exist, as a row of an image; its scale. Digits that are lost are looked for among the sums.
template <typename Parts, int kKeys, int kShare>
OPWELD_FN float split_column(unsigned char* image, int column, const float* from, int64_t step,
                             int count, int& needs_fallback) {
    constexpr int kOwn = kKeys / kShare;
    const int first = int(threadIdx.x) % 32 / (32 / kShare) * kOwn;
    float values[kOwn];
    uint32_t most = 0;
    from += first * step;
    const int exist = count - first;
#pragma unroll
    for (int key = 0; key < kOwn; ++key, from += step) {
        values[key] = key < exist ? *from : 0.0f;
        most = max(most, __float_as_uint(values[key]) & 0x7FFFFFFFu);
    }
#pragma unroll
    for (int apart = 32 / kShare; apart < 32; apart *= 2)
        most = max(most, __shfl_xor_sync(~0u, most, apart));
    const float largest = __uint_as_float(most);
    const int up = lift(exponent_of(largest));
#pragma unroll
    for (int key = 0; key < kOwn; key += 8) {
        float scaled[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) scaled[i] = values[key + i] * power_of_two(up);
        put_split(image + Parts::at(column, first + key, false),
                  image + Parts::at(column, first + key, true), scaled);
    }
    needs_fallback |= !is_in_range(largest);
    return power_of_two(-up);
}

// @split_columns deps: split_column
// All columns of a tile of values, of which `count` keys exist, and their scales.
template <typename Tile>
OPWELD_FN void split_columns(unsigned char* image, float* scales, const AttendLines& values,
                             int64_t first, int count, int& needs_fallback) {
    constexpr int kColumns = Tile::kColumns, kKeys = Tile::kKeys;
    constexpr int kMost = kKeys / 8 < 4 ? kKeys / 8 : 4;
    constexpr int kShare = Tile::kSplitThreads / kColumns >= kMost ? kMost
                           : Tile::kSplitThreads / kColumns >= 2   ? 2
                                                                   : 1;
    constexpr int kLanes = 32 / kShare, kAtOnce = Tile::kSplitThreads / kShare;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    static_assert(kColumns % kLanes == 0, "a warp's columns exist together");
    for (int d = warp * kLanes + lane % kLanes; d < kColumns; d += kAtOnce) {
        const bool exists = d < Tile::Problem::kColumns;
        const float* from = values.data + first * values.row + (exists ? d : 0) * values.inner;
        const float scale = split_column<typename Tile::Values, kKeys, kShare>(
            image, d, from, values.row, exists ? count : 0, needs_fallback);
        if (lane < kLanes) scales[d] = scale;
    }
}

// @attend_split_kernel deps: AttendLines, AttendSizes, split_columns, split_rows, start_dependents
// A block makes the keys of the image of one tile, another one its values; each says whether they
// do not fit. They are laid out in shared memory, so that memory is written straight along: 5.4
// instead of 9.7 us for 512 keys of 64, 32 times (H200).
template <typename Tile>
__global__ void __launch_bounds__(Tile::kSplitThreads, Tile::kSplitBlocks)
    attend_split_kernel(const typename Tile::Problem problem, const AttendSizes sizes,
                        unsigned char* images, int* needs_fallback) {
    constexpr int kBytes =
        Tile::kKeyBytes > Tile::kValueBytes ? Tile::kKeyBytes : Tile::kValueBytes;
    __shared__ __align__(16) unsigned char part[kBytes];
    const int64_t at = blockIdx.x / 2, tiles = Tile::tiles(sizes.keys), shared = at / tiles;
    const int64_t first = at % tiles * Tile::kKeys;
    const int count = int(sizes.keys - first < Tile::kKeys ? sizes.keys - first : Tile::kKeys);
    const bool of_keys = blockIdx.x % 2 == 0;
    int own = 0;
    start_dependents();
    if (of_keys) {
        constexpr int kOwn = Tile::kKeys * 32 / Tile::kSplitThreads;
        const int row = int(threadIdx.x) / 32 * kOwn;
        auto* scales = reinterpret_cast<float*>(part + Tile::kKeys * Tile::kDepth * 4);
        split_rows<typename Tile::Keys, Tile::kDepth, kOwn>(
            part, scales, row, problem.key_lines(shared), first + row, count - row,
            Tile::Problem::kDepth, own);
    } else {
        auto* scales = reinterpret_cast<float*>(part + Tile::kKeys * Tile::kColumns * 4);
        split_columns<Tile>(part, scales, problem.value_lines(shared), first, count, own);
    }
    const int any = __syncthreads_or(own);
    if (threadIdx.x == 0) needs_fallback[blockIdx.x] = any;
    unsigned char* image = images + at * Tile::kImageBytes + (of_keys ? 0 : Tile::kKeyBytes);
    const int bytes = of_keys ? Tile::kKeyBytes : Tile::kValueBytes;
    for (int i = int(threadIdx.x) * 16; i < bytes; i += Tile::kSplitThreads * 16)
        *reinterpret_cast<uint4*>(image + i) = *reinterpret_cast<const uint4*>(part + i);
}

}  // namespace op
