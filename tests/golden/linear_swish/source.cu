// k1_clamp_min_clamp_max_tanh: 6 operations over one iteration space, one result: intermediates
//   stay in registers.
// linear f32[s0, 8192] -> result f32[s0, 8192]

OPWELD_FN float k1_clamp_min_clamp_max_tanh_element(float linear_1) {
  // linear_swish.py:16 y = y * torch.sigmoid(y)
  const float sigmoid_1 = op::sigmoid(linear_1);
  const float mul_1 = linear_1 * sigmoid_1;
  // linear_swish.py:17 y = y / 2.0
  const float mul_2 = mul_1 * 0.5f;
  // linear_swish.py:18 y = torch.clamp(y, min=-1.0, max=1.0)
  const float clamp_min_1 = op::clamp_min(mul_2, -1.0f);
  const float clamp_max_1 = op::clamp_max(clamp_min_1, 1.0f);
  // linear_swish.py:19 y = torch.tanh(y)
  const float tanh_1 = op::tanh(clamp_max_1);
  return tanh_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_clamp_min_clamp_max_tanh_contiguous_packet(
    const float* __restrict__ linear, float* __restrict__ result, Index at) {
  const auto linear_1_vector = op::load_vector<kLanes>(linear + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_clamp_min_clamp_max_tanh_element(linear_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_clamp_min_clamp_max_tanh_contiguous_kernel(
    const float* __restrict__ linear, float* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_clamp_min_clamp_max_tanh_contiguous_packet<kLanes>(linear, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_clamp_min_clamp_max_tanh_contiguous_packet<1>(linear, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_clamp_min_clamp_max_tanh_contiguous_launch(
    const void* linear, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_clamp_min_clamp_max_tanh_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<float*>(result), Index(num_elems));
}

extern "C" int k1_clamp_min_clamp_max_tanh_contiguous(
    const void* linear, void* result, int64_t s0, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_clamp_min_clamp_max_tanh_contiguous_launch<1, uint32_t>
      : k1_clamp_min_clamp_max_tanh_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_clamp_min_clamp_max_tanh_contiguous_launch<4, uint32_t>
      : k1_clamp_min_clamp_max_tanh_contiguous_launch<4, uint64_t>;
  launch(linear, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_clamp_min_clamp_max_tanh_strided_kernel(
    const float* __restrict__ linear, float* __restrict__ result, Index linear_stride0,
    Index linear_stride1, Index result_stride0, Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 8192u;
  const Index i0 = at / 8192u;
  const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
  const float value0 = k1_clamp_min_clamp_max_tanh_element(linear_1);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k1_clamp_min_clamp_max_tanh_strided_launch(
    const void* linear, void* result, int64_t linear_stride0, int64_t linear_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_clamp_min_clamp_max_tanh_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<float*>(result), Index(linear_stride0),
      Index(linear_stride1), Index(result_stride0), Index(result_stride1), Index(num_elems));
}

extern "C" int k1_clamp_min_clamp_max_tanh_strided(
    const void* linear, void* result, int64_t s0, int64_t linear_stride0, int64_t linear_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_clamp_min_clamp_max_tanh_strided_launch<uint32_t>
      : k1_clamp_min_clamp_max_tanh_strided_launch<uint64_t>;
  launch(
      linear, result, linear_stride0, linear_stride1, result_stride0, result_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
