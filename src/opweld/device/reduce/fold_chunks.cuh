// Rows read by threads together, for what is folded of a few elements at once: folds that first
// ask for the largest of them, or for their mean.

namespace op {

// @ChunkWalks deps: NoFolds, NoPacket, Walks
// What a pass folds is a struct `Folds` of the group, with also
//     struct Element { void add(...) }                      what is folded of one element
//     void take(const Element (&elements)[kCount], int count)      takes in the first `count`
// Few threads, which each have much of a row, need chains of chains: kDeep.
template <int kStep, int kLanes, int kItems, typename Packet, typename Index, int kDeep = 1>
struct ChunkWalks : Walks<kStep, kLanes, kItems, Packet, Index> {
    using Base = Walks<kStep, kLanes, kItems, Packet, Index>;
    using Base::Base, Base::begin, Base::end, Base::clear, Base::kUnroll;
    static constexpr int kMostElements = 16;
    static_assert(kItems == 0, "rows that stay in registers are walked several times");

    // visit(packet, at, elements) for every packet at position `at`. The lanes of a packet are one
    // row's, with one fold, or as many rows'.
    template <typename Folds, int kFolds, typename Load, typename Visit>
    __device__ __forceinline__ void walk_chunks(Folds (&folds)[kFolds], Load load,
                                                Visit visit) const {
        clear(folds);
        if constexpr (Folds::kChain == NoFolds::kChain) {
            chunks(begin, end, folds, load, visit);
        } else {
            const auto chain = [&](Index at, Index until, Folds(&part)[kFolds]) {
                chunks(at, until, part, load, visit);
            };
            Base::template cascade<kDeep>(begin, end, folds, chain);
        }
    }

    template <typename Folds, int kFolds, typename Load, typename Visit>
    OPWELD_FN void chunks(Index at, Index end, Folds (&folds)[kFolds], Load load, Visit visit) {
        for (; at + (kUnroll - 1) * kStep < end; at += kUnroll * kStep) {
            batch<true>(at, end, folds, load, visit);
        }
        if (at < end) batch<false>(at, end, folds, load, visit);
    }

    // kUnroll packets, all loaded before any is visited, or as many as there are left. A chunk is
    // as many of them as have kMostElements.
    template <bool kFull, typename Folds, int kFolds, typename Load, typename Visit>
    OPWELD_FN void batch(Index at, Index end, Folds (&folds)[kFolds], Load load, Visit visit) {
        constexpr int kChunk = kUnroll * kLanes > kMostElements ? kMostElements / kLanes : kUnroll;
        Packet packets[kUnroll];
#pragma unroll
        for (int k = 0; k < kUnroll; ++k) {
            if (kFull || at + k * kStep < end) packets[k] = load(at + k * kStep);
        }
#pragma unroll
        for (int first = 0; first < kUnroll; first += kChunk) {
            if (!kFull && at + first * kStep >= end) break;
            typename Folds::Element elements[kFolds][kChunk * kLanes / kFolds];
            int count = 0;
#pragma unroll
            for (int k = 0; k < kChunk; ++k) {
                const Index place = at + (first + k) * kStep;
                if (kFull || place < end) {
                    typename Folds::Element lanes[kLanes];
                    visit(packets[first + k], place, lanes);
#pragma unroll
                    for (int lane = 0; lane < kLanes; ++lane) {
                        elements[lane % kFolds][(k * kLanes + lane) / kFolds] = lanes[lane];
                    }
                    count = (k + 1) * kLanes / kFolds;
                }
            }
#pragma unroll
            for (int fold = 0; fold < kFolds; ++fold) folds[fold].take(elements[fold], count);
        }
    }
};

// @of_chunk deps:
// The first `count` values as one, in a tree.
template <typename Fold, int kCount, typename T>
OPWELD_FN T of_chunk(T (&value)[kCount], int count, T identity) {
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        if (k >= count) value[k] = identity;
    }
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < half; ++k) value[k] = Fold::combine(value[k], value[k + half]);
    }
    return value[0];
}

// @LargestNumber deps: Amax
// One instruction where Amax takes four: NaN is overlooked.
struct LargestNumber {
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return ::fmax(a, b);
    }
};

// @take_powers deps: Amax, LargestNumber, Sum, Sumexp, of_chunk
// One look for the largest, then one exp for each value.
template <int kCount, typename T>
OPWELD_FN void take(Powers<T, T>& powers, const T (&value)[kCount], int count) {
    T work[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) work[k] = value[k];
    Sumexp::reach(powers, of_chunk<LargestNumber>(work, count, Amax::identity<T>()));
    const T base = Sumexp::base(powers);
#pragma unroll
    for (int k = 0; k < kCount; ++k) work[k] = op::exp(value[k] - base);
    const T part = of_chunk<Sum>(work, count, T(0));
    powers.sum += part;
    if (part != part) {  // of +Inf, too
        for (int k = 0; k < count; ++k) powers.largest = Amax::combine(powers.largest, value[k]);
    }
}

// @take_spread deps: Devsq, Sum, of_chunk
// The differences to the mean of the first few values of a chunk, then one merge. Their squares are
// at most a few times those to the mean of all, so that no digits are lost, and where all values
// are equal all differences are 0.
template <int kCount, typename T>
OPWELD_FN void take(Spread<T>& spread, const T (&value)[kCount], int count) {
    constexpr int kFew = kCount < 4 ? kCount : 4;
    T few[kFew], rest = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < kFew; ++k) few[k] = value[k < count ? k : 0] * (T(1) / T(kFew));
    T about = of_chunk<Sum>(few, kFew, T(0));
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
        const T difference = k < count ? value[k] - about : T(0);
        rest += difference;
        squares += difference * difference;
    }
    if (rest - rest != T(0)) {  // an infinity is kept, and what is too large for differences
        about = 0;
        for (int k = 0; k < count; ++k) about += value[k] / T(count);
    }
    spread = Devsq::combine(spread, Devsq::of_differences(T(count), about, rest, squares));
}

}  // namespace op
