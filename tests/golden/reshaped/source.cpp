// k1_tanh_mul: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 6, 8], y f32[s0, 4, 12] -> result f32[s0, 4, 12]

OPWELD_FN float k1_tanh_mul_element(float x_1, float y_1) {
  // model.py:11 return torch.tanh(x).reshape(-1, 12, 4).permute(0, 2, 1) * y
  const float tanh_1 = op::tanh(x_1);
  const float mul_1 = tanh_1 * y_1;
  return mul_1;
}

extern "C" void k1_tanh_mul_contiguous(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  // Rows of 12 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 48;
    const uint32_t first = at % 48;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i0 = row + k / 48u;
      const int64_t i1 = k / 12u % 4u;
      const int64_t i2 = k % 12u;
      const float x_1 = x[((i1 + i2 * 4) % 8) + ((i1 + i2 * 4) / 8) * 8 + i0 * 48];
      const float y_1 = y[place];
      const float value0 = k1_tanh_mul_element(x_1, y_1);
      result[place] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_tanh_mul_strided(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t y_stride0, int64_t y_stride1, int64_t y_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 12;
    const int64_t i1 = outer % 4;
    const int64_t i0 = outer / 4;
    const int64_t first = at % 12;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 12 ? stop : 12;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float x_1 = x[((i1 + i2 * 4) % 8) * x_stride2 + ((i1 + i2 * 4) / 8) * x_stride1
          + i0 * x_stride0];
      const float y_1 = y[i0 * y_stride0 + i1 * y_stride1 + i2 * y_stride2];
      const float value0 = k1_tanh_mul_element(x_1, y_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
    }
    at += last - first;
  }
}
