// Attention on the tensor cores: what a warp does with one tile of keys and values. Sums lie as mma.cuh
// says: of each 16 rows a lane has rows lane / 4 and 8 on, of each 8 columns two neighbours.

namespace op {

// @PartsTile deps: load_matrices, parts_place
// Rows of kLength values in two parts in shared memory, as operands of 16 values of k.
template <int kLength>
struct PartsTile {
    unsigned int at;

    // 16 rows from `row` on, as operand a
    __device__ __forceinline__ void load_a(unsigned int (&words)[4], int row, int step,
                                           bool lower) const {
        const int lane = int(threadIdx.x) % 32;
        const int chunk = (lower ? kLength / 8 : 0) + 2 * step + lane / 16;
        load_matrices(words, at + parts_place<kLength>(row + lane % 16, chunk));
    }
    // 8 * kCount rows from `row` on, as operands b
    template <int kCount>
    __device__ __forceinline__ void load_b(unsigned int (&words)[kCount][2], int row, int step,
                                           bool lower) const {
        const int lane = int(threadIdx.x) % 32;
        const int chunk = (lower ? kLength / 8 : 0) + 2 * step + lane / 8 % 2;
        const int own = row + lane % 8 + lane / 16 * 8;
#pragma unroll
        for (int j = 0; j < kCount; j += 2) {
            unsigned int four[4];
            load_matrices(four, at + parts_place<kLength>(own + 8 * j, chunk));
            words[j][0] = four[0], words[j][1] = four[1];
            words[j + 1][0] = four[2], words[j + 1][1] = four[3];
        }
    }
};

// @HeldParts deps: PartsTile
// A warp's rows in two parts as operands a, kSteps of 16 k: in registers or where they lie.
template <int kLength, int kDown, bool kHolds>
struct HeldParts {
    unsigned int upper[kDown][kLength / 16][4], lower[kDown][kLength / 16][4];

    __device__ __forceinline__ HeldParts(const PartsTile<kLength>& tile, int row) {
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int step = 0; step < kLength / 16; ++step) {
                tile.load_a(upper[m][step], row + 16 * m, step, false);
                tile.load_a(lower[m][step], row + 16 * m, step, true);
            }
    }
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step,
                                        bool low) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = low ? lower[m][step][i] : upper[m][step][i];
    }
};
template <int kLength, int kDown>
struct HeldParts<kLength, kDown, false> {
    PartsTile<kLength> tile;
    int row;

    __device__ __forceinline__ HeldParts(const PartsTile<kLength>& all, int first)
        : tile(all), row(first) {}
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step,
                                        bool low) const {
        tile.load_a(words, row + 16 * m, step, low);
    }
};

// @multiply_parts deps: PartsTile, half, mma_16x8x16
// sums = a times rows `row` and on of b, over kSteps times 16 k from `step` on, without lower by lower
// parts. The small products come first, while sums are small too and nothing of them is cut off;
// short sums, as the tensor core cuts off where it should round.
template <int kSteps, int kDown, int kAcross, int kLength, typename A>
OPWELD_FN void multiply_parts(float (&sums)[kDown][kAcross][4], const A& a,
                              const PartsTile<kLength>& b, int row, int step) {
    unsigned int upper[kSteps][kDown][4], across[kSteps][kAcross][2];
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
        for (int n = 0; n < kAcross; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[m][n][i] = 0.0f;
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
        b.load_b(across[s], row, step + s, false);
        unsigned int low_across[kAcross][2];
        b.load_b(low_across, row, step + s, true);
#pragma unroll
        for (int m = 0; m < kDown; ++m) {
            unsigned int low[4];
            a.get(upper[s][m], m, step + s, false);
            a.get(low, m, step + s, true);
#pragma unroll
            for (int n = 0; n < kAcross; ++n) mma_16x8x16<half>(sums[m][n], low, across[s][n]);
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
                mma_16x8x16<half>(sums[m][n], upper[s][m], low_across[n]);
        }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int m = 0; m < kDown; ++m)
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
                mma_16x8x16<half>(sums[m][n], upper[s][m], across[s][n]);
}

// @attend_products deps: HeldParts, multiply_parts
// products = q times the keys of a tile, before scales. Sums of 32 values are added up apart.
template <typename Tile, typename Queries>
OPWELD_FN void attend_products(float (&products)[Tile::kDown][Tile::kKeys / 8][4],
                               const Queries& queries, unsigned int image) {
    constexpr int kDown = Tile::kDown, kAcross = Tile::kKeys / 8 < 4 / kDown ? 2 : 4 / kDown;
    const PartsTile<Tile::kDepth> keys{image};
#pragma unroll
    for (int first = 0; first < Tile::kKeys / 8; first += kAcross)
#pragma unroll
        for (int step = 0; step < Tile::kDepth / 16; step += 2) {
            float sums[kDown][kAcross][4];
            multiply_parts<2>(sums, queries, keys, 8 * first, step);
#pragma unroll
            for (int m = 0; m < kDown; ++m)
#pragma unroll
                for (int n = 0; n < kAcross; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        float& own = products[m][first + n][i];
                        own = step ? own + sums[m][n][i] : sums[m][n][i];
                    }
        }
}

// @AttendRows deps: ex2_approx_ftz
// What a lane knows of its rows: the largest score so far, and its own share of the sum of powers. A
// power is 2^15 times exp(score - largest): its parts hold 22 bits down to 2^-18 of the largest.
template <int kDown>
struct AttendRows {
    float top[kDown][2], total[kDown][2];
    float factor[kDown][2];  // powers of two in a score of 1

