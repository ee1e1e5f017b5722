// Scanning in C++: what comes to a span is calculated in chains side by side, each of neighbours,
// as one chain would wait for every step. Floats are taken together in double, as in eager PyTorch.

namespace op {

// @kScanSpan deps:
constexpr int kSpanChains = 8, kSpanChain = 64;
constexpr int kScanSpan = kSpanChains * kSpanChain;

// @scan_span deps: kScanSpan
// Each of `count` values becomes what is carried into the span together with the values up to it, or
// before it, and `carry` what is carried on. Steps of chains side by side are vectors only where
// they are functions (kVectors): to gather values of several chains takes longer than to add them.
template <typename Fold, bool kExclusive, bool kVectors, typename T, typename Total>
OPWELD_FN void scan_span(T* value, int64_t count, Total& carry) {
    if (count < kScanSpan) {
        for (int64_t k = 0; k < count; ++k) {
            const Total so_far = Fold::combine(carry, Total(value[k]));
            value[k] = T(kExclusive ? carry : so_far);
            carry = so_far;
        }
        return;
    }
    Total chain[kSpanChains], part[kSpanChains][kSpanChain];
    const auto step = [&](int c, int k) {
        const Total so_far = Fold::combine(chain[c], Total(value[c * kSpanChain + k]));
        part[c][k] = kExclusive ? chain[c] : so_far;
        chain[c] = so_far;
    };
    for (int c = 0; c < kSpanChains; ++c) chain[c] = Fold::template identity<Total>();
    for (int k = 0; k < kSpanChain; ++k) {
        if constexpr (kVectors) {
#pragma omp simd
            for (int c = 0; c < kSpanChains; ++c) step(c, k);
        } else {
#pragma GCC unroll 8
            for (int c = 0; c < kSpanChains; ++c) step(c, k);
        }
    }
    for (int c = 0; c < kSpanChains; ++c) {
        const Total before = carry;
        carry = Fold::combine(carry, chain[c]);
#pragma omp simd
        for (int k = 0; k < kSpanChain; ++k) {
            value[c * kSpanChain + k] = T(Fold::combine(before, part[c][k]));
        }
    }
}

// @scan_places deps: Placed, kScanSpan
// Likewise, with the place of each extreme; the first value stands at position `first`.
template <typename Fold, typename T>
OPWELD_FN void scan_places(T* value, int64_t* place, int64_t count, int64_t first,
                           Placed<T, int64_t>& carry) {
    for (int64_t k = 0; k < count; ++k) {
        carry = Fold::combine(carry, Placed<T, int64_t>{value[k], first + k});
        value[k] = carry.value;
        place[k] = carry.position;
    }
}

}  // namespace op
