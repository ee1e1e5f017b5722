// The ring of row_ring.cuh for 5 to 16 rows beside a matrix that lies across k, on the tensor cores:
// float32 values become three bfloat16 ones, so that no scales are needed; of nine products of parts the
// three smallest, below 2^-24 of the whole, are left out. A warp makes parts of its own rows of `many` as
// it reads them; the block makes those of `few`, once for all warps, behind a second barrier.
//
// 16x8192 by 8192x8192 takes 103 us on an H200 (2026-11-22), 61 % of a copy, where sums kept by threads
// (column_sums.cuh) take 151. Twice as many conversions, or products one after the other, made no
// difference. Along k the ring on the CUDA cores is faster (92 us to 107).

namespace op {

// @ThreeParts deps: bfloat16
// Four values as three parts, two at a time as operands of the tensor cores.
struct ThreeParts {
    unsigned int upper[2], middle[2], lower[2];

    OPWELD_FN unsigned int rounded(float& a, float& b) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
        const float2 wide = __bfloat1622float2(pair);
        a -= wide.x, b -= wide.y;
        unsigned int word;
        memcpy(&word, &pair, 4);
        return word;
    }
    __device__ __forceinline__ explicit ThreeParts(const float (&values)[4]) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float a = values[2 * i], b = values[2 * i + 1];
            upper[i] = rounded(a, b);
            middle[i] = rounded(a, b);
            lower[i] = rounded(a, b);
        }
    }
};

// @MmaRing deps: RowRing, ThreeParts, exponents, load_vector, mma_16x8x16
// A warp makes 16 x 16 dot products, of 16 k at a time: `many` is the operand of 16 rows. Four lanes
// share a row, and take four neighbours in k each: both operands' k may be dealt to the instruction's in
// any order that is the same.
struct MmaRing {
    static constexpr int kFew = 16, kMany = 16, kCount = kMany * kFew, kTake = 4;
    static constexpr int kDepth = 64;
    static constexpr int kRows = Skinny::kWarps * kMany;
    static constexpr int kOfMany = kRows * kDepth;
    static constexpr int kMostParts = 1, kMostStages = 6;
    static constexpr int kTotals = Skinny::kWarps * kCount + kFew;  // and of `few` which rows are tiny
    // Bytes of the parts of `few`, [upper, middle, lower][step][row][16 k]: between steps a gap, so that
    // what is stored at once does not collide.
    static constexpr int kOfStep = kFew * 32 + 32, kOfPart = kDepth / 16 * kOfStep;
    static constexpr bool kAcross = true, kChecked = true;
    static constexpr double kBusyUs = 0.55;
    // Values whose exponents all lack these bits are below 2^-111: their lower parts may be zero.
    static constexpr uint32_t kLargeBits = 0x78000000u;
    float sums[2][4];
    uint32_t many_bits[2], few_bits;  // of all values of a row that this thread had

