// k1_exp: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 6, 16] -> result f32[s0, 6, 16]

OPWELD_FN float k1_exp_element(float x_1) {
  // model.py:11 return x.flip(1).exp()
  const float exp_1 = op::exp(x_1);
  return exp_1;
}

extern "C" void k1_exp_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 16;
    const int64_t i1 = outer % 6;
    const int64_t i0 = outer / 6;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float x_1 = x[i0 * 96 - i1 * 16 + i2 + 80];
      const float value0 = k1_exp_element(x_1);
      result[i0 * 96 + i1 * 16 + i2] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_exp_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 16;
    const int64_t i1 = outer % 6;
    const int64_t i0 = outer / 6;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float x_1 = x[i0 * x_stride0 - i1 * x_stride1 + i2 * x_stride2 + x_stride1 * 5];
      const float value0 = k1_exp_element(x_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
    }
    at += last - first;
  }
}
