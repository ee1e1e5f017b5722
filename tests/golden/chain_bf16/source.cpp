// k1_abs_neg_exp: 12 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// x bf16[s0, 16384], scale bf16[16384], shift bf16[s0, 1] -> result0 bf16[s0, 16384],
//   result1 bf16[s0, 16384]

OPWELD_FN void k1_abs_neg_exp_element(
    float x_1, float scale_1, float shift_1, float& result0, float& result1) {
  // chain_bf16.py:12 centred = x * scale + shift # 1, 2
  const float mul_1 = x_1 * scale_1;
  const float add_1 = mul_1 + shift_1;
  // chain_bf16.py:13 gate = torch.sigmoid(centred) # 3
  const float sigmoid_1 = op::sigmoid(add_1);
  // chain_bf16.py:14 swish = centred * gate # 4
  const float mul_2 = add_1 * sigmoid_1;
  // chain_bf16.py:15 bent = torch.where(swish > 0.0, swish, 0.1 * swish) # 5, 6, 7
  const bool gt_1 = mul_2 > 0.0f;
  const float mul_3 = mul_2 * 0.1f;
  const float where_1 = gt_1 ? mul_2 : mul_3;
  // chain_bf16.py:16 first = torch.tanh(bent) + x # 8, 9
  const float tanh_1 = op::tanh(where_1);
  const float add_2 = tanh_1 + x_1;
  // chain_bf16.py:17 second = torch.exp(-torch.abs(first)) # 10, 11, 12
  const float abs_1 = op::abs(add_2);
  const float neg_1 = -abs_1;
  const float exp_1 = op::exp_approx(neg_1);
  result0 = add_2;
  result1 = exp_1;
}

extern "C" void k1_abs_neg_exp_contiguous(
    const void* x_data, const void* scale_data, const void* shift_data, void* result0_data,
    void* result1_data, int64_t s0, int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const op::bfloat16* __restrict__ scale = static_cast<const op::bfloat16*>(scale_data);
  const op::bfloat16* __restrict__ shift = static_cast<const op::bfloat16*>(shift_data);
  op::bfloat16* __restrict__ result0 = static_cast<op::bfloat16*>(result0_data);
  op::bfloat16* __restrict__ result1 = static_cast<op::bfloat16*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 16384;
    const int64_t first = at % 16384;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16384 ? stop : 16384;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * 16384 + i1]);
      const float scale_1 = op::to_compute(scale[i1]);
      const float shift_1 = op::to_compute(shift[i0]);
      float value0;
      float value1;
      k1_abs_neg_exp_element(x_1, scale_1, shift_1, value0, value1);
      result0[i0 * 16384 + i1] = op::from_compute<op::bfloat16>(value0);
      result1[i0 * 16384 + i1] = op::from_compute<op::bfloat16>(value1);
    }
    at += last - first;
  }
}

extern "C" void k1_abs_neg_exp_strided(
    const void* x_data, const void* scale_data, const void* shift_data, void* result0_data,
    void* result1_data, int64_t s0, int64_t x_stride0, int64_t x_stride1, int64_t scale_stride0,
    int64_t shift_stride0, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const op::bfloat16* __restrict__ scale = static_cast<const op::bfloat16*>(scale_data);
  const op::bfloat16* __restrict__ shift = static_cast<const op::bfloat16*>(shift_data);
  op::bfloat16* __restrict__ result0 = static_cast<op::bfloat16*>(result0_data);
  op::bfloat16* __restrict__ result1 = static_cast<op::bfloat16*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 16384;
    const int64_t first = at % 16384;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16384 ? stop : 16384;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
      const float scale_1 = op::to_compute(scale[i1 * scale_stride0]);
      const float shift_1 = op::to_compute(shift[i0 * shift_stride0]);
      float value0;
      float value1;
      k1_abs_neg_exp_element(x_1, scale_1, shift_1, value0, value1);
      result0[i0 * result0_stride0 + i1 * result0_stride1] = op::from_compute<op::bfloat16>(value0);
      result1[i0 * result1_stride0 + i1 * result1_stride1] = op::from_compute<op::bfloat16>(value1);
    }
    at += last - first;
  }
}
