// Attention: what it takes, and its keys and values as the tensor cores want them.
//
// out[batch, i, d] = sum over j of p[i, j] * v[j, d], p[i, .] the softmax of the scores of row i, which
// are made from q[i, .] k[j, .] one by one. A Problem, made by the compiler for one model, says where
// operands lie and what a score is:
//   kDepth, kColumns             values of a row of q and k, and of v
//   kCausal, kZeros              key j counts up to row j alone; rows without keys are zeros, not NaN
//   kPlain, kFactor              whether a score is kFactor > 0 times the product
//   queries(batch), keys(shared), values(shared): AttendLines        shared_of(batch), place_of(batch)
//   score(batch, i, j, product)  anything else
// Batches that have the same keys and values share them.

namespace op {

// @AttendLines deps:
// Rows of float32 in memory, from the first on: strides in elements.
struct AttendLines {
    const float* data;
    int64_t row, inner;
};

// @AttendSizes deps:
// `row`: from one row of the result to the next.
struct AttendSizes {
    int64_t batches, shared, queries, keys, row;
};

// @AttendTile deps: AttendLines
// Four warps make kRows rows of the result, kDown times 16 each, and take kKeys keys at a time. What
// they take of keys and values is an image of shared memory: rows of both parts and a scale for each.
template <typename Problem>
struct AttendTile {
    static constexpr int kDepth = (Problem::kDepth + 31) / 32 * 32;
    static constexpr int kColumns = (Problem::kColumns + 31) / 32 * 32;
    static constexpr int kWide = kDepth > kColumns ? kDepth : kColumns;
    static constexpr int kThreads = 128, kWarps = kThreads / 32;
    static constexpr int kDown = kWide <= 32 ? 2 : 1, kRows = kWarps * 16 * kDown;
    static constexpr int kKeys = kWide <= 128 ? 32 : 16;
    static constexpr bool kHolds = kWide <= 128;  // q, in registers
    static constexpr int kKeyBytes = kKeys * (kDepth + 1) * 4;
    static constexpr int kValueBytes = kColumns * (kKeys + 1) * 4;
    static constexpr int kImageBytes = kKeyBytes + kValueBytes;
    static constexpr int kQueryBytes = kRows * (kDepth + 1) * 4;
    static constexpr int kPitch = kColumns + 8;  // floats of a result row
    static constexpr int kResultBytes = kRows * kPitch * 4;
    static constexpr int kBytes = kQueryBytes + kImageBytes > kResultBytes
                                      ? kQueryBytes + kImageBytes
                                      : kResultBytes;
    static constexpr int kBlocks = 232448 / (kBytes + 1024) < 2 ? 1 : 2;  // at once, at least

    static __host__ __device__ int64_t tiles(int64_t keys) { return (keys + kKeys - 1) / kKeys; }
};

// @parts_place deps:
// Where 16 bytes of a row of kLength values in two parts lie: rotated, so that those of 8 rows do not
// collide. Chunks of upper parts come first.
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

// @put_split deps: half, half_header
// kCount scaled values as upper and lower parts.
template <int kCount>
OPWELD_FN void put_split(unsigned char* upper, unsigned char* lower, const float (&scaled)[kCount]) {
    alignas(2 * kCount) __half2 high[kCount / 2], low[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {  // two at a time take one conversion
        high[i] = __floats2half2_rn(scaled[2 * i], scaled[2 * i + 1]);
        const float2 wide = __half22float2(high[i]);
        low[i] = __floats2half2_rn(scaled[2 * i] - wide.x, scaled[2 * i + 1] - wide.y);
    }
    using Word = typename Packet<2 * kCount>::type;
    *reinterpret_cast<Word*>(upper) = *reinterpret_cast<const Word*>(high);
    *reinterpret_cast<Word*>(lower) = *reinterpret_cast<const Word*>(low);
}

// @WarpRow deps: Packet, exponents, parts_place, put_split
// A row of up to kLength values in the registers of a warp, four neighbours a lane and turn.
template <int kLength>
struct WarpRow {
    static constexpr int kTurns = (kLength + 127) / 128;
    float values[kTurns][4];

    // `count` values, zeros beyond them
    __device__ __forceinline__ void load(const float* from, int64_t inner, int count) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int at = turn * 128 + int(threadIdx.x) % 32 * 4 + i;
                values[turn][i] = at < count ? from[at * inner] : 0.0f;
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
    // Puts the parts of the values times 2^up into a row of an image. Returns this lane's excess of 16
    // times those values that lose digits over all that are not zero.
    __device__ __forceinline__ int put(unsigned char* image, int row, int up) {
        int excess = 0;
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                values[turn][i] *= power_of_two(up);
                if (values[turn][i] != 0.0f) excess += fabsf(values[turn][i]) < 1.0f ? 15 : -1;
            }
            const int at = turn * 128 + int(threadIdx.x) % 32 * 4;
            if (at >= kLength) continue;
            unsigned char* upper = image + parts_place<kLength>(row, at / 8) + at % 8 * 2;
            unsigned char* lower = image + parts_place<kLength>(row, (kLength + at) / 8) + at % 8 * 2;
            put_split(upper, lower, values[turn]);
        }
        return excess;
    }
};

