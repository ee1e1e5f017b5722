// k1_sigmoid_mul_add: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// linear f32[s0, 8192] -> result f32[s0, 8192]

OPWELD_FN float k1_sigmoid_mul_add_element(float linear_1) {
  // linear_sigmoid.py:18 gate = torch.sigmoid(y) * self.scale
  const float sigmoid_1 = op::sigmoid(linear_1);
  const float mul_1 = sigmoid_1 * 2.0f;
  // linear_sigmoid.py:19 return gate + y
  const float add_1 = mul_1 + linear_1;
  return add_1;
}

extern "C" void k1_sigmoid_mul_add_contiguous(
    const void* linear_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float linear_1 = linear[i];
    const float value0 = k1_sigmoid_mul_add_element(linear_1);
    result[i] = value0;
  }
}

extern "C" void k1_sigmoid_mul_add_strided(
    const void* linear_data, void* result_data, int64_t s0, int64_t linear_stride0,
    int64_t linear_stride1, int64_t result_stride0, int64_t result_stride1, int64_t begin,
    int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 8192;
    const int64_t first = at % 8192;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8192 ? stop : 8192;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float value0 = k1_sigmoid_mul_add_element(linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
