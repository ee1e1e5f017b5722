// glibc's vector functions (libmvec) for loops that g++ vectorises: with these prototypes a call in
// an `omp simd` loop becomes a call of the vector form, which <math.h> alone allows under
// -ffast-math only. The flags are CPP_FLAGS of __init__.py and -lmvec; without -fno-tree-pre g++ 12
// turns chains of conditionals into forms that it cannot vectorise, without -fno-thread-jumps it
// doubles the comparisons of a clamp, and integers wrap only with -fwrapv. Elsewhere the source is
// right, and scalar.

// @mvec deps:
#include <math.h>
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define OPWELD_VECTOR_FORM(name)                                               \
    __attribute__((simd("notinbranch"), const)) float name##f(float) noexcept; \
    __attribute__((simd("notinbranch"), const)) double name(double) noexcept;
#define OPWELD_VECTOR_FORM_OF_TWO(name)                                               \
    __attribute__((simd("notinbranch"), const)) float name##f(float, float) noexcept; \
    __attribute__((simd("notinbranch"), const)) double name(double, double) noexcept;
extern "C" {
OPWELD_VECTOR_FORM(exp)
OPWELD_VECTOR_FORM(log)
OPWELD_VECTOR_FORM(sin)
OPWELD_VECTOR_FORM(cos)
OPWELD_VECTOR_FORM_OF_TWO(pow)
#if __GLIBC_PREREQ(2, 35)
OPWELD_VECTOR_FORM(exp2)
OPWELD_VECTOR_FORM(expm1)
OPWELD_VECTOR_FORM(log2)
OPWELD_VECTOR_FORM(log10)
OPWELD_VECTOR_FORM(log1p)
OPWELD_VECTOR_FORM(tan)
OPWELD_VECTOR_FORM(asin)
OPWELD_VECTOR_FORM(acos)
OPWELD_VECTOR_FORM(atan)
OPWELD_VECTOR_FORM(sinh)
OPWELD_VECTOR_FORM(cosh)
OPWELD_VECTOR_FORM(tanh)
OPWELD_VECTOR_FORM(asinh)
OPWELD_VECTOR_FORM(acosh)
OPWELD_VECTOR_FORM(atanh)
OPWELD_VECTOR_FORM(erf)
OPWELD_VECTOR_FORM(erfc)
OPWELD_VECTOR_FORM_OF_TWO(atan2)
OPWELD_VECTOR_FORM_OF_TWO(hypot)
#endif
}
#undef OPWELD_VECTOR_FORM
#undef OPWELD_VECTOR_FORM_OF_TWO
#endif
