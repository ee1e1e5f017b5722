// k1_sigmoid_mul: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 32] -> result f32[s0, 16]

OPWELD_FN float k1_sigmoid_mul_element(float x_1, float x_2) {
  // model.py:12 return a * torch.sigmoid(b)
  const float sigmoid_1 = op::sigmoid(x_2);
  const float mul_1 = x_1 * sigmoid_1;
  return mul_1;
}

extern "C" void k1_sigmoid_mul_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 16;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * 32 + i1];
      const float x_2 = x[i0 * 32 + i1 + 16];
      const float value0 = k1_sigmoid_mul_element(x_1, x_2);
      result[i0 * 16 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_sigmoid_mul_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 16;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float x_2 = x[i0 * x_stride0 + i1 * x_stride1 + x_stride1 * 16];
      const float value0 = k1_sigmoid_mul_element(x_1, x_2);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
