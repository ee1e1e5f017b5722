// What becomes of the elements of a product, as a functor: what runs by itself over tensors
// (pointwise.cuh) runs here on what is at hand.

namespace op {

// @ElementEpilogue deps: ElementLayout, load_words, store_words
// Whether neighbours in memory may be those of different rows: a functor may know that they are
// not.
template <typename F, typename = void>
constexpr bool may_lie_across = true;
template <typename F>
constexpr bool may_lie_across<F, std::void_t<decltype(F::kMayBeAcross)>> = F::kMayBeAcross;
// F::of takes an element of a product before its operands and results. `all` are laid out along the
// rows and the columns of the result: its last axis comes first, wherever it lies.
template <typename F, typename Operands>
struct ElementEpilogue;
template <typename F, typename... X>
struct ElementEpilogue<F, Types<X...>> {
    static constexpr int kLanes = F::kWidth, kLast = F::kRank - 1;
    static constexpr bool kTakesRows = true, kMayBeAcross = may_lie_across<F>;
    static constexpr int kOperands = sizeof...(X);  // and results
    ElementLayout<F::kRank, sizeof...(X)> all;
    bool across;   // neighbours in memory are those of different rows
    bool in_runs;  // of them four from a multiple of four on, or one, wherever it reads and writes

    auto laid_out_along(const TensorView* x) {
        const auto known = columns_apart(x);
        in_runs = are_runs(std::make_index_sequence<sizeof...(X)>());
        return known;
    }
    // What is known of the tensors; columns stay an axis where they continue in all of them.
    auto columns_apart(const TensorView* x) {
        const auto known = laid_out<F, true>(x, all, Types<X...>());
        const int64_t columns = x[sizeof...(X) - 1].sizes[kLast];
        across = all.strides[0][sizeof...(X) - 1] > 1;
        if (known.misfit != 0 || known.num == 0 || all.sizes[0].by == columns) return known;
        const int64_t rows = all.sizes[0].by / columns;
        for (int a = all.num_axes - 1; a > 0; --a) {
            all.sizes[a + 1] = all.sizes[a];
            std::copy(all.strides[a], all.strides[a + 1], all.strides[a + 1]);
        }
        all.sizes[0] = columns, all.sizes[1] = rows, ++all.num_axes;
        for (size_t i = 0; i < sizeof...(X); ++i) all.strides[1][i] = all.strides[0][i] * columns;
        return known;
    }
    template <size_t... k>
    bool are_runs(std::index_sequence<k...>) const {
        const auto takes = [&](size_t i) {
            if (all.strides[1][i] == 0) return true;
            bool even =
                all.strides[1][i] == 1 && reinterpret_cast<uintptr_t>(all.data[i]) % 16 == 0;
            for (int a = 0; a < all.num_axes; ++a) even &= a == 1 || all.strides[a][i] % 4 == 0;
            return even;
        };
        return across && all.num_axes > 1 && all.sizes[1].by % 4 == 0 &&
               ((is_of_columns<X> || takes(k)) && ...);
    }
    // Where a row begins in each of them.
    template <typename Index>
    struct RowStarts {
        Index of[sizeof...(X)];

