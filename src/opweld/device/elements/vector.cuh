// Packets of neighbouring values, moved by one access of up to 16 bytes. A pointer must be aligned
// to alignof(Vector<T, kLanes>); wider vectors are moved as several 16-byte packets.

namespace op {

// @Packet deps:
// The integer type that moves kBytes at once.
template <int kBytes>
struct Packet;
template <>
struct Packet<1> {
    using type = unsigned char;
};
template <>
struct Packet<2> {
    using type = unsigned short;
};
template <>
struct Packet<4> {
    using type = unsigned int;
};
template <>
struct Packet<8> {
    using type = uint2;
};
template <>
struct Packet<16> {
    using type = uint4;
};

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

// @load_vector deps: Vector
// the kLanes values from p on
template <int kLanes, typename T>
OPWELD_FN Vector<T, kLanes> load_vector(const T* p) {
    return *reinterpret_cast<const Vector<T, kLanes>*>(p);
}

// @load_vector_streaming deps: Packet, Vector
// the kLanes values from p on, which are not needed again
template <int kLanes, typename T>
OPWELD_FN Vector<T, kLanes> load_vector_streaming(const T* p) {
    using Values = Vector<T, kLanes>;
    using Word = typename Packet<alignof(Values)>::type;
    Values values;
#pragma unroll
    for (int i = 0; i < int(sizeof(Values) / sizeof(Word)); ++i) {
        Word word = __ldcs(reinterpret_cast<const Word*>(p) + i);
        memcpy(reinterpret_cast<char*>(&values) + i * sizeof(Word), &word, sizeof(Word));
    }
    return values;
}

// @store_vector deps: Vector
// writes the values from p on
template <int kLanes, typename T>
OPWELD_FN void store_vector(T* p, const Vector<T, kLanes>& values) {
    *reinterpret_cast<Vector<T, kLanes>*>(p) = values;
}

// @store_vector_streaming deps: Packet, Vector
// writes the values from p on; they are not needed again soon
template <int kLanes, typename T>
OPWELD_FN void store_vector_streaming(T* p, const Vector<T, kLanes>& values) {
    using Values = Vector<T, kLanes>;
    using Word = typename Packet<alignof(Values)>::type;
#pragma unroll
    for (int i = 0; i < int(sizeof(Values) / sizeof(Word)); ++i) {
        Word word;
        memcpy(&word, reinterpret_cast<const char*>(&values) + i * sizeof(Word), sizeof(Word));
        __stcs(reinterpret_cast<Word*>(p) + i, word);
    }
}

}  // namespace op
