// k1_mul_add: 2 operations over one iteration space, one result: intermediates stay in registers.
// matmul f32[s0, 8, 511, 511], mask f32[511, 511] -> result f32[s0, 8, 511, 511]

OPWELD_FN float k1_mul_add_element(float matmul_1, float mask_1) {
  // model.py:12 return scores * 0.125 + mask
  const float mul_1 = matmul_1 * 0.125f;
  const float add_1 = mul_1 + mask_1;
  return add_1;
}

extern "C" void k1_mul_add_contiguous(
    const void* matmul_data, const void* mask_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 261121;
    const int64_t first = at % 261121;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 261121 ? stop : 261121;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float matmul_1 = matmul[i0 * 261121 + i1];
      const float mask_1 = mask[i1];
      const float value0 = k1_mul_add_element(matmul_1, mask_1);
      result[i0 * 261121 + i1] = value0;
    }
    at += last - first;
  }
}

extern "C" void k1_mul_add_strided(
    const void* matmul_data, const void* mask_data, void* result_data, int64_t s0,
    int64_t matmul_stride0, int64_t matmul_stride1, int64_t matmul_stride2, int64_t matmul_stride3,
    int64_t mask_stride0, int64_t mask_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t result_stride2, int64_t result_stride3, int64_t begin, int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 511;
    const int64_t i2 = outer % 511;
    const int64_t above_i2 = outer / 511;
    const int64_t i1 = above_i2 % 8;
    const int64_t i0 = above_i2 / 8;
    const int64_t first = at % 511;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 511 ? stop : 511;
#pragma omp simd
    for (int64_t i3 = first; i3 < last; ++i3) {
      const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1 + i2 * matmul_stride2
          + i3 * matmul_stride3];
      const float mask_1 = mask[i2 * mask_stride0 + i3 * mask_stride1];
      const float value0 = k1_mul_add_element(matmul_1, mask_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + i3 * result_stride3] = value0;
    }
    at += last - first;
  }
}
