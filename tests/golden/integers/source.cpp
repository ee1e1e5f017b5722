// k1_mul_bitwise_xor_maximum: 3 operations over one iteration space, 2 results: intermediates
//   stay in registers.
// x i64[s0, 11], y i64[s0, 11] -> result0 i64[s0, 11], result1 i64[s0, 11]

OPWELD_FN void k1_mul_bitwise_xor_maximum_element(
    int64_t x_1, int64_t y_1, int64_t& result0, int64_t& result1) {
  // model.py:11 return (x * y) ^ -7, torch.maximum(x, y), small + small
  const int64_t mul_1 = x_1 * y_1;
  const int64_t bitwise_xor_1 = mul_1 ^ int64_t(-7ll);
  const int64_t maximum_1 = op::maximum(x_1, y_1);
  result0 = bitwise_xor_1;
  result1 = maximum_1;
}

extern "C" void k1_mul_bitwise_xor_maximum_contiguous(
    const void* x_data, const void* y_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t begin, int64_t end) {
  const int64_t* __restrict__ x = static_cast<const int64_t*>(x_data);
  const int64_t* __restrict__ y = static_cast<const int64_t*>(y_data);
  int64_t* __restrict__ result0 = static_cast<int64_t*>(result0_data);
  int64_t* __restrict__ result1 = static_cast<int64_t*>(result1_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const int64_t x_1 = x[i];
    const int64_t y_1 = y[i];
    int64_t value0;
    int64_t value1;
    k1_mul_bitwise_xor_maximum_element(x_1, y_1, value0, value1);
    result0[i] = value0;
    result1[i] = value1;
  }
}

extern "C" void k1_mul_bitwise_xor_maximum_strided(
    const void* x_data, const void* y_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t x_stride0, int64_t x_stride1, int64_t y_stride0, int64_t y_stride1,
    int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t begin, int64_t end) {
  const int64_t* __restrict__ x = static_cast<const int64_t*>(x_data);
  const int64_t* __restrict__ y = static_cast<const int64_t*>(y_data);
  int64_t* __restrict__ result0 = static_cast<int64_t*>(result0_data);
  int64_t* __restrict__ result1 = static_cast<int64_t*>(result1_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 11;
    const int64_t first = at % 11;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 11 ? stop : 11;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const int64_t x_1 = x[i0 * x_stride0 + i1 * x_stride1];
      const int64_t y_1 = y[i0 * y_stride0 + i1 * y_stride1];
      int64_t value0;
      int64_t value1;
      k1_mul_bitwise_xor_maximum_element(x_1, y_1, value0, value1);
      result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
      result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
    }
    at += last - first;
  }
}

// k2_add: one operation, one read and one write of memory.
// small u8[s0, 11] -> result u8[s0, 11]

OPWELD_FN uint8_t k2_add_element(uint8_t small_1) {
  // model.py:11 return (x * y) ^ -7, torch.maximum(x, y), small + small
  const uint8_t add_1 = uint8_t(small_1 + small_1);
  return add_1;
}

extern "C" void k2_add_contiguous(
    const void* small_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const uint8_t* __restrict__ small = static_cast<const uint8_t*>(small_data);
  uint8_t* __restrict__ result = static_cast<uint8_t*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const uint8_t small_1 = small[i];
    const uint8_t value0 = k2_add_element(small_1);
    result[i] = value0;
  }
}

extern "C" void k2_add_strided(
    const void* small_data, void* result_data, int64_t s0, int64_t small_stride0,
    int64_t small_stride1, int64_t result_stride0, int64_t result_stride1, int64_t begin,
    int64_t end) {
  const uint8_t* __restrict__ small = static_cast<const uint8_t*>(small_data);
  uint8_t* __restrict__ result = static_cast<uint8_t*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 11;
    const int64_t first = at % 11;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 11 ? stop : 11;
#pragma omp simd
    for (int64_t i1 = first; i1 < last; ++i1) {
      const uint8_t small_1 = small[i0 * small_stride0 + i1 * small_stride1];
      const uint8_t value0 = k2_add_element(small_1);
      result[i0 * result_stride0 + i1 * result_stride1] = value0;
    }
    at += last - first;
  }
}
