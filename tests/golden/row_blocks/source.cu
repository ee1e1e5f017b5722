// k1_relu_add_gt: 3 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// linear f32[s0, 2048], residual f32[s0, 2048] -> result0 f32[s0, 2048], result1 bool[s0, 2048]

OPWELD_FN void k1_relu_add_gt_element(
    float linear_1, float residual_1, float& result0, bool& result1) {
  // model.py:12 return F.relu(y) + residual, y > 0
  const float relu_1 = op::relu(linear_1);
  const float add_1 = relu_1 + residual_1;
  const bool gt_1 = linear_1 > 0.0f;
  result0 = add_1;
  result1 = gt_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_relu_add_gt_contiguous_packet(
    const float* __restrict__ linear, const float* __restrict__ residual,
    float* __restrict__ result0, bool* __restrict__ result1, Index at) {
  const auto linear_1_vector = op::load_vector<kLanes>(linear + at);
  const auto residual_1_vector = op::load_vector<kLanes>(residual + at);
  op::Vector<float, kLanes> result0_vector;
  op::Vector<bool, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    bool value1;
    k1_relu_add_gt_element(
        linear_1_vector.lane[lane], residual_1_vector.lane[lane], value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_relu_add_gt_contiguous_kernel(
    const float* __restrict__ linear, const float* __restrict__ residual,
    float* __restrict__ result0, bool* __restrict__ result1, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_relu_add_gt_contiguous_packet<kLanes>(linear, residual, result0, result1, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_relu_add_gt_contiguous_packet<1>(linear, residual, result0, result1, at);
  }
}

template <int kLanes, typename Index>
static void k1_relu_add_gt_contiguous_launch(
    const void* linear, const void* residual, void* result0, void* result1, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_relu_add_gt_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<const float*>(residual),
      static_cast<float*>(result0), static_cast<bool*>(result1), Index(num_elems));
}

extern "C" int k1_relu_add_gt_contiguous(
    const void* linear, const void* residual, void* result0, void* result1, int64_t s0,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_relu_add_gt_contiguous_launch<1, uint32_t>
      : k1_relu_add_gt_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_relu_add_gt_contiguous_launch<4, uint32_t>
      : k1_relu_add_gt_contiguous_launch<4, uint64_t>;
  launch(linear, residual, result0, result1, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_relu_add_gt_strided_kernel(
    const float* __restrict__ linear, const float* __restrict__ residual,
    float* __restrict__ result0, bool* __restrict__ result1, Index linear_stride0,
    Index linear_stride1, Index residual_stride0, Index residual_stride1, Index result0_stride0,
    Index result0_stride1, Index result1_stride0, Index result1_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 2048u;
  const Index i0 = at / 2048u;
  const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
  const float residual_1 = residual[i0 * residual_stride0 + i1 * residual_stride1];
  float value0;
  bool value1;
  k1_relu_add_gt_element(linear_1, residual_1, value0, value1);
  result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
  result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
}

template <typename Index>
static void k1_relu_add_gt_strided_launch(
    const void* linear, const void* residual, void* result0, void* result1, int64_t linear_stride0,
    int64_t linear_stride1, int64_t residual_stride0, int64_t residual_stride1,
    int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_relu_add_gt_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<const float*>(residual),
      static_cast<float*>(result0), static_cast<bool*>(result1), Index(linear_stride0),
      Index(linear_stride1), Index(residual_stride0), Index(residual_stride1),
      Index(result0_stride0), Index(result0_stride1), Index(result1_stride0),
      Index(result1_stride1), Index(num_elems));
}

extern "C" int k1_relu_add_gt_strided(
    const void* linear, const void* residual, void* result0, void* result1, int64_t s0,
    int64_t linear_stride0, int64_t linear_stride1, int64_t residual_stride0,
    int64_t residual_stride1, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_relu_add_gt_strided_launch<uint32_t>
      : k1_relu_add_gt_strided_launch<uint64_t>;
  launch(
      linear, residual, result0, result1, linear_stride0, linear_stride1, residual_stride0,
      residual_stride1, result0_stride0, result0_stride1, result1_stride0, result1_stride1,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
