// Attention on the CUDA cores, for rows whose numbers the parts of the tensor cores do not hold:
// NaN and infinities come out where a softmax of whole rows has them.

namespace op {

// @attend_limit deps: AttendSizes
// The keys that rows before `end` may see.
template <typename Problem>
OPWELD_FN int64_t attend_limit(const AttendSizes& sizes, int64_t end) {
    return Problem::kCausal && end < sizes.keys ? end : sizes.keys;
}

// @attend_score deps: AttendSizes, kInfinity
// The score of a product, -Inf where the key does not count.
template <typename Problem>
OPWELD_FN float attend_score(const Problem& problem, int64_t batch, int64_t i, int64_t j,
                             float product) {
    if (Problem::kCausal && j > i) return -kInfinity<float>;
    if constexpr (Problem::kPlain) return product * Problem::kFactor;
    return problem.score_of(batch, i, j, product);
}

// @warp_largest deps:
// NaN is passed over.
[[maybe_unused]] OPWELD_FN float warp_largest(float x) {
#pragma unroll
    for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
    return x;
}

// @attend_product deps: load_vector
// The product of two rows, of four neighbours at once where both lie as `packets`.
template <int kDepth>
OPWELD_FN float attend_product(const float* q, int64_t q_inner, const float* k, int64_t k_inner,
                               bool packets) {
    float product = 0.0f;
    if (packets) {
#pragma unroll 4
        for (int d = 0; d < kDepth; d += 4) {
            const auto a = load_vector<4>(q + d), b = load_vector<4>(k + d);
#pragma unroll
            for (int i = 0; i < 4; ++i) product = fmaf(a.lane[i], b.lane[i], product);
        }
    } else {
        for (int d = 0; d < kDepth; ++d) product = fmaf(q[d * q_inner], k[d * k_inner], product);
    }
    return product;
}

// @attend_plain deps: AttendLines, attend_limit, attend_product, attend_score, kInfinity, warp_largest
// Those of the rows `first` and on of a batch that are `wanted`, into a tile of Tile::kPitch floats
// a row: a warp takes a row, its lanes 32 keys at a time, and then its columns.
template <typename Tile, typename Problem>
OPWELD_FN void attend_plain(const Problem& problem, const AttendSizes& sizes, int64_t batch,
                            int64_t first, const bool* wanted, float* tile) {
    constexpr int kOwn = Tile::kColumns / 32;
    const int lane = int(threadIdx.x) % 32;
    const int64_t shared = problem.shared_of(batch);
    const AttendLines queries = problem.query_lines(batch), keys = problem.key_lines(shared);
    const AttendLines values = problem.value_lines(shared);
    const bool packets = queries.are_packets(Problem::kDepth) && keys.are_packets(Problem::kDepth);
    for (int row = int(threadIdx.x) / 32; row < Tile::kRows; row += Tile::kThreads / 32) {
        const int64_t i = first + row;
        if (i >= sizes.queries) break;
        if (!wanted[row]) continue;
        const int64_t limit = attend_limit<Problem>(sizes, i + 1);
        const float* q = queries.data + i * queries.row;
        float top = -3.402823466e38f, total = 0.0f, sums[kOwn] = {};
        for (int64_t begin = 0; begin < limit; begin += 32) {
            const int64_t j = begin + lane;
            float product = 0.0f, score = -kInfinity<float>;
            if (j < limit) {
                product = attend_product<Problem::kDepth>(
                    q, queries.inner, keys.data + j * keys.row, keys.inner, packets);
                score = attend_score(problem, batch, i, j, product);
            }
            const float higher = fmaxf(top, warp_largest(score));
            const float kept = expf(top - higher);
            const float share = j < limit ? expf(score - higher) : 0.0f;
            top = higher;
            total = fmaf(total, kept, share);
            float part[kOwn] = {};
            const int count = int(limit - begin < 32 ? limit - begin : 32);
            for (int key = 0; key < count; ++key) {
                const float own = __shfl_sync(~0u, share, key);
                const float* v = values.data + (begin + key) * values.row;
#pragma unroll
                for (int c = 0; c < kOwn; ++c) {
                    const int d = lane + 32 * c;
                    if (d < Problem::kColumns) part[c] = fmaf(own, v[d * values.inner], part[c]);
                }
            }
#pragma unroll
            for (int c = 0; c < kOwn; ++c) sums[c] = fmaf(sums[c], kept, part[c]);
        }
#pragma unroll
        for (int step = 16; step; step /= 2) total += __shfl_xor_sync(~0u, total, step);
        if (total == 0.0f && (Problem::kZeros || sizes.keys == 0)) total = 1.0f;
#pragma unroll
        for (int c = 0; c < kOwn; ++c) tile[row * Tile::kPitch + lane + 32 * c] = sums[c] / total;
    }
}

}  // namespace op
