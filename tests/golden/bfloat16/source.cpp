// k1_add_silu_mul: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// x bf16[s0, 64], shift bf16[64] -> result bf16[s0, 64]

OPWELD_FN float k1_add_silu_mul_element(float x_1, float shift_1) {
  // model.py:11 return F.silu(x + shift) * 0.5
  const float add_1 = x_1 + shift_1;
  const float silu_1 = op::silu(add_1);
  const float mul_1 = silu_1 * 0.5f;
  return mul_1;
}

extern "C" void k1_add_silu_mul_contiguous(
    const void* x_data, const void* shift_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const op::bfloat16* __restrict__ shift = static_cast<const op::bfloat16*>(shift_data);
  op::bfloat16* __restrict__ result = static_cast<op::bfloat16*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * 64 + i1]);
      const float shift_1 = op::to_compute(shift[i1]);
      const float value0 = k1_add_silu_mul_element(x_1, shift_1);
      result[i0 * 64 + i1] = op::from_compute<op::bfloat16>(value0);
    }
    at += last - first;
  }
}

extern "C" void k1_add_silu_mul_strided(
    const void* x_data, const void* shift_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t shift_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  const op::bfloat16* __restrict__ shift = static_cast<const op::bfloat16*>(shift_data);
  op::bfloat16* __restrict__ result = static_cast<op::bfloat16*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
      const float shift_1 = op::to_compute(shift[i1 * shift_stride0]);
      const float value0 = k1_add_silu_mul_element(x_1, shift_1);
      result[i0 * result_stride0 + i1 * result_stride1] = op::from_compute<op::bfloat16>(value0);
    }
    at += last - first;
  }
}
