// k1_exp_sum_div: 6 operations on rows of 64 elements in 3 passes.
// table_weight f32[1, 100, 64], ids i64[s0, 8, 1] -> result f32[s0, 8, 64]

OPWELD_FN float k1_exp_sum_div_pass0(float table_weight_1) {
  return table_weight_1;
}

OPWELD_FN float k1_exp_sum_div_pass1(float table_weight_1, float amax_1) {
  // model.py:11 return torch.softmax(self.table(ids), -1)
  const float sub_1 = table_weight_1 - amax_1;
  const float exp_1 = op::exp(sub_1);
  return exp_1;
}

OPWELD_FN float k1_exp_sum_div_pass2(float sum_1, float exp_1) {
  const float div_1 = exp_1 / sum_1;
  return div_1;
}

extern "C" bool k1_exp_sum_div_contiguous(
    const void* table_weight_data, const void* ids_data, void* result_data, int64_t s0,
    int64_t begin, int64_t end) {
  const float* __restrict__ table_weight = static_cast<const float*>(table_weight_data);
  const int64_t* __restrict__ ids = static_cast<const int64_t*>(ids_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  int64_t outside = 0;
  constexpr int64_t kLanes = 16;
  for (int64_t i = begin; i < end; ++i) {
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 64; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const int64_t ids_1 = ids[i];
          const int64_t place_1 = op::place_of(ids_1, 100, outside);
          const float table_weight_1 = table_weight[place_1 * 64 + r];
          const float value0 = k1_exp_sum_div_pass0(table_weight_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 64; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r = block + lane;
          const int64_t ids_1 = ids[i];
          const int64_t place_1 = op::place_of(ids_1, 100, outside);
          const float table_weight_1 = table_weight[place_1 * 64 + r];
          const float value0 = k1_exp_sum_div_pass1(table_weight_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          result[i * 64 + r] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r = 0; r < 64; ++r) {
      const float exp_1 = result[i * 64 + r];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i * 64 + r] = value0;
    }
  }
  return outside == 0;
}

extern "C" bool k1_exp_sum_div_strided(
    const void* table_weight_data, const void* ids_data, void* result_data, int64_t s0,
    int64_t table_weight_stride1, int64_t table_weight_stride2, int64_t ids_stride0,
    int64_t ids_stride1, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t begin, int64_t end) {
  const float* __restrict__ table_weight = static_cast<const float*>(table_weight_data);
  const int64_t* __restrict__ ids = static_cast<const int64_t*>(ids_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  int64_t outside = 0;
  constexpr int64_t kLanes = 16;
  float exp_1_row[64];
  for (int64_t row = begin; row < end; ++row) {
    const int64_t outer = row;
    const int64_t i1 = outer % 8;
    const int64_t i0 = outer / 8;
    float amax_1_lane[kLanes];
    op::open_lanes<op::Amax>(amax_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 64; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r2 = block + lane;
          const int64_t ids_1 = ids[i0 * ids_stride0 + i1 * ids_stride1];
          const int64_t place_1 = op::place_of(ids_1, 100, outside);
          const float table_weight_1 = table_weight[place_1 * table_weight_stride1
              + r2 * table_weight_stride2];
          const float value0 = k1_exp_sum_div_pass0(table_weight_1);
          amax_1_lane[lane] = op::Amax::combine(amax_1_lane[lane], value0);
        }
      }
    }
    const float amax_1 = op::fold_lanes<op::Amax>(amax_1_lane);
    float sum_1_lane[kLanes];
    op::open_lanes<op::Sum>(sum_1_lane);
    {
      int64_t block = 0;
      for (; block + kLanes <= 64; block += kLanes) {
#pragma omp simd
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t r2 = block + lane;
          const int64_t ids_1 = ids[i0 * ids_stride0 + i1 * ids_stride1];
          const int64_t place_1 = op::place_of(ids_1, 100, outside);
          const float table_weight_1 = table_weight[place_1 * table_weight_stride1
              + r2 * table_weight_stride2];
          const float value0 = k1_exp_sum_div_pass1(table_weight_1, amax_1);
          sum_1_lane[lane] = op::Sum::combine(sum_1_lane[lane], value0);
          exp_1_row[r2] = value0;
        }
      }
    }
    const float sum_1 = op::fold_lanes<op::Sum>(sum_1_lane);
#pragma omp simd
    for (int64_t r2 = 0; r2 < 64; ++r2) {
      const float exp_1 = exp_1_row[r2];
      const float value0 = k1_exp_sum_div_pass2(sum_1, exp_1);
      result[i0 * result_stride0 + i1 * result_stride1 + r2 * result_stride2] = value0;
    }
  }
  return outside == 0;
}
