// k1_cummax_div_cummax_place: 5 operations on rows of 40 elements that are scanned in one pass.
// x f32[s0, 40], mask f32[40] -> result0 f32[s0, 40], result1 i64[s0, 40]

OPWELD_FN float k1_cummax_div_cummax_place_scanned(float x_1, float mask_1) {
  // model.py:11 kept = x * mask
  const float mul_1 = x_1 * mask_1;
  return mul_1;
}

OPWELD_FN void k1_cummax_div_cummax_place_after(
    float cumsum_1, float cummax_1, int64_t cummax_place_1, float& result0, int64_t& result1) {
  // model.py:13 return torch.cumsum(kept, dim=1) / largest, place
  const float div_1 = cumsum_1 / cummax_1;
  result0 = div_1;
  result1 = cummax_place_1;
}

extern "C" void k1_cummax_div_cummax_place_contiguous(
    const void* x_data, const void* mask_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  int64_t* __restrict__ result1 = static_cast<int64_t*>(result1_data);
  const int64_t from = 0, to = 40;
  float cumsum_1_scanned[op::kScanSpan];
  float cummax_place_1_scanned[op::kScanSpan];
  int64_t cummax_place_1_place[op::kScanSpan];
  for (int64_t i = begin; i < end; ++i) {
    double cumsum_1_carry = op::Sum::identity<double>();
    op::Placed<float, int64_t> cummax_place_1_carry = op::Cummax::nowhere<float>();
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r = span + k;
        const float x_1 = x[i * 40 + r];
        const float mask_1 = mask[r];
        const float value0 = k1_cummax_div_cummax_place_scanned(x_1, mask_1);
        cumsum_1_scanned[k] = value0;
        cummax_place_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
      op::scan_places<op::Cummax>(cummax_place_1_scanned, cummax_place_1_place, count, span,
          cummax_place_1_carry);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r = span + k;
        float value0;
        int64_t value1;
        k1_cummax_div_cummax_place_after(
            cumsum_1_scanned[k], cummax_place_1_scanned[k], cummax_place_1_place[k], value0,
            value1);
        result0[i * 40 + r] = value0;
        result1[i * 40 + r] = value1;
      }
    }
  }
}

extern "C" void k1_cummax_div_cummax_place_strided(
    const void* x_data, const void* mask_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t x_stride0, int64_t x_stride1, int64_t mask_stride0, int64_t result0_stride0,
    int64_t result0_stride1, int64_t result1_stride0, int64_t result1_stride1, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  int64_t* __restrict__ result1 = static_cast<int64_t*>(result1_data);
  const int64_t from = 0, to = 40;
  float cumsum_1_scanned[op::kScanSpan];
  float cummax_place_1_scanned[op::kScanSpan];
  int64_t cummax_place_1_place[op::kScanSpan];
  for (int64_t i0 = begin; i0 < end; ++i0) {
    double cumsum_1_carry = op::Sum::identity<double>();
    op::Placed<float, int64_t> cummax_place_1_carry = op::Cummax::nowhere<float>();
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r1 = span + k;
        const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
        const float mask_1 = mask[mask_stride0 * r1];
        const float value0 = k1_cummax_div_cummax_place_scanned(x_1, mask_1);
        cumsum_1_scanned[k] = value0;
        cummax_place_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
      op::scan_places<op::Cummax>(cummax_place_1_scanned, cummax_place_1_place, count, span,
          cummax_place_1_carry);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r1 = span + k;
        float value0;
        int64_t value1;
        k1_cummax_div_cummax_place_after(
            cumsum_1_scanned[k], cummax_place_1_scanned[k], cummax_place_1_place[k], value0,
            value1);
        result0[i0 * result0_stride0 + r1 * result0_stride1] = value0;
        result1[i0 * result1_stride0 + r1 * result1_stride1] = value1;
      }
    }
  }
}
