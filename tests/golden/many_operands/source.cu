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

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_add_contiguous_packet(
    const float* __restrict__ query_projection, const float* __restrict__ key_projection,
    const float* __restrict__ value_projection, const float* __restrict__ output_projection,
    float* __restrict__ result, Index at) {
  const auto query_projection_1_vector = op::load_vector<kLanes>(query_projection + at);
  const auto key_projection_1_vector = op::load_vector<kLanes>(key_projection + at);
  const auto value_projection_1_vector = op::load_vector<kLanes>(value_projection + at);
  const auto output_projection_1_vector = op::load_vector<kLanes>(output_projection + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_mul_add_element(
        query_projection_1_vector.lane[lane], key_projection_1_vector.lane[lane],
        value_projection_1_vector.lane[lane], output_projection_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_mul_add_contiguous_kernel(
    const float* __restrict__ query_projection, const float* __restrict__ key_projection,
    const float* __restrict__ value_projection, const float* __restrict__ output_projection,
    float* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_mul_add_contiguous_packet<kLanes>(
        query_projection, key_projection, value_projection, output_projection, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_mul_add_contiguous_packet<1>(
        query_projection, key_projection, value_projection, output_projection, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_mul_add_contiguous_launch(
    const void* query_projection, const void* key_projection, const void* value_projection,
    const void* output_projection, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_add_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(query_projection), static_cast<const float*>(key_projection),
      static_cast<const float*>(value_projection), static_cast<const float*>(output_projection),
      static_cast<float*>(result), Index(num_elems));
}

extern "C" int k1_mul_add_contiguous(
    const void* query_projection, const void* key_projection, const void* value_projection,
    const void* output_projection, void* result, int64_t s0, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_add_contiguous_launch<1, uint32_t>
      : k1_mul_add_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_mul_add_contiguous_launch<4, uint32_t>
      : k1_mul_add_contiguous_launch<4, uint64_t>;
  launch(
      query_projection, key_projection, value_projection, output_projection, result, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_mul_add_strided_kernel(
    const float* __restrict__ query_projection, const float* __restrict__ key_projection,
    const float* __restrict__ value_projection, const float* __restrict__ output_projection,
    float* __restrict__ result, Index query_projection_stride0, Index query_projection_stride1,
    Index query_projection_stride2, Index key_projection_stride0, Index key_projection_stride1,
    Index key_projection_stride2, Index value_projection_stride0, Index value_projection_stride1,
    Index value_projection_stride2, Index output_projection_stride0,
    Index output_projection_stride1, Index output_projection_stride2, Index result_stride0,
    Index result_stride1, Index result_stride2, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i2 = at % 20u;
  const Index above_i2 = at / 20u;
  const Index i1 = above_i2 % 3u;
  const Index i0 = above_i2 / 3u;
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

template <typename Index>
static void k1_mul_add_strided_launch(
    const void* query_projection, const void* key_projection, const void* value_projection,
    const void* output_projection, void* result, int64_t query_projection_stride0,
    int64_t query_projection_stride1, int64_t query_projection_stride2,
    int64_t key_projection_stride0, int64_t key_projection_stride1, int64_t key_projection_stride2,
    int64_t value_projection_stride0, int64_t value_projection_stride1,
    int64_t value_projection_stride2, int64_t output_projection_stride0,
    int64_t output_projection_stride1, int64_t output_projection_stride2, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_add_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(query_projection), static_cast<const float*>(key_projection),
      static_cast<const float*>(value_projection), static_cast<const float*>(output_projection),
      static_cast<float*>(result), Index(query_projection_stride0), Index(query_projection_stride1),
      Index(query_projection_stride2), Index(key_projection_stride0), Index(key_projection_stride1),
      Index(key_projection_stride2), Index(value_projection_stride0),
      Index(value_projection_stride1), Index(value_projection_stride2),
      Index(output_projection_stride0), Index(output_projection_stride1),
      Index(output_projection_stride2), Index(result_stride0), Index(result_stride1),
      Index(result_stride2), Index(num_elems));
}

extern "C" int k1_mul_add_strided(
    const void* query_projection, const void* key_projection, const void* value_projection,
    const void* output_projection, void* result, int64_t s0, int64_t query_projection_stride0,
    int64_t query_projection_stride1, int64_t query_projection_stride2,
    int64_t key_projection_stride0, int64_t key_projection_stride1, int64_t key_projection_stride2,
    int64_t value_projection_stride0, int64_t value_projection_stride1,
    int64_t value_projection_stride2, int64_t output_projection_stride0,
    int64_t output_projection_stride1, int64_t output_projection_stride2, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_add_strided_launch<uint32_t> : k1_mul_add_strided_launch<uint64_t>;
  launch(
      query_projection, key_projection, value_projection, output_projection, result,
      query_projection_stride0, query_projection_stride1, query_projection_stride2,
      key_projection_stride0, key_projection_stride1, key_projection_stride2,
      value_projection_stride0, value_projection_stride1, value_projection_stride2,
      output_projection_stride0, output_projection_stride1, output_projection_stride2,
      result_stride0, result_stride1, result_stride2, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