        __device__ __forceinline__ void add(const RowStarts& rows) {
#pragma unroll
            for (size_t k = 0; k < sizeof...(X); ++k) of[k] += rows.of[k];
        }
    };
    template <typename Index>
    __device__ __forceinline__ RowStarts<Index> row_at(Index row) const {
        return row_at(row, std::make_index_sequence<sizeof...(X)>());
    }
    template <typename Index, size_t... k>
    __device__ __forceinline__ RowStarts<Index> row_at(Index row, std::index_sequence<k...>) const {
        RowStarts<Index> starts{};
#pragma unroll
        for (int a = 1; a < F::kRank; ++a) {
            if (a >= all.num_axes) break;
            const Index next = a + 1 < all.num_axes ? all.sizes[a].quotient(row) : Index(0);
            const Index along = row - next * Index(all.sizes[a].by);
            ((starts.of[k] += is_of_columns<X> ? 0 : along * Index(all.strides[a][k])), ...);
            row = next;
        }
        return starts;
    }
    // What another lane of the warp has found of a row.
    template <typename Index>
    __device__ __forceinline__ RowStarts<Index> of_lane(RowStarts<Index> row, int lane) const {
        constexpr bool kSame[] = {is_of_columns<X>...};
#pragma unroll
        for (size_t k = 0; k < sizeof...(X); ++k)
            if (!kSame[k]) row.of[k] = __shfl_sync(~0u, row.of[k], lane);
        return row;
    }
    // Neighbours from flat position `at` on, or from a column of a row; `packed` in memory where
    // there are several, or apart.
    template <int n, typename Index>
    __device__ __forceinline__ void operator()(Index at, const float (&values)[n]) const {
        const Index row = all.sizes[0].quotient(at);
        give<true>(row_at(row), at - row * Index(all.sizes[0].by), values);
    }
    template <bool packed, int n, typename Index>
    __device__ __forceinline__ void give(const RowStarts<Index>& row, Index column,
                                         const float (&values)[n]) const {
        give<packed>(row, column, values, std::make_index_sequence<sizeof...(X)>());
    }
    template <bool packed, int n, typename Index, size_t... k>
    __device__ __forceinline__ void give(const RowStarts<Index>& row, Index column,
                                         const float (&values)[n],
                                         std::index_sequence<k...>) const {
        give_fetched<packed>(row, column, values, std::index_sequence<k...>(),
                             fetch<n, packed, X>(element_row<X>(k, row), column)...);
    }
    template <bool packed, int n, typename Index, size_t... k, typename... Found>
    __device__ __forceinline__ void give_fetched(const RowStarts<Index>& row, Index column,
                                                 const float (&values)[n],
                                                 std::index_sequence<k...>, Found... found) const {
#pragma unroll
        for (int i = 0; i < n; ++i) F::of(values[i], found.value[i]...);
        (store<n, packed>(element_row<X>(k, row), column, found), ...);
    }
    template <typename Y, typename Index>
    __device__ __forceinline__ ElementRow<typename Y::T, Index> element_row(
        size_t k, const RowStarts<Index>& row) const {
        return {static_cast<typename Y::T*>(all.data[k]) + row.of[k], Index(all.strides[0][k])};
    }
    // n columns of several rows, packed in memory: all that is read is under way together, what is
    // of columns alone once. `values(i)` are those of row i.
    template <int n, int kRows, typename Index, typename Values>
    __device__ __forceinline__ void give_rows(const RowStarts<Index> (&rows)[kRows], Index column,
                                              const Values& values) const {
        give_rows<n>(rows, column, values, std::make_index_sequence<sizeof...(X)>());
    }
    template <int n, int kRows, typename Index, typename Values, size_t... k>
    __device__ __forceinline__ void give_rows(const RowStarts<Index> (&rows)[kRows], Index column,
                                              const Values& values,
                                              std::index_sequence<k...> all_of_them) const {
        [&](const auto&... found) {
#pragma unroll
            for (int i = 0; i < kRows; ++i)
                give_fetched<true>(rows[i], column, values(i).lane, all_of_them, found.of(i)...);
        }(fetch_rows<n, X>(k, rows, column)...);
    }
    template <int n, typename Y, int kRows, typename Index>
    __device__ __forceinline__ auto fetch_rows(size_t k, const RowStarts<Index> (&rows)[kRows],
                                               Index column) const {
        FetchedRows<Y, kRows, n> found;
#pragma unroll
        for (int i = 0; i < found.kCount; ++i)
            found.row[i] = fetch<n, true, Y>(element_row<Y>(k, rows[i]), column);
        return found;
    }
    // It is the same in all rows: what is computed of it alone is computed once for several.
    template <typename Y>
    static constexpr bool is_of_columns = Y::kRank == 1 && Y::kAxis[0] == kLast;

    // Some columns of an operand in several rows, or in all.
    template <typename Y, int kRows, int n>
    struct FetchedRows {
        static constexpr int kCount = is_of_columns<Y> ? 1 : kRows;
        Pack<std::remove_const_t<typename Y::T>, n> row[kCount];

        __device__ __forceinline__ const auto& of(int i) const { return row[kCount == 1 ? 0 : i]; }
    };

    // Without a branch, so that what is at hand for several rows is read at once.
    template <int n, bool packed, typename Y, typename T, typename Index>
    static __device__ __forceinline__ auto fetch(ElementRow<T, Index> x, Index at) {
        using Own = Pack<std::remove_const_t<T>, n>;
        Own found{};
        if constexpr (!std::is_const_v<T>) {
            return found;  // it is a result
        } else if constexpr (!Y::has(kLast)) {
            for (auto& each : found.value) each = __ldg(x.data);
            return found;
        } else if constexpr (n > 1 && packed) {
            return load_words(reinterpret_cast<const Own*>(x.data + at),
                              [](const auto* word) { return __ldg(word); });
        } else {
#pragma unroll
            for (int i = 0; i < n; ++i) found.value[i] = __ldg(x.data + (at + Index(i)) * x.step);
            return found;
        }
    }
    template <int n, bool packed, typename T, typename Index>
    static __device__ __forceinline__ void store(ElementRow<T, Index> x, Index at,
                                                 Pack<std::remove_const_t<T>, n> values) {
        if constexpr (std::is_const_v<T>) return;
        else if constexpr (n == 1 || !packed)
            for (int i = 0; i < n; ++i) x.data[(at + Index(i)) * x.step] = values.value[i];
        else
            store_words(reinterpret_cast<Pack<T, n>*>(x.data + at), values,
                        [](auto* to, auto word) { *to = word; });
    }
    // Whether several neighbours may be asked for at once.
    bool takes_packets() const {
        bool all_packed = true;
        for (size_t i = 0; i < sizeof...(X); ++i) {
            all_packed = all_packed && (all.packed[i] || !kHasLast[i]);
        }
        return all_packed;
    }
    static constexpr bool kHasLast[] = {X::has(kLast)...};
};

}  // namespace op
