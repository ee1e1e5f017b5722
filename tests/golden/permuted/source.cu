// k1_exp_add: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 48], y f32[48, s0] -> result f32[48, s0]

OPWELD_FN float k1_exp_add_element(float x_1, float y_1) {
  // model.py:11 return x.exp().permute(1, 0) + y
  const float exp_1 = op::exp(x_1);
  const float add_1 = exp_1 + y_1;
  return add_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_add_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, Index s0,
    Index at) {
  const auto y_1_vector = op::load_vector<kLanes>(y + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index i1 = lane_at % s0;
    const Index i0 = lane_at / s0;
    const float x_1 = x[i0 + i1 * 48u];
    const float value0 = k1_exp_add_element(x_1, y_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_exp_add_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, Index s0,
    Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_exp_add_contiguous_packet<kLanes>(x, y, result, s0, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_exp_add_contiguous_packet<1>(x, y, result, s0, at);
  }
}

template <int kLanes, typename Index>
static void k1_exp_add_contiguous_launch(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_add_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(s0), Index(num_elems));
}

extern "C" int k1_exp_add_contiguous(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_add_contiguous_launch<1, uint32_t>
      : k1_exp_add_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_exp_add_contiguous_launch<4, uint32_t>
      : k1_exp_add_contiguous_launch<4, uint64_t>;
  launch(x, y, result, s0, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_exp_add_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result, Index s0,
    Index x_stride0, Index x_stride1, Index y_stride0, Index y_stride1, Index result_stride0,
    Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % s0;
  const Index i0 = at / s0;
  const float x_1 = x[i0 * x_stride1 + i1 * x_stride0];
  const float y_1 = y[i0 * y_stride0 + i1 * y_stride1];
  const float value0 = k1_exp_add_element(x_1, y_1);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k1_exp_add_strided_launch(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_add_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(s0), Index(x_stride0), Index(x_stride1), Index(y_stride0), Index(y_stride1),
      Index(result_stride0), Index(result_stride1), Index(num_elems));
}

extern "C" int k1_exp_add_strided(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_add_strided_launch<uint32_t> : k1_exp_add_strided_launch<uint64_t>;
  launch(
      x, y, result, s0, x_stride0, x_stride1, y_stride0, y_stride1, result_stride0, result_stride1,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
