// The larger and the smaller of two floats by one instruction, where the general text takes four.

namespace op {

// @maximum deps: kIsFloating
// larger of a and b, NaN if either is NaN; any T
template <typename T>
OPWELD_FN T maximum(T a, T b) {
    if constexpr (kIsFloating<T> && sizeof(T) == 4) {
        T larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
        return larger;
    } else {
        T larger = a < b ? b : a;
        return b != b ? b : larger;
    }
}

// @minimum deps: kIsFloating
// smaller of a and b, NaN if either is NaN; any T
template <typename T>
OPWELD_FN T minimum(T a, T b) {
    if constexpr (kIsFloating<T> && sizeof(T) == 4) {
        T smaller;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
        return smaller;
    } else {
        T smaller = a > b ? b : a;
        return b != b ? b : smaller;
    }
}

}  // namespace op
