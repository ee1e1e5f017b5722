// k1_cast_cumsum: 3 operations on rows of 9 elements that are scanned in one pass.
// x bf16[s0, 9, 16] -> result bf16[s0, 9, 16]

OPWELD_FN float k1_cast_cumsum_scanned(float x_1) {
  const float cast_1 = x_1;
  return cast_1;
}

OPWELD_FN float k1_cast_cumsum_after(float cumsum_1) {
  return cumsum_1;
}

extern "C" void k1_cast_cumsum_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  op::bfloat16* __restrict__ result = static_cast<op::bfloat16*>(result_data);
  const int64_t from = 0, to = 9;
  for (int64_t row = begin; row < end;) {
    const int64_t i0 = row / 16;
    const int64_t strip = row % 16;
    const int64_t rest = end - row < 16 - strip ? end - row : 16 - strip;
    const int64_t count = rest < 256 ? rest : 256;
    double cumsum_1_carry[256];
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) {
      cumsum_1_carry[k] = op::Sum::identity<double>();
    }
    for (int64_t at = from; at < to; ++at) {
      const int64_t r = 9 - 1 - (at);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t i1 = strip + k;
        double cumsum_1_lane;
        {
          const float x_1 = op::to_compute(x[i0 * 144 + i1 + r * 16]);
          const float value0 = k1_cast_cumsum_scanned(x_1);
          cumsum_1_lane = op::Sum::combine(cumsum_1_carry[k], double(value0));
        }
        const float value0 = k1_cast_cumsum_after(float(cumsum_1_carry[k]));
        result[i0 * 144 + i1 + r * 16] = op::from_compute<op::bfloat16>(value0);
        cumsum_1_carry[k] = cumsum_1_lane;
      }
    }
    row += count;
  }
}

extern "C" void k1_cast_cumsum_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t begin, int64_t end) {
  const op::bfloat16* __restrict__ x = static_cast<const op::bfloat16*>(x_data);
  op::bfloat16* __restrict__ result = static_cast<op::bfloat16*>(result_data);
  const int64_t from = 0, to = 9;
  for (int64_t row = begin; row < end;) {
    const int64_t i0 = row / 16;
    const int64_t strip = row % 16;
    const int64_t rest = end - row < 16 - strip ? end - row : 16 - strip;
    const int64_t count = rest < 256 ? rest : 256;
    double cumsum_1_carry[256];
#pragma omp simd
    for (int64_t k = 0; k < count; ++k) {
      cumsum_1_carry[k] = op::Sum::identity<double>();
    }
    for (int64_t at = from; at < to; ++at) {
      const int64_t r1 = 9 - 1 - (at);
#pragma omp simd
      for (int64_t k = 0; k < count; ++k) {
        const int64_t i2 = strip + k;
        double cumsum_1_lane;
        {
          const float x_1 = op::to_compute(x[i0 * x_stride0 + i2 * x_stride2 + r1 * x_stride1]);
          const float value0 = k1_cast_cumsum_scanned(x_1);
          cumsum_1_lane = op::Sum::combine(cumsum_1_carry[k], double(value0));
        }
        const float value0 = k1_cast_cumsum_after(float(cumsum_1_carry[k]));
        result[i0 * result_stride0 + i2 * result_stride2
            + r1 * result_stride1] = op::from_compute<op::bfloat16>(value0);
        cumsum_1_carry[k] = cumsum_1_lane;
      }
    }
    row += count;
  }
}
