// k1_mul_exp: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 5, 3], column f32[s0, 5, 1] -> result f32[s0, 5, 3]

OPWELD_FN float k1_mul_exp_element(float x_1, float column_1) {
  // model.py:11 return torch.exp(x * column)
  const float mul_1 = x_1 * column_1;
  const float exp_1 = op::exp(mul_1);
  return exp_1;
}

extern "C" void k1_mul_exp_contiguous(
    const void* x_data, const void* column_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ column = static_cast<const float*>(column_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  // Rows of 3 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 3;
    const uint32_t first = at % 3;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i0 = row + k / 3u;
      const float x_1 = x[place];
      const float column_1 = column[i0];
      const float value0 = k1_mul_exp_element(x_1, column_1);
      result[place] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_mul_exp_strided(
    const void* x_data, const void* column_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t column_stride0, int64_t column_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ column = static_cast<const float*>(column_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 3;
    const int64_t i1 = outer % 5;
    const int64_t i0 = outer / 5;
    const int64_t first = at % 3;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 3 ? stop : 3;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1 + i2 * x_stride2];
      const float column_1 = column[column_stride0 * i0 + column_stride1 * i1];
      const float value0 = k1_mul_exp_element(x_1, column_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
    }
    at += last - first;
  }
}
