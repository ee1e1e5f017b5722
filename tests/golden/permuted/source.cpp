// k1_exp_add: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 48], y f32[48, s0] -> result f32[48, s0]

OPWELD_FN float k1_exp_add_element(float x_1, float y_1) {
  // model.py:11 return x.exp().permute(1, 0) + y
  const float exp_1 = op::exp(x_1);
  const float add_1 = exp_1 + y_1;
  return add_1;
}

extern "C" void k1_exp_add_contiguous(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / s0;
    const int64_t first = at % s0;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < s0 ? stop : s0;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 + i1 * 48];
      const float y_1 = y[i0 * s0 + i1];
      const float value0 = k1_exp_add_element(x_1, y_1);
      result[i0 * s0 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_exp_add_strided(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t result_stride0,
    int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / s0;
    const int64_t first = at % s0;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < s0 ? stop : s0;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride1 + i1 * x_stride0];
      const float y_1 = y[i0 * y_stride0 + i1 * y_stride1];
      const float value0 = k1_exp_add_element(x_1, y_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
