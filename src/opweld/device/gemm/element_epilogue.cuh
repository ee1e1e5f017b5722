// What becomes of the elements of a product, as a functor: what runs by itself over tensors
// (pointwise.cuh) runs here on what is at hand.

namespace op {

// @ElementEpilogue deps: pointwise
// A functor as what becomes of the elements of a product: F::of takes one before its operands and
// results. `all` are laid out along a result without gaps, and `at` is a position in it.
template <typename F, typename Operands>
struct ElementEpilogue;
template <typename F, typename... X>
struct ElementEpilogue<F, Types<X...>> {
    static constexpr int kLanes = F::kWidth;
    ElementLayout<F::kRank, sizeof...(X)> all;

    template <int n, typename Index>
    __device__ __forceinline__ void operator()(Index at, const float (&values)[n]) const {
        give(at, values, std::make_index_sequence<sizeof...(X)>());
    }
    template <int n, typename Index, size_t... k>
    __device__ __forceinline__ void give(Index at, const float (&values)[n],
                                         std::index_sequence<k...>) const {
        Index row = all.sizes[0].quotient(at), starts[sizeof...(X)] = {};
        at -= row * Index(all.sizes[0].by);
#pragma unroll
        for (int a = 1; a < F::kRank; ++a) {
            if (a >= all.num_axes) break;
            const Index next = all.sizes[a].quotient(row);
            const Index along = row - next * Index(all.sizes[a].by);
            ((starts[k] += along * Index(all.strides[a][k])), ...);
            row = next;
        }
        [&](auto... x) {
            [&](auto... found) {
#pragma unroll
                for (int i = 0; i < n; ++i) F::of(values[i], found.value[i]...);
                (put<n>(x, at, found), ...);
            }(get<n>(x, at)...);
        }(ElementRow<typename X::T, Index>{static_cast<typename X::T*>(all.data[k]) + starts[k],
                                           Index(all.strides[0][k]), all.packed[k]}...);
    }
};

}  // namespace op
