// Packets of neighbouring values, moved by one access of up to 16 bytes. A pointer must be aligned
// to alignof(Vector<T, kLanes>); wider vectors are moved as several 16-byte packets.

// @type_traits_header deps:
#include <type_traits>

namespace op {

// @Word deps: type_traits_header
template <bool kHolds, typename Then, typename Else>
using If = std::conditional_t<kHolds, Then, Else>;
// The integer type that moves n bytes at once.
template <int n>
using Word =
    If<n == 16, uint4,
       If<n == 8, uint2, If<n == 4, unsigned int, If<n == 2, unsigned short, unsigned char>>>>;

// @load_words deps: Word
// What stands at p, word by word: nvcc takes copies of a struct apart, and delays their loads
// (cumsum of 64 rows of 2^22 floats: 0.85 ms so, 0.56 by words; H200, CUDA 13.0, 2026-11-26).
template <typename P, typename Load>
OPWELD_FN P load_words(const P* p, Load load) {
    using Each = Word<alignof(P)>;
    P found;
#pragma unroll
    for (int i = 0; i < int(sizeof(P) / sizeof(Each)); ++i) {
        const Each word = load(reinterpret_cast<const Each*>(p) + i);
        memcpy(reinterpret_cast<char*>(&found) + i * sizeof(Each), &word, sizeof(Each));
    }
    return found;
}

// @store_words deps: Word
// Writes to p, in words for the same reason.
template <typename P, typename Store>
OPWELD_FN void store_words(P* p, const P& values, Store store) {
    using Each = Word<alignof(P)>;
#pragma unroll
    for (int i = 0; i < int(sizeof(P) / sizeof(Each)); ++i) {
        Each word;
        memcpy(&word, reinterpret_cast<const char*>(&values) + i * sizeof(Each), sizeof(Each));
        store(reinterpret_cast<Each*>(p) + i, word);
    }
}

// @Vector deps:
// kLanes neighbouring values; kLanes is a power of two.
template <typename T, int kLanes>
struct alignas(sizeof(T) * kLanes < 16 ? sizeof(T) * kLanes : 16) Vector {
    static_assert(kLanes > 0 && (kLanes & (kLanes - 1)) == 0, "kLanes must be a power of two");
    T lane[kLanes];
};

// @is_aligned deps: Vector
// p may be read as vectors of kLanes values
template <int kLanes, typename T>
static inline bool is_aligned(const T* p) {
    return reinterpret_cast<uintptr_t>(p) % alignof(Vector<T, kLanes>) == 0;
}

// @load_vector deps: Vector, load_words
// the kLanes values from p on
template <int kLanes, typename T>
OPWELD_FN Vector<T, kLanes> load_vector(const T* p) {
    return load_words(reinterpret_cast<const Vector<T, kLanes>*>(p),
                      [](const auto* word) { return *word; });
}

// @load_vector_streaming deps: Vector, load_words
// the kLanes values from p on, which are not needed again
template <int kLanes, typename T>
OPWELD_FN Vector<T, kLanes> load_vector_streaming(const T* p) {
    return load_words(reinterpret_cast<const Vector<T, kLanes>*>(p),
                      [](const auto* word) { return __ldcs(word); });
}

// @store_vector deps: Vector, store_words
// writes the values from p on
template <int kLanes, typename T>
OPWELD_FN void store_vector(T* p, const Vector<T, kLanes>& values) {
    store_words(reinterpret_cast<Vector<T, kLanes>*>(p), values,
                [](auto* at, auto word) { *at = word; });
}

// @store_vector_streaming deps: Vector, store_words
// writes the values from p on; they are not needed again soon
template <int kLanes, typename T>
OPWELD_FN void store_vector_streaming(T* p, const Vector<T, kLanes>& values) {
    store_words(reinterpret_cast<Vector<T, kLanes>*>(p), values,
                [](auto* at, auto word) { __stcs(at, word); });
}

}  // namespace op
