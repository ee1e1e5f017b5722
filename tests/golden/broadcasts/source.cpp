// k1_mul_sigmoid_gt: 5 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// x f32[s0, 24], norm_weight f32[24], column f32[s0, 1], factor f32[] -> result0 f32[s0, 24],
//   result1 bool[s0, 24]

OPWELD_FN void k1_mul_sigmoid_gt_element(
    float x_1, float norm_weight_1, float column_1, float factor_1, float& result0, bool& result1) {
  // model.py:11 y = (x + self.norm.weight) * column * self.factor
  const float add_1 = x_1 + norm_weight_1;
  const float mul_1 = add_1 * column_1;
  const float mul_2 = mul_1 * factor_1;
  // model.py:12 return torch.sigmoid(y), y > 0
  const float sigmoid_1 = op::sigmoid(mul_2);
  const bool gt_1 = mul_2 > 0.0f;
  result0 = sigmoid_1;
  result1 = gt_1;
}

extern "C" void k1_mul_sigmoid_gt_contiguous(
    const void* x_data, const void* norm_weight_data, const void* column_data,
    const void* factor_data, void* result0_data, void* result1_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ norm_weight = static_cast<const float*>(norm_weight_data);
  const float* __restrict__ column = static_cast<const float*>(column_data);
  const float* __restrict__ factor = static_cast<const float*>(factor_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  uint8_t* __restrict__ result1 = static_cast<uint8_t*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 24;
    const int64_t first = at % 24;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 24 ? stop : 24;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * 24 + i1];
      const float norm_weight_1 = norm_weight[i1];
      const float column_1 = column[i0];
      const float factor_1 = factor[0];
      float value0;
      bool value1;
      k1_mul_sigmoid_gt_element(x_1, norm_weight_1, column_1, factor_1, value0, value1);
      result0[i0 * 24 + i1] = value0;
      result1[i0 * 24 + i1] = value1;
    }
    at += last - first;
  }
}

extern "C" void k1_mul_sigmoid_gt_strided(
    const void* x_data, const void* norm_weight_data, const void* column_data,
    const void* factor_data, void* result0_data, void* result1_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t norm_weight_stride0, int64_t column_stride0, int64_t result0_stride0,
    int64_t result0_stride1, int64_t result1_stride0, int64_t result1_stride1, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ norm_weight = static_cast<const float*>(norm_weight_data);
  const float* __restrict__ column = static_cast<const float*>(column_data);
  const float* __restrict__ factor = static_cast<const float*>(factor_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  uint8_t* __restrict__ result1 = static_cast<uint8_t*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 24;
    const int64_t first = at % 24;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 24 ? stop : 24;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const float norm_weight_1 = norm_weight[i1 * norm_weight_stride0];
      const float column_1 = column[column_stride0 * i0];
      const float factor_1 = factor[0];
      float value0;
      bool value1;
      k1_mul_sigmoid_gt_element(x_1, norm_weight_1, column_1, factor_1, value0, value1);
      result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
      result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
    }
    at += last - first;
  }
}