    // The largest is now at least `score`; what sums so far are to be multiplied by.
    __device__ __forceinline__ float raise(int m, int half, float score) {
        score = fmaxf(score, __shfl_xor_sync(~0u, score, 1));
        score = fmaxf(score, __shfl_xor_sync(~0u, score, 2));
        const float before = top[m][half];
        top[m][half] = fmaxf(before, score);
        return ex2_approx_ftz((before - top[m][half]) * factor[m][half]);
    }
    __device__ __forceinline__ float power(int m, int half, float score) const {
        return ex2_approx_ftz(fmaf(score - top[m][half], factor[m][half], 15.0f));
    }
};

// @AttendPowers deps: half_header
// AttendPowers of scores as operands a, in two parts.
template <int kDown, int kSteps>
struct AttendPowers {
    unsigned int upper[kDown][kSteps][4], lower[kDown][kSteps][4];

    // of two neighbours in a row; what lies where follows from how sums lie
    __device__ __forceinline__ void put(int m, int n, int half, float a, float b) {
        const __half2 high = __floats2half2_rn(a, b);
        const float2 wide = __half22float2(high);
        const __half2 low = __floats2half2_rn(a - wide.x, b - wide.y);
        memcpy(&upper[m][n / 2][n % 2 * 2 + half], &high, 4);
        memcpy(&lower[m][n / 2][n % 2 * 2 + half], &low, 4);
    }
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step,
                                        bool low) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = low ? lower[m][step][i] : upper[m][step][i];
    }
};

// @AttendPlace deps:
// The batch, a lane's first row of its 16 * kDown, the first key of a tile.
struct AttendPlace {
    int64_t batch, row, key;
};

// @attend_scores deps: AttendPlace, AttendTile, attend_score
// Products become scores: where rows have a factor of their own, up to that. kEdge: not all keys of
// the tile count for all rows of the warp.
template <bool kEdge, typename Problem, typename Tile = AttendTile<Problem>>
OPWELD_FN void attend_scores(float (&scores)[Tile::kDown][Tile::kKeys / 8][4],
                             const Problem& problem, const AttendSizes& sizes,
                             const AttendPlace& place, const float* key_scales,
                             const float* query_scales) {
    const int pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int n = 0; n < Tile::kKeys / 8; ++n) {
        const float2 scale = *reinterpret_cast<const float2*>(key_scales + 8 * n + pair);
#pragma unroll
        for (int m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                float& own = scores[m][n][v];
                const int64_t i = place.row + 16 * m + v / 2 * 8, j = place.key + 8 * n + pair + v % 2;
                own *= v % 2 ? scale.y : scale.x;
                if constexpr (!Problem::kPlain) {
                    own *= query_scales[16 * m + v / 2 * 8];
                    const int64_t row = i < sizes.queries ? i : sizes.queries - 1;
                    own = problem.score_of(place.batch, row, kEdge && j >= sizes.keys ? 0 : j, own);
                }
                if (kEdge && (j >= sizes.keys || (Problem::kCausal && j > i))) own = -kInfinity<float>;
            }
    }
}

// @attend_powers deps: AttendRows, AttendPowers, kInfinity
// Scores become powers; `kept` is what the sums of each row so far are to be multiplied by.
template <int kDown, int kAcross>
OPWELD_FN void attend_powers(AttendPowers<kDown, kAcross / 2>& powers, float (&kept)[kDown][2],
                             AttendRows<kDown>& rows, const float (&scores)[kDown][kAcross][4]) {
#pragma unroll
    for (int m = 0; m < kDown; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = -kInfinity<float>;
#pragma unroll
            for (int n = 0; n < kAcross; ++n)
                most = fmaxf(most, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
            kept[m][half] = rows.raise(m, half, most);
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < kAcross; ++n) {
                const float a = rows.power(m, half, scores[m][n][2 * half]);
                const float b = rows.power(m, half, scores[m][n][2 * half + 1]);
                powers.put(m, n, half, a, b);
                sum += a + b;
            }
            rows.total[m][half] = fmaf(rows.total[m][half], kept[m][half], sum);
        }
}

// @attend_values deps: AttendTile, multiply_parts
// Adds the powers times the values of a tile to the sums, rounding to nearest.
template <typename Tile, typename P>
OPWELD_FN void attend_values(float (&sums)[Tile::kDown][Tile::kColumns / 8][4], const P& powers,
                             unsigned int image, const float* column_scales) {
    constexpr int kDown = Tile::kDown, kAcross = 4 / kDown;
    const PartsTile<Tile::kKeys> values{image};
    const int pair = int(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int first = 0; first < Tile::kColumns / 8; first += kAcross) {
        float own[kDown][kAcross][4];
        multiply_parts<Tile::kKeys / 16>(own, powers, values, 8 * first, 0);
#pragma unroll
        for (int n = 0; n < kAcross; ++n) {
            const float* at = column_scales + 8 * (first + n) + pair;
            const float2 scale = *reinterpret_cast<const float2*>(at);
#pragma unroll
            for (int m = 0; m < kDown; ++m)
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    float& all = sums[m][first + n][v];
                    all = fmaf(own[m][n][v], v % 2 ? scale.y : scale.x, all);
                }
        }
    }
}

}  // namespace op
