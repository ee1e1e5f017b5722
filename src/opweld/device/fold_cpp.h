// Folding in lanes, as loops that g++ vectorises: element k of a row goes to lane k % kLanes, and
// in the end the lanes become one value. What lanes of float have summed up goes to totals of
// double before many roundings add up.

namespace op {

// @open_lanes deps:
// The lanes before any element.
template <typename Fold, typename T, int kLanes>
OPWELD_FN void open_lanes(T (&lane)[kLanes]) {
    for (int k = 0; k < kLanes; ++k) lane[k] = Fold::template identity<T>();
}

// @open_places deps:
template <typename Fold, typename T, typename Position, int kLanes>
OPWELD_FN void open_places(T (&extreme)[kLanes], Position (&place)[kLanes]) {
    for (int k = 0; k < kLanes; ++k) {
        extreme[k] = Fold::template identity<T, Position>().value;
        place[k] = Fold::template identity<T, Position>().position;
    }
}

// @empty_lanes deps:
// What the lanes hold goes to the totals.
template <typename T, int kLanes>
OPWELD_FN void empty_lanes(T (&lane)[kLanes], double (&total)[kLanes]) {
    for (int k = 0; k < kLanes; ++k) {
        total[k] += lane[k];
        lane[k] = T(0);
    }
}

// @RowMemory deps:
// An array of a row, from walk to walk, which is too long for the stack or may be.
template <typename T>
struct RowMemory {
    T* const elements;
    explicit RowMemory(int64_t count) : elements(new T[count]) {}
    RowMemory(const RowMemory&) = delete;
    ~RowMemory() { delete[] elements; }
};

// @fold_lanes deps:
// One value of all lanes, as a tree of neighbours kWidth apart; the lanes are lost.
template <typename Fold, int kWidth, typename T>
OPWELD_FN T fold_first_lanes(T* lane) {
    if constexpr (kWidth == 1) {
        return lane[0];
    } else {
        constexpr int kHalf = kWidth / 2;
        for (int k = 0; k < kHalf; ++k) lane[k] = Fold::combine(lane[k], lane[k + kHalf]);
        return fold_first_lanes<Fold, kHalf>(lane);
    }
}
template <typename Fold, typename T, int kLanes>
OPWELD_FN T fold_lanes(T (&lane)[kLanes]) {
    static_assert((kLanes & (kLanes - 1)) == 0, "a power of two");
    return fold_first_lanes<Fold, kLanes>(lane);
}

// @fold_places deps: Placed
template <typename Fold, typename T, typename Position, int kLanes>
OPWELD_FN Placed<T, Position> fold_places(const T (&extreme)[kLanes],
                                          const Position (&place)[kLanes]) {
    Placed<T, Position> found = {extreme[0], place[0]};
    for (int k = 1; k < kLanes; ++k) {
        found = Fold::combine(found, Placed<T, Position>{extreme[k], place[k]});
    }
    return found;
}

}  // namespace op
