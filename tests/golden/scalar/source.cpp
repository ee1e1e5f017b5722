// k1_exp: one operation, one read and one write of memory.
// x f32[] -> result f32[]

OPWELD_FN float k1_exp_element(float x_1) {
  // model.py:11 return x.exp()
  const float exp_1 = op::exp(x_1);
  return exp_1;
}

extern "C" void k1_exp_contiguous(
    const void* x_data, void* result_data, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float x_1 = x[0];
    const float value0 = k1_exp_element(x_1);
    result[0] = value0;
  }
}

extern "C" void k1_exp_strided(const void* x_data, void* result_data, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i0 = begin; i0 < end; ++i0) {
    const float x_1 = x[0];
    const float value0 = k1_exp_element(x_1);
    result[0] = value0;
  }
}
