// k1_cos: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 4, 5] -> result f32[s0, 7, 8]

OPWELD_FN float k1_cos_element(bool inside_1, float x_1) {
  // model.py:11 return F.pad(x, (2, 1, 1, 2)).cos()
  const float where_1 = inside_1 ? x_1 : 0.0f;
  const float cos_1 = op::cos(where_1);
  return cos_1;
}

extern "C" void k1_cos_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  // Rows of 8 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 56;
    const uint32_t first = at % 56;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i0 = row + k / 56u;
      const int64_t i1 = k / 8u % 7u;
      const int64_t i2 = k % 8u;
      const bool inside_1 = (i1 >= 1) & (i1 < 5) & (i2 >= 2) & (i2 < 7);
      const float x_1 = inside_1 ? x[i0 * 20 + i1 * 5 + i2 - 7] : 0.0f;
      const float value0 = k1_cos_element(inside_1, x_1);
      result[place] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_cos_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 8;
    const int64_t i1 = outer % 7;
    const int64_t i0 = outer / 7;
    const int64_t first = at % 8;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8 ? stop : 8;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const bool inside_1 = (i1 >= 1) & (i1 < 5) & (i2 >= 2) & (i2 < 7);
      const float x_1 = inside_1
          ? x[i0 * x_stride0 + i1 * x_stride1 + i2 * x_stride2 - x_stride1 - x_stride2 * 2] : 0.0f;
      const float value0 = k1_cos_element(inside_1, x_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
    }
    at += last - first;
  }
}
