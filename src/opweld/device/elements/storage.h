// How values are stored and how they are computed with: half and bfloat16 are widened to float and
// rounded back to nearest, ties to even (storage_cuda.cuh, storage_cpp.h).

namespace op {

// @Compute deps:
// The type that values stored as T are computed in.
template <typename T>
struct Compute {
    using type = T;
    OPWELD_FN T widen(T x) { return x; }
    OPWELD_FN T narrow(T v) { return v; }
};

// @to_compute deps: Compute
// x in its compute type
template <typename T>
OPWELD_FN typename Compute<T>::type to_compute(T x) {
    return Compute<T>::widen(x);
}

// @from_compute deps: Compute
// v as stored in T
template <typename T>
OPWELD_FN T from_compute(typename Compute<T>::type v) {
    return Compute<T>::narrow(v);
}

}  // namespace op
