// What the folding of values is: an identity, and how two values become one. T is the type that the
// values are computed in. NaN, once met, stays the result of Sum, Prod, Amax and Amin, and of
// Argmax and Argmin the first NaN is the extreme, as in eager PyTorch.

namespace op {

// @kLeast deps: kIsFloating, kIsSigned, kInfinity
// Nothing of type T is less: -Inf, or the least integer.
template <typename T>
OPWELD_FN constexpr T least_of() {
    if constexpr (kIsFloating<T>) {
        return -kInfinity<T>;
    } else if constexpr (kIsSigned<T>) {
        return T(T(1) << (8 * sizeof(T) - 1));
    } else {
        return T(0);
    }
}
template <typename T>
constexpr T kLeast = least_of<T>();

// @kGreatest deps: kIsFloating, kIsSigned, kInfinity, kLeast
// Nothing of type T is greater.
template <typename T>
OPWELD_FN constexpr T greatest_of() {
    if constexpr (kIsFloating<T>) {
        return kInfinity<T>;
    } else if constexpr (kIsSigned<T>) {
        return T(~kLeast<T>);
    } else {
        return T(-1);
    }
}
template <typename T>
constexpr T kGreatest = greatest_of<T>();

// @Sum deps:
struct Sum {
    template <typename T>
    OPWELD_FN T identity() {
        return T(0);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a + b);
    }
};

// @Prod deps:
struct Prod {
    template <typename T>
    OPWELD_FN T identity() {
        return T(1);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a * b);
    }
};

// @Amax deps: kLeast, maximum
struct Amax {
    template <typename T>
    OPWELD_FN T identity() {
        return kLeast<T>;
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return op::maximum(a, b);
    }
};

// @Amin deps: kGreatest, minimum
struct Amin {
    template <typename T>
    OPWELD_FN T identity() {
        return kGreatest<T>;
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return op::minimum(a, b);
    }
};

// @Any deps:
struct Any {
    template <typename T>
    OPWELD_FN T identity() {
        return T(false);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a | b);
    }
};

// @All deps:
struct All {
    template <typename T>
    OPWELD_FN T identity() {
        return T(true);
    }
    template <typename T>
    OPWELD_FN T combine(T a, T b) {
        return T(a & b);
    }
};

// @Placed deps:
// A value and its position in the row, counted from 0.
template <typename T, typename Position>
struct Placed {
    T value;
    Position position;
};

// @Argmax deps: kLeast, Placed
// The first place of the largest. The identity's place is 0: where the whole row holds nothing
// greater than the identity, its first element is the answer.
struct Argmax {
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> identity() {
        return {kLeast<T>, Position(0)};
    }
    // Whether a value takes the place of one that was met before it: a greater one, or the first NaN.
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return !(later <= held) & (held == held);
    }
    // Of which `b` comes later in the row.
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> follow(Placed<T, Position> a, Placed<T, Position> b) {
        return takes(b.value, a.value) ? b : a;
    }
    // In any order.
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> combine(Placed<T, Position> a, Placed<T, Position> b) {
        bool before = (b.position < a.position) & !takes(a.value, b.value);
        return takes(b.value, a.value) | before ? b : a;
    }
};

// @Argmin deps: kGreatest, Placed
// The first place of the smallest, likewise.
struct Argmin {
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> identity() {
        return {kGreatest<T>, Position(0)};
    }
    template <typename T>
    OPWELD_FN bool takes(T later, T held) {
        return !(later >= held) & (held == held);
    }
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> follow(Placed<T, Position> a, Placed<T, Position> b) {
        return takes(b.value, a.value) ? b : a;
    }
    template <typename T, typename Position>
    OPWELD_FN Placed<T, Position> combine(Placed<T, Position> a, Placed<T, Position> b) {
        bool before = (b.position < a.position) & !takes(a.value, b.value);
        return takes(b.value, a.value) | before ? b : a;
    }
};

}  // namespace op
