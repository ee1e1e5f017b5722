// k1_sub: one operation, one read and one write of memory.
// x f32[s0, 37], row_1 f32[37] -> result f32[s0, 37]

OPWELD_FN float k1_sub_element(float x_1, float row_1_1) {
  // model.py:11 return x - row
  const float sub_1 = x_1 - row_1_1;
  return sub_1;
}

extern "C" void k1_sub_contiguous(
    const void* x_data, const void* row_1_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ row_1 = static_cast<const float*>(row_1_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 37;
    const int64_t first = at % 37;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 37 ? stop : 37;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * 37 + i1];
      const float row_1_1 = row_1[i1];
      const float value0 = k1_sub_element(x_1, row_1_1);
      result[i0 * 37 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_sub_strided(
    const void* x_data, const void* row_1_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t row_1_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ row_1 = static_cast<const float*>(row_1_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 37;
    const int64_t first = at % 37;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 37 ? stop : 37;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float row_1_1 = row_1[i1 * row_1_stride0];
      const float value0 = k1_sub_element(x_1, row_1_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
