// k1_exp_sum_div: 7 operations on rows of 120 elements in 3 passes.
// matmul f32[s0, 8, 100, 120], mask f32[s0, 1, 1, 120] -> result f32[s0, 8, 100, 120]

OPWELD_FN float k1_exp_sum_div_pass0(float matmul_1, float mask_1) {
  // model.py:12 weights = torch.softmax(scores * 0.125 + mask, dim=-1)
  const float mul_1 = matmul_1 * 0.125f;
  const float add_1 = mul_1 + mask_1;
  return add_1;
}

OPWELD_FN float k1_exp_sum_div_pass1(float matmul_1, float mask_1, float amax_1) {
  // model.py:12 weights = torch.softmax(scores * 0.125 + mask, dim=-1)
  const float mul_1 = matmul_1 * 0.125f;
  const float add_1 = mul_1 + mask_1;
  const float sub_1 = add_1 - amax_1;
  const float exp_1 = op::exp(sub_1);
  return exp_1;
}

OPWELD_FN float k1_exp_sum_div_pass2(float sum_1, float exp_1) {
  const float div_1 = exp_1 / sum_1;
  return div_1;
}

extern "C" void k1_exp_sum_div_contiguous(
    const void* matmul_data, const void* mask_data, void* result_data, int64_t s0, int64_t begin,
    int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t outer = row;
    const int64_t i1 = outer % 800;
    const int64_t i0 = outer / 800;
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 120; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float matmul_1 = matmul[i0 * 96000 + i1 * 120 + r];
          const float mask_1 = mask[i0 * 120 + r];
          const float value0 = k1_exp_sum_div_pass0(matmul_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
      if (block < 120) {
#pragma omp simd
        for (int64_t lane = 0; lane < 120 - block; ++lane) {
          const int64_t r = block + lane;
          const float matmul_1 = matmul[i0 * 96000 + i1 * 120 + r];
          const float mask_1 = mask[i0 * 120 + r];
          const float value0 = k1_exp_sum_div_pass0(matmul_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 120; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const float matmul_1 = matmul[i0 * 96000 + i1 * 120 + r];
          const float mask_1 = mask[i0 * 120 + r];
          const float value0 = k1_exp_sum_div_pass1(matmul_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          result[i0 * 96000 + i1 * 120 + r] = value0;
        }
      }
      if (block < 120) {
#pragma omp simd
        for (int64_t lane = 0; lane < 120 - block; ++lane) {
          const int64_t r = block + lane;
          const float matmul_1 = matmul[i0 * 96000 + i1 * 120 + r];
          const float mask_1 = mask[i0 * 120 + r];
          const float value0 = k1_exp_sum_div_pass1(matmul_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          result[i0 * 96000 + i1 * 120 + r] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r = 0; r < 120; ++r) {
      const float exp_1 = result[i0 * 96000 + i1 * 120 + r];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i0 * 96000 + i1 * 120 + r] = value0;
    }
  }
}

extern "C" void k1_exp_sum_div_strided(
    const void* matmul_data, const void* mask_data, void* result_data, int64_t s0,
    int64_t matmul_stride0, int64_t matmul_stride1, int64_t matmul_stride2, int64_t matmul_stride3,
    int64_t mask_stride0, int64_t mask_stride3, int64_t result_stride0, int64_t result_stride1,
    int64_t result_stride2, int64_t result_stride3, int64_t begin, int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  const float* __restrict__ mask = static_cast<const float*>(mask_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  constexpr int64_t kLanes = 16;
  float exp_1_row[120];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t outer = row;
    const int64_t i2 = outer % 100;
    const int64_t above_i2 = outer / 100;
    const int64_t i1 = above_i2 % 8;
    const int64_t i0 = above_i2 / 8;
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 120; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r3 = block + lane;
          const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1
              + i2 * matmul_stride2 + matmul_stride3 * r3];
          const float mask_1 = mask[i0 * mask_stride0 + mask_stride3 * r3];
          const float value0 = k1_exp_sum_div_pass0(matmul_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
      if (block < 120) {
#pragma omp simd
        for (int64_t lane = 0; lane < 120 - block; ++lane) {
          const int64_t r3 = block + lane;
          const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1
              + i2 * matmul_stride2 + matmul_stride3 * r3];
          const float mask_1 = mask[i0 * mask_stride0 + mask_stride3 * r3];
          const float value0 = k1_exp_sum_div_pass0(matmul_1, mask_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 120; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r3 = block + lane;
          const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1
              + i2 * matmul_stride2 + matmul_stride3 * r3];
          const float mask_1 = mask[i0 * mask_stride0 + mask_stride3 * r3];
          const float value0 = k1_exp_sum_div_pass1(matmul_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          exp_1_row[r3] = value0;
        }
      }
      if (block < 120) {
#pragma omp simd
        for (int64_t lane = 0; lane < 120 - block; ++lane) {
          const int64_t r3 = block + lane;
          const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1
              + i2 * matmul_stride2 + matmul_stride3 * r3];
          const float mask_1 = mask[i0 * mask_stride0 + mask_stride3 * r3];
          const float value0 = k1_exp_sum_div_pass1(matmul_1, mask_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          exp_1_row[r3] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r3 = 0; r3 < 120; ++r3) {
      const float exp_1 = exp_1_row[r3];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + r3 * result_stride3] = value0;
    }
  }
}

// k2_relu: one operation, one read and one write of memory.
// matmul f32[s0, 8, 100, 48] -> result f32[s0, 8, 100, 48]

OPWELD_FN float k2_relu_element(float matmul_1) {
  // model.py:13 return torch.relu(torch.matmul(weights, value))
  const float relu_1 = op::relu(matmul_1);
  return relu_1;
}

extern "C" void k2_relu_contiguous(
    const void* matmul_data, void* result_data, int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float matmul_1 = matmul[i];
    const float value0 = k2_relu_element(matmul_1);
    result[i] = value0;
  }
}

extern "C" void k2_relu_strided(
    const void* matmul_data, void* result_data, int64_t s0, int64_t matmul_stride0,
    int64_t matmul_stride1, int64_t matmul_stride2, int64_t matmul_stride3, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t result_stride3, int64_t begin,
    int64_t end) {
  const float* __restrict__ matmul = static_cast<const float*>(matmul_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 48;
    const int64_t i2 = outer % 100;
    const int64_t above_i2 = outer / 100;
    const int64_t i1 = above_i2 % 8;
    const int64_t i0 = above_i2 / 8;
    const int64_t first = at % 48;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 48 ? stop : 48;
#pragma omp simd
    for (int64_t i3 = first; i3 < last; ++i3) {
      const float matmul_1 = matmul[i0 * matmul_stride0 + i1 * matmul_stride1 + i2 * matmul_stride2
          + i3 * matmul_stride3];
      const float value0 = k2_relu_element(matmul_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
          + i3 * result_stride3] = value0;
    }
    at += last - first;
  }
}
