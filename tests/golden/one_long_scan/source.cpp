// k1_cumsum: one operation on rows of 4194304 elements that are scanned in one pass, each split
//   over several blocks.
// x f32[4194304] -> result f32[4194304]

OPWELD_FN float k1_cumsum_scanned(float x_1) {
  return x_1;
}

OPWELD_FN float k1_cumsum_after(float cumsum_1) {
  return cumsum_1;
}

struct k1_cumsum_partial {
  double cumsum_1;
};

extern "C" int64_t k1_cumsum_partial_bytes() { return sizeof(k1_cumsum_partial); }

extern "C" void k1_cumsum_contiguous_fold(
    const void* x_data, void* result_data, int64_t begin, int64_t end, int64_t from, int64_t to,
    void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  k1_cumsum_partial* partial = static_cast<k1_cumsum_partial*>(partials);
  float cumsum_1_scanned[op::kScanSpan];
  for (int64_t i = begin; i < end; ++i) {
    double cumsum_1_carry = op::Sum::identity<double>();
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r = span + k;
        const float x_1 = x[r];
        const float value0 = k1_cumsum_scanned(x_1);
        cumsum_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
    }
    partial[i - begin] = {cumsum_1_carry};
  }
}

extern "C" void k1_cumsum_contiguous_scan(
    const void* x_data, void* result_data, int64_t begin, int64_t end, int64_t from, int64_t to,
    int64_t piece, int64_t stride, const void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  const k1_cumsum_partial* partial = static_cast<const k1_cumsum_partial*>(partials);
  float cumsum_1_scanned[op::kScanSpan];
  for (int64_t i = begin; i < end; ++i) {
    double cumsum_1_carry = op::Sum::identity<double>();
    for (int64_t before = 0; before < piece; ++before) {
      cumsum_1_carry = op::Sum::combine(cumsum_1_carry,
          partial[before * stride + i - begin].cumsum_1);
    }
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r = span + k;
        const float x_1 = x[r];
        const float value0 = k1_cumsum_scanned(x_1);
        cumsum_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r = span + k;
        const float value0 = k1_cumsum_after(cumsum_1_scanned[k]);
        result[r] = value0;
      }
    }
  }
}

extern "C" void k1_cumsum_strided_fold(
    const void* x_data, void* result_data, int64_t x_stride0, int64_t result_stride0, int64_t begin,
    int64_t end, int64_t from, int64_t to, void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  k1_cumsum_partial* partial = static_cast<k1_cumsum_partial*>(partials);
  float cumsum_1_scanned[op::kScanSpan];
  for (int64_t i0 = begin; i0 < end; ++i0) {
    double cumsum_1_carry = op::Sum::identity<double>();
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r0 = span + k;
        const float x_1 = x[r0 * x_stride0];
        const float value0 = k1_cumsum_scanned(x_1);
        cumsum_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
    }
    partial[i0 - begin] = {cumsum_1_carry};
  }
}

extern "C" void k1_cumsum_strided_scan(
    const void* x_data, void* result_data, int64_t x_stride0, int64_t result_stride0, int64_t begin,
    int64_t end, int64_t from, int64_t to, int64_t piece, int64_t stride, const void* partials) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  const k1_cumsum_partial* partial = static_cast<const k1_cumsum_partial*>(partials);
  float cumsum_1_scanned[op::kScanSpan];
  for (int64_t i0 = begin; i0 < end; ++i0) {
    double cumsum_1_carry = op::Sum::identity<double>();
    for (int64_t before = 0; before < piece; ++before) {
      cumsum_1_carry = op::Sum::combine(cumsum_1_carry,
          partial[before * stride + i0 - begin].cumsum_1);
    }
    for (int64_t span = from; span < to; span += op::kScanSpan) {
      const int64_t rest = to - span;
      const int64_t count = rest < op::kScanSpan ? rest : op::kScanSpan;
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r0 = span + k;
        const float x_1 = x[r0 * x_stride0];
        const float value0 = k1_cumsum_scanned(x_1);
        cumsum_1_scanned[k] = value0;
      }
      op::scan_neighbours<op::Sum, false>(cumsum_1_scanned, count, cumsum_1_carry);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t r0 = span + k;
        const float value0 = k1_cumsum_after(cumsum_1_scanned[k]);
        result[r0 * result_stride0] = value0;
      }
    }
  }
}
