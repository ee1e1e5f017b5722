// Neighbouring rows of a product, which are neighbours in memory, to an epilogue.

namespace op {

// @give_runs deps: ElementEpilogue, Vector, load_words, store_words
template <int n, typename T>
OPWELD_FN auto fetch_run(T* from, bool is_one) {
    Pack<std::remove_const_t<T>, n> found{};
    if constexpr (!std::is_const_v<T>) return found;  // it is a result
    if (!is_one) {
        return load_words(reinterpret_cast<const decltype(found)*>(from),
                          [](const auto* word) { return __ldg(word); });
    }
    const auto value = __ldg(from);
#pragma unroll
    for (int i = 0; i < n; ++i) found.value[i] = value;
    return found;
}
template <int n, typename T>
OPWELD_FN void store_run(T* to, const Pack<std::remove_const_t<T>, n>& values) {
    if constexpr (!std::is_const_v<T>)
        store_words(reinterpret_cast<Pack<T, n>*>(to), values,
                    [](auto* at, auto word) { *at = word; });
}
// Values of neighbouring rows, the first of which is `row`, of some columns to such an epilogue:
// what is read for all of them is under way together.
template <typename T, int n, int kColumns>
struct FetchedRuns {
    Pack<std::remove_const_t<T>, n> of[kColumns];
};
template <int n, int kColumns, typename T, typename Index>
OPWELD_FN auto fetch_runs(T* from, const Index (&columns)[kColumns], Index step, bool is_one) {
    FetchedRuns<T, n, kColumns> found;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) found.of[i] = fetch_run<n>(from + columns[i] * step, is_one);
    return found;
}
template <int n, int kColumns, typename F, typename... X, typename Row, typename Index, size_t... k>
OPWELD_FN void give_runs(const ElementEpilogue<F, Types<X...>>& epilogue, const Row& row,
                         const Index (&columns)[kColumns],
                         const Vector<float, n> (&values)[kColumns], std::index_sequence<k...>) {
    using Own = ElementEpilogue<F, Types<X...>>;
    const auto& all = epilogue.all;
    const Index step[] = {X::has(F::kRank - 1) ? Index(all.strides[0][k]) : Index(0)...};
    const auto give = [&](auto... found) {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
#pragma unroll
            for (int j = 0; j < n; ++j) F::of(values[i].lane[j], found.of[i].value[j]...);
            (store_run<n>(
                 static_cast<typename X::T*>(all.data[k]) + (row.of[k] + columns[i] * step[k]),
                 found.of[i]),
             ...);
        }
    };
    give(fetch_runs<n>(static_cast<typename X::T*>(all.data[k]) + row.of[k], columns, step[k],
                       Own::template is_of_columns<X> || all.strides[1][k] == 0)...);
}
template <int n, int kColumns, typename F, typename... X, typename Row, typename Index>
OPWELD_FN void give_runs(const ElementEpilogue<F, Types<X...>>& epilogue, const Row& row,
                         const Index (&columns)[kColumns],
                         const Vector<float, n> (&values)[kColumns]) {
    give_runs(epilogue, row, columns, values, std::make_index_sequence<sizeof...(X)>());
}

}  // namespace op
