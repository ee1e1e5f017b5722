// k1_clamp_min_clamp_max_tanh: 6 operations over one iteration space, one result: intermediates
//   stay in registers.
// linear f32[s0, 8192] -> result f32[s0, 8192]

OPWELD_FN float k1_clamp_min_clamp_max_tanh_element(float linear_1) {
  // linear_swish.py:16 y = y * torch.sigmoid(y)
  const float sigmoid_1 = op::sigmoid(linear_1);
  const float mul_1 = linear_1 * sigmoid_1;
  // linear_swish.py:17 y = y / 2.0
  const float mul_2 = mul_1 * 0.5f;
  // linear_swish.py:18 y = torch.clamp(y, min=-1.0, max=1.0)
  const float clamp_min_1 = op::clamp_min(mul_2, -1.0f);
  const float clamp_max_1 = op::clamp_max(clamp_min_1, 1.0f);
  // linear_swish.py:19 y = torch.tanh(y)
  const float tanh_1 = op::tanh(clamp_max_1);
  return tanh_1;
}

extern "C" void k1_clamp_min_clamp_max_tanh_contiguous(
    const void* linear_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float linear_1 = linear[i];
    const float value0 = k1_clamp_min_clamp_max_tanh_element(linear_1);
    result[i] = value0;
  }
}

extern "C" void k1_clamp_min_clamp_max_tanh_strided(
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
      const float value0 = k1_clamp_min_clamp_max_tanh_element(linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
