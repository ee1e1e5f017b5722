// k1_cast_mul_div: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 10] -> result f32[s0, 10]

OPWELD_FN float k1_cast_mul_div_element(float x_1, int64_t index_1, int64_t index_2) {
  // model.py:12 return x * position / x.shape[0]
  const float cast_1 = static_cast<float>(index_1);
  const float mul_1 = x_1 * cast_1;
  const float cast_2 = static_cast<float>(index_2);
  const float div_1 = mul_1 / cast_2;
  return div_1;
}

extern "C" void k1_cast_mul_div_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  // Rows of 10 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 10;
    const uint32_t first = at % 10;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i1 = k % 10u;
      const float x_1 = x[place];
      const int64_t index_1 = i1 * 2 + 3;
      const int64_t index_2 = s0;
      const float value0 = k1_cast_mul_div_element(x_1, index_1, index_2);
      result[place] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_cast_mul_div_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 10;
    const int64_t first = at % 10;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 10 ? stop : 10;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const int64_t index_1 = i1 * 2 + 3;
      const int64_t index_2 = s0;
      const float value0 = k1_cast_mul_div_element(x_1, index_1, index_2);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
