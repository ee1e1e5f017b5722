// Scores of a tile become powers, operands of the second product. What a lane holds of 16 rows and
// 8 keys is as mma.cuh says, of wgmma's sums, too: rows lane / 4 and 8 on, two neighbours of keys.

namespace op {

// @AttendRows deps: ex2_approx_ftz
// What a lane knows of its rows: the largest score so far, and its own share of the sum of powers.
// A power is 2^15 times exp(score - largest): its parts hold 22 bits down to 2^-18 of the largest.
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
// Powers of scores as operands a, in two parts.
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
    __device__ __forceinline__ void get(unsigned int (&words)[4], int m, int step, bool low) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[i] = low ? lower[m][step][i] : upper[m][step][i];
    }
};

// @AttendPlace deps:
// The batch, a lane's first row of its 16 * kDown, the first key of a tile.
struct AttendPlace {
    int64_t batch, row, key;
};

// @attend_scores deps: AttendPlace, AttendSizes, attend_score, kInfinity
// Products become scores: where rows have a factor of their own, up to that. kEdge: not all keys of
// the tile count for all rows of the warp.
template <bool kEdge, typename Tile, typename Problem>
OPWELD_FN void attend_scores(float (&scores)[Tile::kDown][Tile::kKeys / 8][4],
                             const Problem& problem, const AttendSizes& sizes,
                             const AttendPlace& place, const float* key_scales,
                             const float* query_scales) {
    const int pair = int(threadIdx.x) % 4 * 2;
    // keys of the tile from this lane's first on: that exist, and before the first row's own
    const int64_t left = sizes.keys - place.key - pair, before = place.row - place.key - pair;
    const int exist = left < Tile::kKeys ? int(left) : Tile::kKeys;
    const int seen = before < -16 * Tile::kDown ? -16 * Tile::kDown
                     : before < Tile::kKeys     ? int(before)
                                                : Tile::kKeys;
#pragma unroll
    for (int n = 0; n < Tile::kKeys / 8; ++n) {
        const float2 scale = *reinterpret_cast<const float2*>(key_scales + 8 * n + pair);
#pragma unroll
        for (int m = 0; m < Tile::kDown; ++m)
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                float& own = scores[m][n][v];
                const int key = 8 * n + v % 2, row = 16 * m + v / 2 * 8;
                const bool exists = !kEdge || key < exist;
                own *= v % 2 ? scale.y : scale.x;
                if constexpr (!Problem::kPlain) {
                    const int64_t i = place.row + row, j = place.key + pair + key;
                    own *= query_scales[row];
                    own = problem.score_of(place.batch, i < sizes.queries ? i : sizes.queries - 1,
                                           exists ? j : 0, own);
                }
                if (!exists || (kEdge && Problem::kCausal && key > seen + row))
                    own = -kInfinity<float>;
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

}  // namespace op
