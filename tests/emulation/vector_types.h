// CUDA's built-in vector types, with their alignments.
#pragma once

#define OPWELD_VECTOR_TYPES(name, T, align1, align2, align4)           \
    struct alignas(align1) name##1 { T x; };                           \
    struct alignas(align2) name##2 { T x, y; };                        \
    struct name##3 { T x, y, z; };                                     \
    struct alignas(align4) name##4 { T x, y, z, w; };                  \
    inline name##1 make_##name##1(T x) { return {x}; }                 \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
    inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

OPWELD_VECTOR_TYPES(char, signed char, 1, 2, 4)
OPWELD_VECTOR_TYPES(uchar, unsigned char, 1, 2, 4)
OPWELD_VECTOR_TYPES(short, short, 2, 4, 8)
OPWELD_VECTOR_TYPES(ushort, unsigned short, 2, 4, 8)
OPWELD_VECTOR_TYPES(int, int, 4, 8, 16)
OPWELD_VECTOR_TYPES(uint, unsigned int, 4, 8, 16)
OPWELD_VECTOR_TYPES(long, long, 8, 16, 16)
OPWELD_VECTOR_TYPES(ulong, unsigned long, 8, 16, 16)
OPWELD_VECTOR_TYPES(longlong, long long, 8, 16, 16)
OPWELD_VECTOR_TYPES(ulonglong, unsigned long long, 8, 16, 16)
OPWELD_VECTOR_TYPES(float, float, 4, 8, 16)
OPWELD_VECTOR_TYPES(double, double, 8, 16, 16)
#undef OPWELD_VECTOR_TYPES

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1)
        : x(x_), y(y_), z(z_) {}
};
