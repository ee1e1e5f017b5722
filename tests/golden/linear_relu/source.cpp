// k1_add_relu: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// linear f32[s0, 8192], shift f32[8192] -> result f32[s0, 8192]

OPWELD_FN float k1_add_relu_element(float linear_1, float shift_1) {
  // linear_relu.py:16 return torch.relu(self.project(x) + self.shift)
  const float add_1 = linear_1 + shift_1;
  const float relu_1 = op::relu(add_1);
  return relu_1;
}

extern "C" void k1_add_relu_contiguous(
    const void* linear_data, const void* shift_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ shift = static_cast<const float*>(shift_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 8192;
    const int64_t first = at % 8192;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8192 ? stop : 8192;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * 8192 + i1];
      const float shift_1 = shift[i1];
      const float value0 = k1_add_relu_element(linear_1, shift_1);
      result[i0 * 8192 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_add_relu_strided(
    const void* linear_data, const void* shift_data, void* result_data, int64_t s0,
    int64_t linear_stride0, int64_t linear_stride1, int64_t shift_stride0, int64_t result_stride0,
    int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ shift = static_cast<const float*>(shift_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 8192;
    const int64_t first = at % 8192;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8192 ? stop : 8192;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float shift_1 = shift[i1 * shift_stride0];
      const float value0 = k1_add_relu_element(linear_1, shift_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
