// k1_mul_add_tanh: 9 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 8192] -> result f32[s0, 8192]

OPWELD_FN float k1_mul_add_tanh_element(float x_1) {
  // gelu.py:14 return 0.5 * x * (1.0 + torch.tanh(inner))
  const float mul_1 = x_1 * 0.5f;
  // gelu.py:13 inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
  const float mul_2 = x_1 * x_1;
  const float mul_3 = mul_2 * x_1;
  const float mul_4 = mul_3 * 0.044715f;
  const float add_1 = x_1 + mul_4;
  const float mul_5 = add_1 * 0.7978846f;
  // gelu.py:14 return 0.5 * x * (1.0 + torch.tanh(inner))
  const float tanh_1 = op::tanh(mul_5);
  const float add_2 = tanh_1 + 1.0f;
  const float mul_6 = mul_1 * add_2;
  return mul_6;
}

extern "C" void k1_mul_add_tanh_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float x_1 = x[i];
    const float value0 = k1_mul_add_tanh_element(x_1);
    result[i] = value0;
  }
}

extern "C" void k1_mul_add_tanh_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 8192;
    const int64_t first = at % 8192;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8192 ? stop : 8192;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float value0 = k1_mul_add_tanh_element(x_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