    __host__ __device__ static int prepared_floats(int) { return 3 * kOfPart / 4; }
    __host__ __device__ static int stage_floats(int) { return kOfMany + kFew * kDepth; }
    // Which 16 bytes of a k lie in place of which, as an exclusive or: four k that are read at once lie
    // 2048 bytes apart.
    __device__ __forceinline__ static constexpr int turn_across(int k) { return k / 4 % 4 * 2; }
    __device__ __forceinline__ static int teams(int parts) { return RowRing<16>::teams(parts); }
    __device__ __forceinline__ static int team(int parts) { return RowRing<16>::team(parts); }

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            many_bits[i] = 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] = 0.0f;
        }
        few_bits = 0;
    }
    // Parts of the rows of `few` of a stage: a thread has 4 k of one row.
    __device__ __forceinline__ void prepare(const float* stage, float* prepared) {
        const int row = int(threadIdx.x) / 16, chunk = int(threadIdx.x) % 16;
        auto* const to =
            reinterpret_cast<char*>(prepared) + chunk / 4 * kOfStep + row * 32 + chunk % 4 * 8;
        float values[4];
        const auto four = load_vector<4>(stage + kOfMany + row * kDepth + chunk * 4);
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = four.lane[i];
        few_bits = joined(few_bits, values);
        const ThreeParts made(values);
        *reinterpret_cast<uint2*>(to) = make_uint2(made.upper[0], made.upper[1]);
        *reinterpret_cast<uint2*>(to + kOfPart) = make_uint2(made.middle[0], made.middle[1]);
        *reinterpret_cast<uint2*>(to + 2 * kOfPart) = make_uint2(made.lower[0], made.lower[1]);
    }
    __device__ __forceinline__ void end_stretch(bool) {}
    // Four values of both neighbouring rows of `many` that this lane has.
    OPWELD_FN void take_many(float (&values)[2][4], const float* stage, int step) {
        const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
        const int row = warp * kMany + lane / 4 * 2, first = step * 16 + lane % 4 * 4;
        const float* own = stage + first * kRows + (row / 4 ^ turn_across(first)) * 4 + row % 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const auto pair = load_vector<2>(own + i * kRows);
            values[0][i] = pair.lane[0], values[1][i] = pair.lane[1];
        }
    }
    OPWELD_FN uint32_t joined(uint32_t bits, const float (&values)[4]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) bits |= __float_as_uint(values[i]);
        return bits;
    }
    // Of two steps at once, four products that wait for nothing of each other: one takes 30 cycles.
    __device__ __forceinline__ void add(const float* stage, const float* prepared, int) {
        const auto* few = reinterpret_cast<const char*>(prepared) + threadIdx.x % 32 * 8;
        // by their size: the small products first, while nothing of them is cut off
        constexpr int kA[6] = {2, 0, 1, 1, 0, 0}, kB[6] = {0, 2, 1, 0, 1, 0};
#pragma unroll
        for (int first = 0; first < kDepth / 16; first += 2) {
            unsigned int a[2][3][4], b[2][2][3][2];
            float own[2][2][4] = {};
#pragma unroll
            for (int s = 0; s < 2; ++s) {
                float taken[2][4];
                take_many(taken, stage, first + s);
#pragma unroll
                for (int row = 0; row < 2; ++row) {
                    many_bits[row] = joined(many_bits[row], taken[row]);
                    const ThreeParts made(taken[row]);
#pragma unroll
                    for (int i = 0; i < 2; ++i) {
                        a[s][0][row + 2 * i] = made.upper[i];
                        a[s][1][row + 2 * i] = made.middle[i];
                        a[s][2][row + 2 * i] = made.lower[i];
                    }
                }
#pragma unroll
                for (int j = 0; j < 2; ++j)
#pragma unroll
                    for (int i = 0; i < 3; ++i) {
                        const auto words = *reinterpret_cast<const uint2*>(
                            few + i * kOfPart + (first + s) * kOfStep + j * 256);
                        b[s][j][i][0] = words.x, b[s][j][i][1] = words.y;
                    }
            }
#pragma unroll
            for (int i = 0; i < 6; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j)
                    mma_16x8x16<bfloat16>(own[j / 2][j % 2], a[j / 2][kA[i]], b[j / 2][j % 2][kB[i]]);
#pragma unroll
            for (int j = 0; j < 16; ++j) sums[j / 4 % 2][j % 4] += own[j / 8][j / 4 % 2][j % 4];
        }
    }
    // Whether a row's values are so small that parts of them are lost; kLanes neighbours have it.
    template <int kLanes>
    OPWELD_FN bool is_tiny(uint32_t bits) {
#pragma unroll
        for (int step = kLanes / 2; step; step /= 2) bits |= __shfl_xor_sync(~0u, bits, step);
        return (bits & 0x7FFFFFFFu) != 0 && (bits & kLargeBits) == 0;
    }
    // Value r * kFew + f of a warp is the product of its row r and row f of `few`; NaN asks for another
    // way.
    __device__ __forceinline__ void keep(float* totals) {
        const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
        float* const own = totals + warp * kCount;
        const bool tiny[2] = {is_tiny<4>(many_bits[0]), is_tiny<4>(many_bits[1])};
        const bool tiny_few = is_tiny<16>(few_bits);
        if (lane % 16 == 0)
            totals[Skinny::kWarps * kCount + int(threadIdx.x) / 16] = tiny_few ? 1.0f : 0.0f;
#pragma unroll
        for (int j = 0; j < 2; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int f = lane % 4 * 2 + i % 2 + 8 * j, r = lane / 4 * 2 + i / 2;
                own[r * kFew + f] = tiny[i / 2] ? __uint_as_float(0x7FFFFFFFu) : sums[j][i];
            }
    }
    // Whether a sum has to be made in another way.
    OPWELD_FN bool is_odd(float total, const float* totals, int f) {
        return exponent_of(total) == 128 || totals[Skinny::kWarps * kCount + f] != 0.0f;
    }
};

}  // namespace op
