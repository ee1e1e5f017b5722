// k1_amax: one operation on rows of 48 elements in one pass.
// x f16[3, s0, 16] -> result f16[1, s0, 1]

OPWELD_FN float k1_amax_pass0(float x_1) {
  return x_1;
}

OPWELD_FN float k1_amax_once0(float amax_1) {
  return amax_1;
}

extern "C" void k1_amax_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  op::half* __restrict__ result = static_cast<op::half*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t i = begin; i < end; ++i) {
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    for (int64_t r0 = 0; r0 < 3; ++r0) {
      int64_t block = 0;
      for (; block + kLanes <= 16; block += kLanes) {
        float x_1_block[kLanes];
        op::widen_block(x + r0 * s0 * 16 + block + i * 16, kLanes, x_1_block);
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const float x_1 = x_1_block[lane];
          const float value0 = k1_amax_pass0(x_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    {
      const float value0 = k1_amax_once0(amax_1);
      result[i] = op::from_compute<op::half>(value0);
    }
  }
}

extern "C" void k1_amax_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride1, int64_t begin, int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  op::half* __restrict__ result = static_cast<op::half*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t i1 = begin; i1 < end; ++i1) {
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    for (int64_t r0 = 0; r0 < 3; ++r0) {
      int64_t block = 0;
      for (; block + kLanes <= 16; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r2 = block + lane;
          const float x_1 = op::to_compute(x[i1 * x_stride1 + r0 * x_stride0 + r2 * x_stride2]);
          const float value0 = k1_amax_pass0(x_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    {
      const float value0 = k1_amax_once0(amax_1);
      result[i1 * result_stride1] = op::from_compute<op::half>(value0);
    }
  }
}

// k2_argmax: one operation on rows of 16 elements in one pass.
// x f16[3, s0, 16] -> result i64[3, s0, 1]

OPWELD_FN float k2_argmax_pass0(float x_1) {
  return x_1;
}

OPWELD_FN int64_t k2_argmax_once0(int64_t argmax_1) {
  return argmax_1;
}

extern "C" void k2_argmax_contiguous(
    const void* x_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  int64_t* __restrict__ result = static_cast<int64_t*>(result_data);
  constexpr int64_t kLanes = 512;
  for (int64_t strip = begin; strip < end; strip += kLanes) {
    const int64_t count = end - strip < kLanes ? end - strip : kLanes;
    float argmax_1_extreme[kLanes];
    int64_t argmax_1_lane[kLanes];
    op::open_places<op::Argmax>(argmax_1_extreme, argmax_1_lane);
    for (int64_t r = 0; r < 16; ++r) {
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i = strip + lane;
        const float x_1 = op::to_compute(x[i * 16 + r]);
        const float value0 = k2_argmax_pass0(x_1);
        const int64_t place = r;
        const bool argmax_1_takes = op::Argmax::takes(value0, argmax_1_extreme[lane]);
        argmax_1_extreme[lane] = argmax_1_takes ? value0 : argmax_1_extreme[lane];
        argmax_1_lane[lane] = argmax_1_takes ? place : argmax_1_lane[lane];
      }
    }
#pragma omp simd
    for (int64_t lane = 0; lane < count; ++lane) {
      const int64_t i = strip + lane;
      const int64_t argmax_1 = argmax_1_lane[lane];
      const int64_t value0 = k2_argmax_once0(argmax_1);
      result[i] = value0;
    }
  }
}

extern "C" void k2_argmax_strided(
    const void* x_data, void* result_data, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t begin, int64_t end) {
  const op::half* __restrict__ x = static_cast<const op::half*>(x_data);
  int64_t* __restrict__ result = static_cast<int64_t*>(result_data);
  constexpr int64_t kLanes = 512;
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / s0;
    const int64_t first = at % s0;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < s0 ? stop : s0;
    for (int64_t strip = first; strip < last; strip += kLanes) {
      const int64_t count = last - strip < kLanes ? last - strip : kLanes;
      float argmax_1_extreme[kLanes];
      int64_t argmax_1_lane[kLanes];
      op::open_places<op::Argmax>(argmax_1_extreme, argmax_1_lane);
      for (int64_t r2 = 0; r2 < 16; ++r2) {
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
          const int64_t i1 = strip + lane;
          const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1 + r2 * x_stride2]);
          const float value0 = k2_argmax_pass0(x_1);
          const int64_t place = r2;
          const bool argmax_1_takes = op::Argmax::takes(value0, argmax_1_extreme[lane]);
          argmax_1_extreme[lane] = argmax_1_takes ? value0 : argmax_1_extreme[lane];
          argmax_1_lane[lane] = argmax_1_takes ? place : argmax_1_lane[lane];
        }
      }
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i1 = strip + lane;
        const int64_t argmax_1 = argmax_1_lane[lane];
        const int64_t value0 = k2_argmax_once0(argmax_1);
        result[i0 * result_stride0 + i1 * result_stride1] = value0;
      }
    }
    at += last - first;
  }
}
