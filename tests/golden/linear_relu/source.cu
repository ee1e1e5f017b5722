// k1_add_relu: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// linear f32[s0, 8192], shift f32[8192] -> result f32[s0, 8192]

OPWELD_FN float k1_add_relu_element(float linear_1, float shift_1) {
  // linear_relu.py:16 return torch.relu(self.project(x) + self.shift)
  const float add_1 = linear_1 + shift_1;
  const float relu_1 = op::relu(add_1);
  return relu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_add_relu_contiguous_packet(
    const float* __restrict__ linear, const float* __restrict__ shift, float* __restrict__ result,
    Index at) {
  const Index i1 = at % 8192u;
  const auto linear_1_vector = op::load_vector<kLanes>(linear + at);
  const auto shift_1_vector = op::load_vector<kLanes>(&shift[i1]);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_add_relu_element(linear_1_vector.lane[lane], shift_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_add_relu_contiguous_kernel(
    const float* __restrict__ linear, const float* __restrict__ shift, float* __restrict__ result,
    Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_add_relu_contiguous_packet<kLanes>(linear, shift, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_add_relu_contiguous_packet<1>(linear, shift, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_add_relu_contiguous_launch(
    const void* linear, const void* shift, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_add_relu_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<const float*>(shift),
      static_cast<float*>(result), Index(num_elems));
}

extern "C" int k1_add_relu_contiguous(
    const void* linear, const void* shift, void* result, int64_t s0, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_add_relu_contiguous_launch<1, uint32_t>
      : k1_add_relu_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_add_relu_contiguous_launch<4, uint32_t>
      : k1_add_relu_contiguous_launch<4, uint64_t>;
  launch(linear, shift, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_add_relu_strided_kernel(
    const float* __restrict__ linear, const float* __restrict__ shift, float* __restrict__ result,
    Index linear_stride0, Index linear_stride1, Index shift_stride0, Index result_stride0,
    Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 8192u;
  const Index i0 = at / 8192u;
  const float linear_1 = linear[i0 * linear_stride0 + i1 * linear_stride1];
  const float shift_1 = shift[i1 * shift_stride0];
  const float value0 = k1_add_relu_element(linear_1, shift_1);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k1_add_relu_strided_launch(
    const void* linear, const void* shift, void* result, int64_t linear_stride0,
    int64_t linear_stride1, int64_t shift_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_add_relu_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(linear), static_cast<const float*>(shift),
      static_cast<float*>(result), Index(linear_stride0), Index(linear_stride1),
      Index(shift_stride0), Index(result_stride0), Index(result_stride1), Index(num_elems));
}

extern "C" int k1_add_relu_strided(
    const void* linear, const void* shift, void* result, int64_t s0, int64_t linear_stride0,
    int64_t linear_stride1, int64_t shift_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_add_relu_strided_launch<uint32_t>
      : k1_add_relu_strided_launch<uint64_t>;
  launch(
      linear, shift, result, linear_stride0, linear_stride1, shift_stride0, result_stride0,
      result_stride1, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
