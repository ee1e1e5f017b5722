// What the scanning of values is: as folding (fold.h), but in the order of the row, of which `a`
// comes before `b`. What is carried from one stretch of a row to the next has `told`: what an
// element knows to which `so_far` leads within its own stretch.

namespace op {

// @Cummax deps: kLeast, Placed
// The largest so far. A NaN takes the place of whatever was before it, and nothing else takes that
// of a NaN; of equal values the last has the place, as in eager PyTorch. The place of nothing is
// -1.
struct Cummax {
    template <typename T>
    OPWELD_FN T identity() {
        return kLeast<T>;
    }
    template <typename T>
    OPWELD_FN Placed<T, int64_t> nowhere() {
        return {kLeast<T>, int64_t(-1)};
    }
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return (later >= held) | !(later == later);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return takes(b, a) ? b : a;
    }
    template <typename T>
    OPWELD_FN Placed<T, int64_t> combine(Placed<T, int64_t> a, Placed<T, int64_t> b) {
        return (b.position >= 0) & takes(b.value, a.value) ? b : a;
    }
};

// @Cummin deps: kGreatest, Placed
// The smallest so far, likewise.
struct Cummin {
    template <typename T>
    OPWELD_FN T identity() {
        return kGreatest<T>;
    }
    template <typename T>
    OPWELD_FN Placed<T, int64_t> nowhere() {
        return {kGreatest<T>, int64_t(-1)};
    }
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return (later <= held) | !(later == later);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return takes(b, a) ? b : a;
    }
    template <typename T>
    OPWELD_FN Placed<T, int64_t> combine(Placed<T, int64_t> a, Placed<T, int64_t> b) {
        return (b.position >= 0) & takes(b.value, a.value) ? b : a;
    }
};

// @Logcumsumexp deps: kInfinity, logaddexp
struct Logcumsumexp {
    template <typename T>
    OPWELD_FN T identity() {
        return -kInfinity<T>;
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return op::logaddexp(a, b);
    }
};

}  // namespace op
