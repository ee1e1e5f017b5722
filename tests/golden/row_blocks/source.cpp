// k1_relu_add_gt: 3 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// linear f32[s0, 2048], residual f32[s0, 2048] -> result0 f32[s0, 2048], result1 bool[s0, 2048]

OPWELD_FN void k1_relu_add_gt_element(
    float linear_1, float residual_1, float& result0, bool& result1) {
  // model.py:12 return F.relu(y) + residual, y > 0
  const float relu_1 = op::relu(linear_1);
  const float add_1 = relu_1 + residual_1;
  const bool gt_1 = linear_1 > 0.0f;
  result0 = add_1;
  result1 = gt_1;
}

extern "C" void k1_relu_add_gt_contiguous(
    const void* linear_data, const void* residual_data, void* result0_data, void* result1_data,
    int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ residual = static_cast<const float*>(residual_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  uint8_t* __restrict__ result1 = static_cast<uint8_t*>(result1_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float linear_1 = linear[i];
    const float residual_1 = residual[i];
    float value0;
    bool value1;
    k1_relu_add_gt_element(linear_1, residual_1, value0, value1);
    result0[i] = value0;
    result1[i] = value1;
  }
}

extern "C" void k1_relu_add_gt_strided(
    const void* linear_data, const void* residual_data, void* result0_data, void* result1_data,
    int64_t s0, int64_t linear_stride0, int64_t linear_stride1, int64_t residual_stride0,
    int64_t residual_stride1, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t begin, int64_t end) {
  const float* __restrict__ linear = static_cast<const float*>(linear_data);
  const float* __restrict__ residual = static_cast<const float*>(residual_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  uint8_t* __restrict__ result1 = static_cast<uint8_t*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 2048;
    const int64_t first = at % 2048;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 2048 ? stop : 2048;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const float residual_1 = residual[i0 * residual_stride0 + i1 * residual_stride1];
      float value0;
      bool value1;
      k1_relu_add_gt_element(linear_1, residual_1, value0, value1);
      result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
      result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
    }
    at += last - first;
  }
}
