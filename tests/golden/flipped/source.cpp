// k1_sub: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 9] -> result f32[s0, 9]

OPWELD_FN float k1_sub_element(float x_1, float x_2) {
  // model.py:11 return x - x.flip((0, 1))
  const float sub_1 = x_1 - x_2;
  return sub_1;
}

extern "C" void k1_sub_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float x_1 = x[i];
    const float x_2 = x[-i + s0 * 9 - 1];
    const float value0 = k1_sub_element(x_1, x_2);
    result[i] = value0;
  }
}

extern "C" void k1_sub_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 9;
    const int64_t first = at % 9;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 9 ? stop : 9;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float x_2 = x[-i0 * x_stride0 - i1 * x_stride1 + s0 * x_stride0 - x_stride0
          + x_stride1 * 8];
      const float value0 = k1_sub_element(x_1, x_2);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
