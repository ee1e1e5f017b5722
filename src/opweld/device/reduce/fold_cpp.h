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
// An array of a row, from pass to pass, which is too long for the stack or may be.
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

// @add_compensated deps: Mean
// Takes an element into a lane.
OPWELD_FN void add_compensated(double& sum, double& rest, double value) {
    const Compensated<double> more = Mean::combine<double>({sum, rest}, {value, 0});
    sum = more.sum;
    rest = more.rest;
}

// @fold_compensated deps: Mean
// One value of all lanes, as a tree like that of `fold_lanes`.
template <int kLanes>
OPWELD_FN Compensated<double> fold_compensated(double (&sum)[kLanes], double (&rest)[kLanes]) {
    for (int half = kLanes / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; ++k) {
            const Compensated<double> both =
                Mean::combine<double>({sum[k], rest[k]}, {sum[k + half], rest[k + half]});
            sum[k] = both.sum;
            rest[k] = both.rest;
        }
    }
    return {sum[0], rest[0]};
}

// @in_lanes deps: open_lanes
// Elements of a span go to the lanes: visit(k, lane) for each place k.
template <int kLanes, typename Visit>
OPWELD_FN void in_lanes(int64_t count, Visit visit) {
    int64_t block = 0;
    for (; block + kLanes <= count; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) visit(block + lane, lane);
    }
#pragma omp simd
    for (int64_t lane = 0; lane < count - block; ++lane) visit(block + lane, lane);
}
constexpr int kSpanLanes = 64;

// @total_of deps:
// Of lanes of few additions, in double.
template <typename T, int kLanes>
OPWELD_FN double total_of(const T (&lane)[kLanes]) {
    double total = 0;
    for (int k = 0; k < kLanes; ++k) total += lane[k];
    return total;
}

// @take_powers deps: Amax, Sumexp, fold_lanes, in_lanes, total_of
// Takes in the first `count` values of a span: one look for the largest, then one exp for each.
template <typename T, int kSpan>
OPWELD_FN void take(Powers<T, double>& powers, const T (&value)[kSpan], int64_t count) {
    T lane[kSpanLanes];
    open_lanes<Amax>(lane);
    in_lanes<kSpanLanes>(
        count, [&](int64_t k, int64_t at) { lane[at] = Amax::combine(lane[at], value[k]); });
    Sumexp::reach(powers, fold_lanes<Amax>(lane));
    const T base = Sumexp::base(powers);
    for (T& each : lane) each = T(0);
    in_lanes<kSpanLanes>(count,
                         [&](int64_t k, int64_t at) { lane[at] += op::exp(value[k] - base); });
    powers.sum += total_of(lane);
}
// Of rows side by side: value[k][row].
template <typename T, int kSpan, int kLanes>
OPWELD_FN void take(Powers<T, double> (&powers)[kLanes], const T (&value)[kSpan][kLanes],
                    int64_t count, int64_t rows) {
    T lane[kLanes], base[kLanes];
    open_lanes<Amax>(lane);
    for (int64_t k = 0; k < count; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) {
            lane[row] = Amax::combine(lane[row], value[k][row]);
        }
    }
    for (int64_t row = 0; row < rows; ++row) {
        Sumexp::reach(powers[row], lane[row]);
        base[row] = Sumexp::base(powers[row]);
        lane[row] = T(0);
    }
    for (int64_t k = 0; k < count; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) lane[row] += op::exp(value[k][row] - base[row]);
    }
    for (int64_t row = 0; row < rows; ++row) powers[row].sum += lane[row];
}

// @take_spread deps: Devsq, in_lanes, total_of
// Takes in the first `count` values of a span, by their differences to nearly their mean.
template <typename T, int kSpan>
OPWELD_FN void take(Spread<T>& spread, const T (&value)[kSpan], int64_t count) {
    double sum[kSpanLanes] = {};
    T rest[kSpanLanes] = {}, squares[kSpanLanes] = {};
    in_lanes<kSpanLanes>(count, [&](int64_t k, int64_t at) { sum[at] += value[k]; });
    const T about = T(total_of(sum) / double(count));
    in_lanes<kSpanLanes>(count, [&](int64_t k, int64_t at) {
        const T difference = value[k] - about;
        rest[at] += difference;
        squares[at] += difference * difference;
    });
    const double number = double(count);
    spread = Devsq::combine(
        spread, Devsq::of_differences(number, about, total_of(rest), total_of(squares)));
}
// Of rows side by side: value[k][row].
template <typename T, int kSpan, int kLanes>
OPWELD_FN void take(Spread<T> (&spread)[kLanes], const T (&value)[kSpan][kLanes], int64_t count,
                    int64_t rows) {
    double sum[kLanes] = {};
    T about[kLanes], rest[kLanes] = {}, squares[kLanes] = {};
    for (int64_t k = 0; k < count; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) sum[row] += value[k][row];
    }
    for (int64_t row = 0; row < rows; ++row) about[row] = T(sum[row] / double(count));
    for (int64_t k = 0; k < count; ++k) {
#pragma omp simd
        for (int64_t row = 0; row < rows; ++row) {
            const T difference = value[k][row] - about[row];
            rest[row] += difference;
            squares[row] += difference * difference;
        }
    }
    const double number = double(count);
    for (int64_t row = 0; row < rows; ++row) {
        const double few = rest[row], square = squares[row];
        spread[row] =
            Devsq::combine(spread[row], Devsq::of_differences(number, about[row], few, square));
    }
}

// @open_states deps:
// The states of rows side by side before any element.
template <typename State, int kLanes>
OPWELD_FN void open_states(State (&state)[kLanes], const State& identity) {
    for (int k = 0; k < kLanes; ++k) state[k] = identity;
}

}  // namespace op
