// What blocks of one launch tell each other while they run, in memory that begins as zeros.

namespace op {

// @AtOnce deps:
// 16 bytes by one access that all blocks see. The compiler neither leaves one out nor takes it out
// of a loop, as it did with __ldcv, nor makes two of it, as ptxas does of a vector of which it
// needs parts.
struct alignas(16) AtOnce {
    uint64_t low, high;

    OPWELD_FN AtOnce read(const void* p) {
        AtOnce all;
        asm volatile(
            "{\n"
            ".reg .b128 all;\n"
            "ld.relaxed.gpu.global.b128 all, [%2];\n"
            "mov.b128 {%0, %1}, all;\n"
            "}"
            : "=l"(all.low), "=l"(all.high)
            : "l"(p)
            : "memory");
        return all;
    }
    OPWELD_FN void write(void* p, AtOnce all) {
        asm volatile(
            "{\n"
            ".reg .b128 all;\n"
            "mov.b128 all, {%1, %2};\n"
            "st.relaxed.gpu.global.b128 [%0], all;\n"
            "}" ::"l"(p),
            "l"(all.low), "l"(all.high)
            : "memory");
    }
};

// @Told deps: AtOnce
// A value in words of 16 bytes, each written and read at once: 12 bytes of it, and that they are
// there.
template <typename Value>
struct Told {
    static constexpr int kEach = 3, kParts = int((sizeof(Value) + 3) / 4);
    static constexpr int kWords = (kParts + kEach - 1) / kEach;
    AtOnce words[kWords];

    OPWELD_FN void tell(Told* at, const Value& value) {
        unsigned parts[kWords * kEach] = {};
        memcpy(parts, &value, sizeof value);
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
            const unsigned* of_word = parts + word * kEach;
            AtOnce::write(at->words + word, {of_word[0] | uint64_t(of_word[1]) << 32,
                                             of_word[2] | uint64_t(1) << 32});
        }
    }

    // One look whether all of it is there, and what it is.
    OPWELD_FN bool look(const Told* at, Value& value) {
        unsigned parts[kWords * kEach];
        bool there = true;
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
            const AtOnce all = AtOnce::read(at->words + word);
            unsigned* const of_word = parts + word * kEach;
            of_word[0] = unsigned(all.low), of_word[1] = unsigned(all.low >> 32);
            of_word[2] = unsigned(all.high);
            there = there && all.high >> 32;
        }
        memcpy(&value, parts, sizeof value);
        return there;
    }
};

}  // namespace op
