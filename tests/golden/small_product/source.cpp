// k1_gelu: one operation, one read and one write of memory.
// linear f32[s0, 64] -> result f32[s0, 64]

OPWELD_FN float k1_gelu_element(float linear_1) {
  // model.py:11 return F.gelu(self.fc(x))
  const float gelu_1 = op::gelu(linear_1);
  return gelu_1;
}

extern "C" void k1_gelu_contiguous(
    const void* linear_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float linear_1 = linear[i];
    const float value0 = k1_gelu_element(linear_1);
    result[i] = value0;
  }
}

extern "C" void k1_gelu_strided(
    const void* linear_data, void* result_data, int64_t s0, int64_t linear_stride0,
    int64_t linear_stride1, int64_t result_stride0, int64_t result_stride1, int64_t begin,
    int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float value0 = k1_gelu_element(linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
