// k1_exp: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 64], index i64[s0, 32] -> result f32[s0, 32]

OPWELD_FN float k1_exp_element(float x_1) {
  // model.py:11 return x.gather(1, index).exp()
  const float exp_1 = op::exp(x_1);
  return exp_1;
}

extern "C" bool k1_exp_contiguous(
    const void* x_data, const void* index_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const int64_t* __restrict__ index = static_cast<const int64_t*>(index_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  int64_t outside = 0;
  // Rows of 32 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 32;
    const uint32_t first = at % 32;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i0 = row + k / 32u;
      const int64_t index_1 = index[place];
      const int64_t place_1 = op::place_of(index_1, 64, outside);
      const float x_1 = x[i0 * 64 + place_1];
      const float value0 = k1_exp_element(x_1);
      result[place] = value0;
    }
    at += last - first;
  }
  return outside == 0;
}

extern "C" bool k1_exp_strided(
    const void* x_data, const void* index_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t index_stride0, int64_t index_stride1, int64_t result_stride0,
    int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const int64_t* __restrict__ index = static_cast<const int64_t*>(index_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  int64_t outside = 0;
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 32;
    const int64_t first = at % 32;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 32 ? stop : 32;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const int64_t index_1 = index[i0 * index_stride0 + i1 * index_stride1];
      const int64_t place_1 = op::place_of(index_1, 64, outside);
      const float x_1 = x[i0 * x_stride0 + place_1 * x_stride1];
      const float value0 = k1_exp_element(x_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
  return outside == 0;
}
