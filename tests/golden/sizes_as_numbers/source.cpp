#include <math.h>
#include <stdint.h>
#define OPWELD_FN static inline

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

// k1_cast_mul_div: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 10] -> result f32[s0, 10]

OPWELD_FN float k1_cast_mul_div_element(float x_1, int64_t index_1, int64_t index_2) {
  // model.py:12 return x * position / x.shape[0]
  const float cast_1 = static_cast<float>(index_1);
  const float mul_1 = x_1 * cast_1;
  const float cast_2 = static_cast<float>(index_2);
  const float div_1 = mul_1 / cast_2;
  return div_1;
}

extern "C" void k1_cast_mul_div_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 10;
    const int64_t first = at % 10;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 10 ? stop : 10;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * 10 + i1];
      const int64_t index_1 = i1 * 2 + 3;
      const int64_t index_2 = s0;
      const float value0 = k1_cast_mul_div_element(x_1, index_1, index_2);
      result[i0 * 10 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_cast_mul_div_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 10;
    const int64_t first = at % 10;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 10 ? stop : 10;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const int64_t index_1 = i1 * 2 + 3;
      const int64_t index_2 = s0;
      const float value0 = k1_cast_mul_div_element(x_1, index_1, index_2);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
