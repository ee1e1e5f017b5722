// k1_exp_where_logical_not: 5 operations over one iteration space, 3 results: intermediates stay
//   in registers.
// x f16[s0, 64], mask bool[s0, 64] -> result0 f32[s0, 64], result1 f16[s0, 64],
//   result2 bool[s0, 64]

OPWELD_FN void k1_exp_where_logical_not_element(
    bool mask_1, float x_1, float& result0, float& result1, bool& result2) {
  // model.py:11 y = torch.where(mask, x.float().exp(), -1.0)
  const float cast_1 = x_1;
  const float exp_1 = op::exp(cast_1);
  const float where_1 = mask_1 ? exp_1 : -1.0f;
  const bool logical_not_1 = !mask_1;
  result0 = where_1;
  result1 = where_1;
  result2 = logical_not_1;
}

extern "C" void k1_exp_where_logical_not_contiguous(
    const void* x_data, const void* mask_data, void* result0_data, void* result1_data,
    void* result2_data, int64_t s0, int64_t begin, int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  const uint8_t* __restrict__ mask = static_cast<const uint8_t*>(mask_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  op::half* __restrict__ result1 = static_cast<op::half*>(result1_data);
  uint8_t* __restrict__ result2 = static_cast<uint8_t*>(result2_data);
  for (int64_t block = begin; block < end; block += op::kBlock) {
    const int64_t rest = end - block;
    const int64_t count = rest < op::kBlock ? rest : op::kBlock;
    float x_1_block[op::kBlock];
    op::widen_block(x + block, count, x_1_block);
    float result1_block[op::kBlock];
#pragma omp simd
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t i = block + lane;
      const bool mask_1 = mask[i] != 0;
      const float x_1 = x_1_block[lane];
      float value0;
      float value1;
      bool value2;
      k1_exp_where_logical_not_element(mask_1, x_1, value0, value1, value2);
      result0[i] = value0;
      result1_block[lane] = value1;
      result2[i] = value2;
    }
    op::narrow_block(result1_block, count, result1 + block);
  }
}

extern "C" void k1_exp_where_logical_not_strided(
    const void* x_data, const void* mask_data, void* result0_data, void* result1_data,
    void* result2_data, int64_t s0, int64_t x_stride0, int64_t x_stride1, int64_t mask_stride0,
    int64_t mask_stride1, int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t result2_stride0, int64_t result2_stride1, int64_t begin,
    int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  const uint8_t* __restrict__ mask = static_cast<const uint8_t*>(mask_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  op::half* __restrict__ result1 = static_cast<op::half*>(result1_data);
  uint8_t* __restrict__ result2 = static_cast<uint8_t*>(result2_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const bool mask_1 = mask[i0 * mask_stride0 + i1 * mask_stride1] != 0;
      const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
      float value0;
      float value1;
      bool value2;
      k1_exp_where_logical_not_element(mask_1, x_1, value0, value1, value2);
      result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
      result1[i0 * result1_stride0 + i1 * result1_stride1] = op::from_compute<op::half>(value1);
      result2[i0 * result2_stride0 + i1 * result2_stride1] = value2;
    }
    at += last - first;
  }
}
