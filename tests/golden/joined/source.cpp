// k1_exp_neg_relu: 4 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 5], y f32[s0, 3] -> result f32[s0, 13]

OPWELD_FN float k1_exp_neg_relu_element(
    bool inside_1, float x_1, bool inside_2, float y_1, float x_2) {
  // model.py:11 return torch.cat((x.exp(), y, -x), 1).relu()
  const float exp_1 = op::exp(x_1);
  const float neg_1 = -x_2;
  const float where_1 = inside_2 ? y_1 : neg_1;
  const float where_2 = inside_1 ? exp_1 : where_1;
  const float relu_1 = op::relu(where_2);
  return relu_1;
}

extern "C" void k1_exp_neg_relu_contiguous(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  // Rows of 13 elements are too short for vectors of their own.
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / 13;
    const uint32_t first = at % 13;
    const int64_t rest = end - at;
    const uint32_t last = first + (rest < 4096 ? rest : 4096);
#pragma omp simd
    for (uint32_t k = first; k < last; ++k) {
      const int64_t place = at - first + k;
      const int64_t i0 = row + k / 13u;
      const int64_t i1 = k % 13u;
      const bool inside_1 = (i1 < 5);
      const float x_1 = inside_1 ? x[i0 * 5 + i1] : 0.0f;
      const bool inside_2 = (i1 >= 5) & (i1 < 8);
      const float y_1 = inside_2 ? y[i0 * 3 + i1 - 5] : 0.0f;
      const bool inside_3 = (i1 >= 8);
      const float x_2 = inside_3 ? x[i0 * 5 + i1 - 8] : 0.0f;
      const float value0 = k1_exp_neg_relu_element(inside_1, x_1, inside_2, y_1, x_2);
      result[place] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_exp_neg_relu_strided(
    const void* x_data, const void* y_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t result_stride0,
    int64_t result_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ y = static_cast<const float*>(y_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 13;
    const int64_t first = at % 13;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 13 ? stop : 13;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const bool inside_1 = (i1 < 5);
      const float x_1 = inside_1 ? x[i0 * x_stride0 + i1 * x_stride1] : 0.0f;
      const bool inside_2 = (i1 >= 5) & (i1 < 8);
      const float y_1 = inside_2 ? y[i0 * y_stride0 + i1 * y_stride1 - y_stride1 * 5] : 0.0f;
      const bool inside_3 = (i1 >= 8);
      const float x_2 = inside_3 ? x[i0 * x_stride0 + i1 * x_stride1 - x_stride1 * 8] : 0.0f;
      const float value0 = k1_exp_neg_relu_element(inside_1, x_1, inside_2, y_1, x_2);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
