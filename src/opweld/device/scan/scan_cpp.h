// Scanning in C++: what comes to a span is calculated in vectors of neighbours or in chains side by
// side, as one chain would wait for every step. Spans are short, so that loads of the next one run
// ahead. Floats are taken together in double, as in eager PyTorch.

namespace op {

// @kScanSpan deps:
constexpr int kSpanChains = 8, kSpanChain = 8;
constexpr int kScanSpan = kSpanChains * kSpanChain;

// @scan_singly deps:
// Each of `count` values becomes what is carried into the span together with the values up to it,
// or before it, and `carry` what is carried on.
template <typename Fold, bool kExclusive, typename T, typename Total>
OPWELD_FN void scan_singly(T* value, int64_t count, Total& carry) {
    for (int64_t k = 0; k < count; ++k) {
        const Total so_far = Fold::combine(carry, Total(value[k]));
        value[k] = T(kExclusive ? carry : so_far);
        carry = so_far;
    }
}

// @Neighbours deps:
// Four neighbours, and the same moved up by one or two places behind those of another.
template <typename Total>
struct Neighbours {
    typedef Total Lanes __attribute__((vector_size(4 * sizeof(Total))));
    typedef int64_t Places __attribute__((vector_size(4 * sizeof(int64_t))));
#if defined(__clang__)
    OPWELD_FN Lanes up_one(Lanes x, Lanes nothing) {
        return __builtin_shufflevector(nothing, x, 3, 4, 5, 6);
    }
    OPWELD_FN Lanes up_two(Lanes x, Lanes nothing) {
        return __builtin_shufflevector(nothing, x, 2, 3, 4, 5);
    }
    OPWELD_FN Lanes last(Lanes x) { return __builtin_shufflevector(x, x, 3, 3, 3, 3); }
#else
    OPWELD_FN Lanes up_one(Lanes x, Lanes nothing) {
        return __builtin_shuffle(nothing, x, Places{3, 4, 5, 6});
    }
    OPWELD_FN Lanes up_two(Lanes x, Lanes nothing) {
        return __builtin_shuffle(nothing, x, Places{2, 3, 4, 5});
    }
    OPWELD_FN Lanes last(Lanes x) { return __builtin_shuffle(x, Places{3, 3, 3, 3}); }
#endif
};

// @scan_neighbours deps: kScanSpan, Neighbours, scan_singly
// As scan_singly, by arithmetic on totals of 8 bytes: four neighbours at a time (Hillis and Steele,
// "Data parallel algorithms", 1986).
template <typename Fold, bool kExclusive, typename T, typename Total>
OPWELD_FN void scan_neighbours(T* value, int64_t count, Total& carry) {
    static_assert(sizeof(Total) == 8);
    using Four = Neighbours<Total>;
    using Lanes = typename Four::Lanes;
    const Total none = Fold::template identity<Total>();
    const Lanes nothing{none, none, none, none};
    Lanes before{carry, carry, carry, carry};
    const int64_t whole = count & ~int64_t(3);
    for (int64_t k = 0; k < whole; k += 4) {
        Lanes taken;
        for (int j = 0; j < 4; ++j) taken[j] = Total(value[k + j]);
        taken = Fold::combine(Four::up_one(taken, nothing), taken);
        taken = Fold::combine(Four::up_two(taken, nothing), taken);
        const Lanes told = kExclusive ? Four::up_one(taken, nothing) : taken;
        const Lanes result = Fold::combine(before, told);
        for (int j = 0; j < 4; ++j) value[k + j] = T(result[j]);
        before = Fold::combine(before, Four::last(taken));
    }
    carry = before[0];
    scan_singly<Fold, kExclusive>(value + whole, count - whole, carry);
}

// @scan_span deps: kScanSpan, scan_singly
// As scan_singly, in chains. Their steps side by side are vectors only where they are functions
// (kVectors): to gather values of several chains takes longer than to compare them.
template <typename Fold, bool kExclusive, bool kVectors, typename T, typename Total>
OPWELD_FN void scan_span(T* value, int64_t count, Total& carry) {
    if (count < kScanSpan) return scan_singly<Fold, kExclusive>(value, count, carry);
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
// As scan_singly, with the place of each extreme; the first value stands at position `first`.
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
