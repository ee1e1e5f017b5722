// k1_div_add_sqrt: 7 operations on rows of 6 elements in 2 passes.
// x f32[s0, 6, 5, 4], weight f32[6] -> result0 f32[s0, 1, 5, 4], result1 f32[s0, 6, 5, 4]

OPWELD_FN float k1_div_add_sqrt_pass0(float x_1) {
  // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
  const float mul_1 = x_1 * x_1;
  return mul_1;
}

OPWELD_FN void k1_div_add_sqrt_once0(float sum_1, float& result0, float& result1) {
  // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
  const float div_1 = sum_1 / 6.0f;
  const float add_1 = div_1 + 1e-05f;
  const float sqrt_1 = op::sqrt(add_1);
  result0 = sqrt_1;
  result1 = sqrt_1;
}

OPWELD_FN float k1_div_add_sqrt_pass1(float x_1, float sqrt_1, float weight_1) {
  // model.py:12 return x / rms * self.weight[:, None, None], rms
  const float div_1 = x_1 / sqrt_1;
  const float mul_1 = div_1 * weight_1;
  return mul_1;
}

extern "C" void k1_div_add_sqrt_contiguous(
    const void* x_data, const void* weight_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ weight = static_cast<const float*>(weight_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  float* __restrict__ result1 = static_cast<float*>(result1_data);
  constexpr int64_t kLanes = 32;
  for (int64_t at = begin; at < end;) {
    const int64_t i0 = at / 20;
    const int64_t first = at % 20;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 20 ? stop : 20;
    const auto fold_strip = [&](int64_t strip, int64_t count) __attribute__((always_inline)) {
      float sum_1_lane[kLanes];
      op::open_lanes<op::Sum>(sum_1_lane);
      for (int64_t r = 0; r < 6; ++r) {
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
          const int64_t i1 = strip + lane;
          const float x_1 = x[i0 * 120 + i1 + r * 20];
          const float value0 = k1_div_add_sqrt_pass0(x_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
        }
      }
      float sqrt_1_lane[kLanes];
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i1 = strip + lane;
        const float sum_1 = sum_1_lane[lane];
        float value0;
        float value1;
        k1_div_add_sqrt_once0(sum_1, value0, value1);
        sqrt_1_lane[lane] = value0;
        result0[i0 * 20 + i1] = value1;
      }
      for (int64_t r = 0; r < 6; ++r) {
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
          const int64_t i1 = strip + lane;
          const float x_1 = x[i0 * 120 + i1 + r * 20];
          const float sqrt_1 = sqrt_1_lane[lane];
          const float weight_1 = weight[r];
          const float value0 = k1_div_add_sqrt_pass1(x_1, sqrt_1, weight_1);
          result1[i0 * 120 + i1 + r * 20] = value0;
        }
      }
    };
    int64_t strip = first;
    for (; strip + kLanes <= last; strip += kLanes) fold_strip(strip, kLanes);
    if (strip < last) fold_strip(strip, last - strip);
    at += last - first;
  }
}

extern "C" void k1_div_add_sqrt_strided(
    const void* x_data, const void* weight_data, void* result0_data, void* result1_data, int64_t s0,
    int64_t x_stride0, int64_t x_stride1, int64_t x_stride2, int64_t x_stride3,
    int64_t result0_stride0, int64_t result0_stride2, int64_t result0_stride3,
    int64_t weight_stride0, int64_t result1_stride0, int64_t result1_stride1,
    int64_t result1_stride2, int64_t result1_stride3, int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ weight = static_cast<const float*>(weight_data);
  float* __restrict__ result0 = static_cast<float*>(result0_data);
  float* __restrict__ result1 = static_cast<float*>(result1_data);
  constexpr int64_t kLanes = 4;
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 4;
    const int64_t i2 = outer % 5;
    const int64_t i0 = outer / 5;
    const int64_t first = at % 4;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 4 ? stop : 4;
    const auto fold_strip = [&](int64_t strip, int64_t count) __attribute__((always_inline)) {
      float sum_1_lane[kLanes];
      op::open_lanes<op::Sum>(sum_1_lane);
      for (int64_t r1 = 0; r1 < 6; ++r1) {
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
          const int64_t i3 = strip + lane;
          const float x_1 = x[i0 * x_stride0 + i2 * x_stride2 + i3 * x_stride3 + r1 * x_stride1];
          const float value0 = k1_div_add_sqrt_pass0(x_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
        }
      }
      float sqrt_1_lane[kLanes];
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i3 = strip + lane;
        const float sum_1 = sum_1_lane[lane];
        float value0;
        float value1;
        k1_div_add_sqrt_once0(sum_1, value0, value1);
        sqrt_1_lane[lane] = value0;
        result0[i0 * result0_stride0 + i2 * result0_stride2 + i3 * result0_stride3] = value1;
      }
      for (int64_t r1 = 0; r1 < 6; ++r1) {
#pragma omp simd
        for (int64_t lane = 0; lane < count; ++lane) {
          const int64_t i3 = strip + lane;
          const float x_1 = x[i0 * x_stride0 + i2 * x_stride2 + i3 * x_stride3 + r1 * x_stride1];
          const float sqrt_1 = sqrt_1_lane[lane];
          const float weight_1 = weight[r1 * weight_stride0];
          const float value0 = k1_div_add_sqrt_pass1(x_1, sqrt_1, weight_1);
          result1[i0 * result1_stride0 + i2 * result1_stride2 + i3 * result1_stride3
              + r1 * result1_stride1] = value0;
        }
      }
    };
    int64_t strip = first;
    for (; strip + kLanes <= last; strip += kLanes) fold_strip(strip, kLanes);
    if (strip < last) fold_strip(strip, last - strip);
    at += last - first;
  }
}
