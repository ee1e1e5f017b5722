// k1_relu_amax_mul: 5 operations on rows of 9 elements in one pass.
// x f32[s0, 16, 32, 32], bias f32[16, 1, 1] -> result f32[s0, 16, 16, 16]

OPWELD_FN float k1_relu_amax_mul_pass0(bool inside_1, float x_1, float bias_1) {
  // model.py:11 return F.max_pool2d(torch.relu(x + self.bias), 3, 2, 1) * 0.5
  const float add_1 = x_1 + bias_1;
  const float relu_1 = op::relu(add_1);
  const float where_1 = inside_1 ? relu_1 : -op::kInfinity<float>;
  return where_1;
}

OPWELD_FN float k1_relu_amax_mul_once0(float amax_1) {
  // model.py:11 return F.max_pool2d(torch.relu(x + self.bias), 3, 2, 1) * 0.5
  const float mul_1 = amax_1 * 0.5f;
  return mul_1;
}

extern "C" void k1_relu_amax_mul_contiguous(
    const void* x_data, const void* bias_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ bias = static_cast<const float*>(bias_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 16;
    const int64_t i2 = outer % 16;
    const int64_t above_i2 = outer / 16;
    const int64_t i1 = above_i2 % 16;
    const int64_t i0 = above_i2 / 16;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
    const auto fold_strip = [&](int64_t strip, int64_t count) __attribute__((always_inline)) {
      float amax_1_lane[kLanes];
      op::open_lanes<op::Amax>(amax_1_lane);
      for (int64_t r0 = 0; r0 < 3; ++r0) {
        for (int64_t r1 = 0; r1 < 3; ++r1) {
          if (i2 * 2 + r0 >= 1) {
            const int64_t from = (-r1 - strip * 2 + 2) / 2 > 0 ? (-r1 - strip * 2 + 2) / 2 : 0;
            const int64_t to = count;
#pragma omp simd
            for (int64_t lane = from; lane < to; ++lane) {
              const int64_t i3 = strip + lane;
              const bool inside_1 = true;
              const float x_1 = x[i0 * 16384 + i1 * 1024 + i2 * 64 + i3 * 2 + r0 * 32 + r1 - 33];
              const float bias_1 = bias[i1];
              const float value0 = k1_relu_amax_mul_pass0(inside_1, x_1, bias_1);
              amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
            }
          }
        }
      }
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i3 = strip + lane;
        const float amax_1 = amax_1_lane[lane];
        const float value0 = k1_relu_amax_mul_once0(amax_1);
        result[i0 * 4096 + i1 * 256 + i2 * 16 + i3] = value0;
      }
    };
    int64_t strip = first;
    for (; strip + kLanes <= last; strip += kLanes) fold_strip(strip, kLanes);
    if (strip < last) fold_strip(strip, last - strip);
    at += last - first;
  }
}

extern "C" void k1_relu_amax_mul_strided(
    const void* x_data, const void* bias_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t x_stride3, int64_t bias_stride0,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t result_stride3,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ bias = static_cast<const float*>(bias_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 16;
    const int64_t i4 = outer % 16;
    const int64_t above_i4 = outer / 16;
    const int64_t i3 = above_i4 % 16;
    const int64_t i2 = above_i4 / 16;
    const int64_t first = at % 16;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 16 ? stop : 16;
    const auto fold_strip = [&](int64_t strip, int64_t count) __attribute__((always_inline)) {
      float amax_1_lane[kLanes];
      op::open_lanes<op::Amax>(amax_1_lane);
      for (int64_t r0 = 0; r0 < 3; ++r0) {
        for (int64_t r1 = 0; r1 < 3; ++r1) {
          if (i4 * 2 + r0 >= 1) {
            const int64_t from = (-r1 - strip * 2 + 2) / 2 > 0 ? (-r1 - strip * 2 + 2) / 2 : 0;
            const int64_t to = count;
#pragma omp simd
            for (int64_t lane = from; lane < to; ++lane) {
              const int64_t i5 = strip + lane;
              const bool inside_1 = true;
              const float x_1 = x[i2 * x_stride0 + i3 * x_stride1 + i4 * x_stride2 * 2
                  + i5 * x_stride3 * 2 + r0 * x_stride2 + r1 * x_stride3 - x_stride2 - x_stride3];
              const float bias_1 = bias[bias_stride0 * i3];
              const float value0 = k1_relu_amax_mul_pass0(inside_1, x_1, bias_1);
              amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
            }
          }
        }
      }
#pragma omp simd
      for (int64_t lane = 0; lane < count; ++lane) {
        const int64_t i5 = strip + lane;
        const float amax_1 = amax_1_lane[lane];
        const float value0 = k1_relu_amax_mul_once0(amax_1);
        result[i2 * result_stride0 + i3 * result_stride1 + i4 * result_stride2
            + i5 * result_stride3] = value0;
      }
    };
    int64_t strip = first;
    for (; strip + kLanes <= last; strip += kLanes) fold_strip(strip, kLanes);
    if (strip < last) fold_strip(strip, last - strip);
    at += last - first;
  }
}
