// k1_gelu: one operation, one read and one write of memory.
// linear f64[s0, 64] -> result f64[s0, 64]

OPWELD_FN double k1_gelu_element(double linear_1) {
  // model.py:11 h = F.gelu(self.first(x))
  const double gelu_1 = op::gelu(linear_1);
  return gelu_1;
}

extern "C" void k1_gelu_contiguous(
    const void* linear_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const double* __restrict__ linear = static_cast<const double*>(linear_data);
  double* __restrict__ result = static_cast<double*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const double linear_1 = linear[i];
    const double value0 = k1_gelu_element(linear_1);
    result[i] = value0;
  }
}

extern "C" void k1_gelu_strided(
    const void* linear_data, void* result_data, int64_t s0, int64_t linear_stride0,
    int64_t linear_stride1, int64_t result_stride0, int64_t result_stride1, int64_t begin,
    int64_t end) {
  const double* __restrict__ linear = static_cast<const double*>(linear_data);
  double* __restrict__ result = static_cast<double*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const double linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const double value0 = k1_gelu_element(linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}

// k2_tanh_add: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// linear f64[s0, 64], x f64[s0, 64] -> result f64[s0, 64]

OPWELD_FN double k2_tanh_add_element(double x_1, double linear_1) {
  // model.py:12 return x + torch.tanh(self.second(h))
  const double tanh_1 = op::tanh(linear_1);
  const double add_1 = x_1 + tanh_1;
  return add_1;
}

extern "C" void k2_tanh_add_contiguous(
    const void* linear_data, const void* x_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const double* __restrict__ linear = static_cast<const double*>(linear_data);
  const double* __restrict__ x = static_cast<const double*>(x_data);
  double* __restrict__ result = static_cast<double*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const double x_1 = x[i];
    const double linear_1 = linear[i];
    const double value0 = k2_tanh_add_element(x_1, linear_1);
    result[i] = value0;
  }
}

extern "C" void k2_tanh_add_strided(
    const void* linear_data, const void* x_data, void* result_data, int64_t s0,
    int64_t linear_stride0, int64_t linear_stride1, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const double* __restrict__ linear = static_cast<const double*>(linear_data);
  const double* __restrict__ x = static_cast<const double*>(x_data);
  double* __restrict__ result = static_cast<double*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 64;
    const int64_t first = at % 64;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 64 ? stop : 64;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const double x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const double linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
      const double value0 = k2_tanh_add_element(x_1, linear_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
