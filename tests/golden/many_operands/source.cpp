// k1_mul_add: 7 operations over one iteration space, one result: intermediates stay in registers.
// query_projection f32[s0, 3, 20], key_projection f32[s0, 3, 20],
//   value_projection f32[s0, 3, 20], output_projection f32[s0, 3, 20] -> result f32[s0, 3, 20]

OPWELD_FN float k1_mul_add_element(
    float query_projection_1, float key_projection_1, float value_projection_1,
    float output_projection_1) {
  // model.py:11 return sum(each * each for each in projections)
  const float mul_1 = query_projection_1 * query_projection_1;
  const float mul_2 = key_projection_1 * key_projection_1;
  const float add_1 = mul_1 + mul_2;
  const float mul_3 = value_projection_1 * value_projection_1;
  const float add_2 = add_1 + mul_3;
  const float mul_4 = output_projection_1 * output_projection_1;
  const float add_3 = add_2 + mul_4;
  return add_3;
}

extern "C" void k1_mul_add_contiguous(
    const void* query_projection_data, const void* key_projection_data,
    const void* value_projection_data, const void* output_projection_data, void* result_data,
    int64_t s0, int64_t begin, int64_t end) {
  const float* __restrict__ query_projection = static_cast<const float*>(query_projection_data);
  const float* __restrict__ key_projection = static_cast<const float*>(key_projection_data);
  const float* __restrict__ value_projection = static_cast<const float*>(value_projection_data);
  const float* __restrict__ output_projection = static_cast<const float*>(output_projection_data);
  float* __restrict__ result = static_cast<float*>(result_data);
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float query_projection_1 = query_projection[i];
    const float key_projection_1 = key_projection[i];
    const float value_projection_1 = value_projection[i];
    const float output_projection_1 = output_projection[i];
    const float value0 = k1_mul_add_element(
        query_projection_1, key_projection_1, value_projection_1, output_projection_1);
    result[i] = value0;
  }
}

extern "C" void k1_mul_add_strided(
    const void* query_projection_data, const void* key_projection_data,
    const void* value_projection_data, const void* output_projection_data, void* result_data,
    int64_t s0, int64_t query_projection_stride0, int64_t query_projection_stride1,
    int64_t query_projection_stride2, int64_t key_projection_stride0,
    int64_t key_projection_stride1, int64_t key_projection_stride2,
    int64_t value_projection_stride0, int64_t value_projection_stride1,
    int64_t value_projection_stride2, int64_t output_projection_stride0,
    int64_t output_projection_stride1, int64_t output_projection_stride2, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t begin, int64_t end) {
  const float* __restrict__ query_projection = static_cast<const float*>(query_projection_data);
  const float* __restrict__ key_projection = static_cast<const float*>(key_projection_data);
  const float* __restrict__ value_projection = static_cast<const float*>(value_projection_data);
  const float* __restrict__ output_projection = static_cast<const float*>(output_projection_data);
  float* __restrict__ result = static_cast<float*>(result_data);
  for (int64_t at = begin; at < end;) {
    const int64_t outer = at / 20;
    const int64_t i1 = outer % 3;
    const int64_t i0 = outer / 3;
    const int64_t first = at % 20;
    const int64_t stop = first + (end - at);
    const int64_t last = stop < 20 ? stop : 20;
#pragma omp simd
    for (int64_t i2 = first; i2 < last; ++i2) {
      const float query_projection_1 = query_projection[i0 * query_projection_stride0
          + i1 * query_projection_stride1 + i2 * query_projection_stride2];
      const float key_projection_1 = key_projection[i0 * key_projection_stride0
          + i1 * key_projection_stride1 + i2 * key_projection_stride2];
      const float value_projection_1 = value_projection[i0 * value_projection_stride0
          + i1 * value_projection_stride1 + i2 * value_projection_stride2];
      const float output_projection_1 = output_projection[i0 * output_projection_stride0
          + i1 * output_projection_stride1 + i2 * output_projection_stride2];
      const float value0 = k1_mul_add_element(
          query_projection_1, key_projection_1, value_projection_1, output_projection_1);
      result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
    }
    at += last - first;
  }
}
