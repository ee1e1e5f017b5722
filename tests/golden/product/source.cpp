// k1_relu_mul_add: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// linear f32[s0, 1024], gain f32[s0, 1], x f32[s0, 1024] -> result f32[s0, 1024]

OPWELD_FN float k1_relu_mul_add_element(float linear_1, float gain_1, float x_1) {
  // model.py:12 return torch.relu(y) * gain + x, y
  const float relu_1 = op::relu(linear_1);
  const float mul_1 = relu_1 * gain_1;
  const float add_1 = mul_1 + x_1;
  return add_1;
}

extern "C" void k1_relu_mul_add_contiguous(
    const void* linear_data, const void* gain_data, const void* x_data, void* result_data,
    int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ gain = static_cast<const float*>(gain_data);
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 1024;
    const int64_t first = at % 1024;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 1024 ? stop : 1024;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * 1024 + i1];
      const float gain_1 = gain[i0];
      const float x_1 = x[i0 * 1024 + i1];
      const float value0 = k1_relu_mul_add_element(linear_1, gain_1, x_1);
      result[i0 * 1024 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_relu_mul_add_strided(
    const void* linear_data, const void* gain_data, const void* x_data, void* result_data,
    int64_t s0, int64_t linear_stride0, int64_t linear_stride1, int64_t gain_stride0,
    int64_t x_stride0, int64_t x_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ gain = static_cast<const float*>(gain_data);
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 1024;
    const int64_t first = at % 1024;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 1024 ? stop : 1024;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float gain_1 = gain[gain_stride0 * i0];
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float value0 = k1_relu_mul_add_element(linear_1, gain_1, x_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
