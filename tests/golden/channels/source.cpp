// k1_mul: one operation, one read and one write of memory.
// x f32[s0, 16, 8, 8], scale f32[1, 16, 1, 1] -> result f32[s0, 16, 8, 8]

OPWELD_FN float k1_mul_element(float x_1, float scale_1) {
  // model.py:11 return x * self.scale
  const float mul_1 = x_1 * scale_1;
  return mul_1;
}

extern "C" void k1_mul_contiguous(
    const void* x_data, const void* scale_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ scale = static_cast<const float*>(scale_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 64;
    const int64_t i1 = outer % 16;
    const int64_t i0 = outer / 16;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float x_1 = x[i0 * 1024 + i1 * 64 + i2];
      const float scale_1 = scale[i1];
      const float value0 = k1_mul_element(x_1, scale_1);
      result[i0 * 1024 + i1 * 64 + i2] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_mul_strided(
    const void* x_data, const void* scale_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t x_stride3, int64_t scale_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t result_stride3,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ scale = static_cast<const float*>(scale_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 8;
    const int64_t i2 = outer % 8;
    const int64_t above_i2 = outer / 8;
    const int64_t i1 = above_i2 % 16;
    const int64_t i0 = above_i2 / 16;
    const int64_t first = at % 8;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 8 ? stop : 8;
#pragma omp simd
    for (int64_t i3 = first; i3 < last; ++i3) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1 + i2 * x_stride2 + i3 * x_stride3];
      const float scale_1 = scale[i1 * scale_stride1];
      const float value0 = k1_mul_element(x_1, scale_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + i3 * result_stride3] = value0;
    }
    at += last - first;
  }
}