// @split_rows deps: AttendLines, WarpRow
// A warp splits `exist` rows of `count` values, from line `first` on, into kRows rows of an image from
// `row` on, and says their scales; other rows are zeros. `unfit` becomes 1 where the parts do not hold
// one: its largest value is out of range, or more than one in 16, zeros apart, has digits below those
// that a lower part keeps. Several rows at once, for most of the time is waiting for loads.
template <int kLength, int kRows>
OPWELD_FN void split_rows(unsigned char* image, float* scales, int row, const AttendLines& lines,
                          int64_t first, int64_t exist, int count, int& unfit) {
    constexpr int kAtOnce = kLength <= 128 ? 4 : 2;
#pragma unroll 1
    for (int begin = 0; begin < kRows; begin += kAtOnce) {
        WarpRow<kLength> rows[kAtOnce];
        uint32_t most[kAtOnce];
        int excess[kAtOnce];
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
            const bool exists = begin + r < exist;
            rows[r].load(lines.data + (exists ? first + begin + r : 0) * lines.row, lines.inner,
                         exists ? count : 0);
        }
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) most[r] = rows[r].most();
#pragma unroll
        for (int step = 16; step; step /= 2)
#pragma unroll
            for (int r = 0; r < kAtOnce; ++r)
                most[r] = max(most[r], __shfl_xor_sync(~0u, most[r], step));
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) {
            const float largest = __uint_as_float(most[r]);
            const int up = lift(exponent_of(largest));
            excess[r] = rows[r].put(image, row + begin + r, up);
            if (threadIdx.x % 32 == 0) scales[row + begin + r] = power_of_two(-up);
            unfit |= !is_in_range(largest);
        }
#pragma unroll
        for (int step = 16; step; step /= 2)
#pragma unroll
            for (int r = 0; r < kAtOnce; ++r)
                excess[r] += __shfl_xor_sync(~0u, excess[r], step);
#pragma unroll
        for (int r = 0; r < kAtOnce; ++r) unfit |= excess[r] > 0;
    }
}

// @split_column deps: Packet, exponents, parts_place, put_split
// A thread splits kKeys values of one column, `count` of which exist, as a row of an image; its scale.
// Digits that are lost are looked for among the sums.
template <int kKeys>
OPWELD_FN float split_column(unsigned char* image, int column, const float* from, int64_t step,
                             int count, int& unfit) {
    float values[kKeys];
    uint32_t most = 0;
#pragma unroll
    for (int key = 0; key < kKeys; ++key) {
        values[key] = key < count ? from[key * step] : 0.0f;
        most = max(most, __float_as_uint(values[key]) & 0x7FFFFFFFu);
    }
    const float largest = __uint_as_float(most);
    const int up = lift(exponent_of(largest));
#pragma unroll
    for (int chunk = 0; chunk < kKeys / 8; ++chunk) {
        float scaled[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) scaled[i] = values[chunk * 8 + i] * power_of_two(up);
        put_split(image + parts_place<kKeys>(column, chunk),
                  image + parts_place<kKeys>(column, kKeys / 8 + chunk), scaled);
    }
    unfit |= !is_in_range(largest);
    return power_of_two(-up);
}

// @attend_split_kernel deps: AttendLines, AttendSizes, AttendTile, split_column, split_rows, start_dependents
// A block makes the image of one tile of keys and values, and says whether it is unfit.
template <typename Problem>
__global__ void __launch_bounds__(AttendTile<Problem>::kThreads)
    attend_split_kernel(const Problem problem, const AttendSizes sizes, unsigned char* images,
                        int* unfit) {
    using Tile = AttendTile<Problem>;
    const int64_t tiles = Tile::tiles(sizes.keys), shared = blockIdx.x / tiles;
    const int64_t first = blockIdx.x % tiles * Tile::kKeys;
    const int warp = int(threadIdx.x) / 32;
    const int count = int(sizes.keys - first < Tile::kKeys ? sizes.keys - first : Tile::kKeys);
    unsigned char* image = images + int64_t(blockIdx.x) * Tile::kImageBytes;
    auto* key_scales = reinterpret_cast<float*>(image + Tile::kKeys * Tile::kDepth * 4);
    unsigned char* columns = image + Tile::kKeyBytes;
    auto* column_scales = reinterpret_cast<float*>(columns + Tile::kKeys * Tile::kColumns * 4);
    const AttendLines keys = problem.key_lines(shared), values = problem.value_lines(shared);
    int own = 0;
    start_dependents();
    constexpr int kOwn = Tile::kKeys / Tile::kWarps;
    split_rows<Tile::kDepth, kOwn>(image, key_scales, warp * kOwn, keys, first + warp * kOwn,
                                   count - warp * kOwn, Problem::kDepth, own);
    for (int d = int(threadIdx.x); d < Tile::kColumns; d += Tile::kThreads) {
        const bool exists = d < Problem::kColumns;
        const float* from = values.data + first * values.row + (exists ? d : 0) * values.inner;
        column_scales[d] =
            split_column<Tile::kKeys>(columns, d, from, values.row, exists ? count : 0, own);
    }
    const int any = __syncthreads_or(own);
    if (threadIdx.x == 0) unfit[blockIdx.x] = any;
}

}  // namespace op
