// k1_cast_mul_gelu: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// x bf16[s0, 1024], gain f32[1024] -> result f32[s0, 1024]

OPWELD_FN float k1_cast_mul_gelu_element(float x_1, float gain_1) {
  // model.py:11 h = F.gelu(x.float() * gain)
  const float cast_1 = x_1;
  const float mul_1 = cast_1 * gain_1;
  const float gelu_1 = op::gelu(mul_1);
  return gelu_1;
}

extern "C" void k1_cast_mul_gelu_contiguous(
    const void* x_data, const void* gain_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const float* __restrict__ gain = static_cast<const float*>(gain_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 1024;
    const int64_t first = at % 1024;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 1024 ? stop : 1024;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * 1024 + i1]);
      const float gain_1 = gain[i1];
      const float value0 = k1_cast_mul_gelu_element(x_1, gain_1);
      result[i0 * 1024 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_cast_mul_gelu_strided(
    const void* x_data, const void* gain_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t gain_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const float* __restrict__ gain = static_cast<const float*>(gain_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 1024;
    const int64_t first = at % 1024;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 1024 ? stop : 1024;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
      const float gain_1 = gain[gain_stride0 * i1];
      const float value0 = k1_cast_mul_gelu_element(x_1, gain_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}

// k2_relu: one operation, one read and one write of memory.
// linear f32[s0, 2048] -> result f32[s0, 2048]

OPWELD_FN float k2_relu_element(float linear_1) {
  // model.py:12 return torch.relu(self.fc(h))
  const float relu_1 = op::relu(linear_1);
  return relu_1;
}

extern "C" void k2_relu_contiguous(
    const void* linear_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float linear_1 = linear[i];
    const float value0 = k2_relu_element(linear_1);
    result[i] = value0;
  }
}

extern "C" void k2_relu_strided(
    const void* linear_data, void* result_data, int64_t s0, int64_t linear_stride0,
    int64_t linear_stride1, int64_t result_stride0, int64_t result_stride1, int64_t begin,
    int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 2048;
    const int64_t first = at % 2048;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 2048 ? stop : 2048;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float value0 = k2_relu_element(linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
