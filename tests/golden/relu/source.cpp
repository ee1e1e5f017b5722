// k1_relu: one operation, one read and one write of memory.
// x f32[s0, 393216] -> result f32[s0, 393216]

OPWELD_FN float k1_relu_element(float x_1) {
  // relu.py:11 return torch.relu(x)
  const float relu_1 = op::relu(x_1);
  return relu_1;
}

extern "C" void k1_relu_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float x_1 = x[i];
    const float value0 = k1_relu_element(x_1);
    result[i] = value0;
  }
}

extern "C" void k1_relu_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 393216;
    const int64_t first = at % 393216;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 393216 ? stop : 393216;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float value0 = k1_relu_element(x_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
