// k1_elu: one operation, one read and one write of memory.
// x f64[s0, 6] -> result f64[s0, 6]

OPWELD_FN double k1_elu_element(double x_1) {
  // model.py:11 return F.elu(x, 1.5)
  const double elu_1 = op::elu(x_1, 1.5, 1.0, 1.0);
  return elu_1;
}

extern "C" void k1_elu_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const double* __restrict__ x = static_cast<const double*>(x_data);
  double* __restrict__ result = static_cast<double*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const double x_1 = x[i];
    const double value0 = k1_elu_element(x_1);
    result[i] = value0;
  }
}

extern "C" void k1_elu_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const double* __restrict__ x = static_cast<const double*>(x_data);
  double* __restrict__ result = static_cast<double*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 6;
    const int64_t first = at % 6;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 6 ? stop : 6;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const double x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const double value0 = k1_elu_element(x_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
