// k1_exp_sum_div: 6 operations on rows of 40 elements in 3 passes.
// x f32[s0, 40], mask f32[40] -> result f32[s0, 40]

OPWELD_FN float k1_exp_sum_div_pass0(float x_1, float mask_1) {
  // model.py:11 return torch.softmax(x + mask, dim=-1)
  const float add_1 = x_1 + mask_1;
  return add_1;
}

OPWELD_FN float k1_exp_sum_div_pass1(float x_1, float mask_1, float amax_1) {
  // model.py:11 return torch.softmax(x + mask, dim=-1)
  const float add_1 = x_1 + mask_1;
  const float sub_1 = add_1 - amax_1;
  const float exp_1 = op::exp(sub_1);
  return exp_1;
}

OPWELD_FN float k1_exp_sum_div_pass2(float sum_1, float exp_1) {
  const float div_1 = exp_1 / sum_1;
  return div_1;
}

extern "C" void k1_exp_sum_div_contiguous(
    const void* x_data, const void* mask_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t i = begin; i < end; ++i) {
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 40; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[i * 40 + r];
          const float mask_1 = mask[r];
          const float value0 = k1_exp_sum_div_pass0(x_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
      if (block < 40) {
#pragma omp simd
        for (int64_t lane = 0; lane < 40 - block; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[i * 40 + r];
          const float mask_1 = mask[r];
          const float value0 = k1_exp_sum_div_pass0(x_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 40; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[i * 40 + r];
          const float mask_1 = mask[r];
          const float value0 = k1_exp_sum_div_pass1(x_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          result[i * 40 + r] = value0;
        }
      }
      if (block < 40) {
#pragma omp simd
        for (int64_t lane = 0; lane < 40 - block; ++lane) {
          const int64_t r = block + lane;
          const float x_1 = x[i * 40 + r];
          const float mask_1 = mask[r];
          const float value0 = k1_exp_sum_div_pass1(x_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          result[i * 40 + r] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r = 0; r < 40; ++r) {
      const float exp_1 = result[i * 40 + r];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i * 40 + r] = value0;
    }
  }
}

extern "C" void k1_exp_sum_div_strided(
    const void* x_data, const void* mask_data, void* result_data, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t mask_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t begin, int64_t end) {
  const float* __restrict__ x = static_cast<const float*>(x_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  float exp_1_row[40];
  for (int64_t i0 = begin; i0 < end; ++i0) {
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 40; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r1 = block + lane;
          const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
          const float mask_1 = mask[mask_stride0 * r1];
          const float value0 = k1_exp_sum_div_pass0(x_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
      if (block < 40) {
#pragma omp simd
        for (int64_t lane = 0; lane < 40 - block; ++lane) {
          const int64_t r1 = block + lane;
          const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
          const float mask_1 = mask[mask_stride0 * r1];
          const float value0 = k1_exp_sum_div_pass0(x_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 40; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r1 = block + lane;
          const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
          const float mask_1 = mask[mask_stride0 * r1];
          const float value0 = k1_exp_sum_div_pass1(x_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          exp_1_row[r1] = value0;
        }
      }
      if (block < 40) {
#pragma omp simd
        for (int64_t lane = 0; lane < 40 - block; ++lane) {
          const int64_t r1 = block + lane;
          const float x_1 = x[i0 * x_stride0 + r1 * x_stride1];
          const float mask_1 = mask[mask_stride0 * r1];
          const float value0 = k1_exp_sum_div_pass1(x_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          exp_1_row[r1] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r1 = 0; r1 < 40; ++r1) {
      const float exp_1 = exp_1_row[r1];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i0 * result_stride0 + r1 * result_stride1] = value0;
    }
  }
}
