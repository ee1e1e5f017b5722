// k1_mul: one operation, one read and one write of memory.
// x f32[s0, 16, 8, 8], scale f32[1, 16, 1, 1] -> result f32[s0, 16, 8, 8]

OPWELD_FN float k1_mul_element(float x_1, float scale_1) {
  // model.py:11 return x * self.scale
  const float mul_1 = x_1 * scale_1;
  return mul_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ result,
    Index at) {
  const Index above_i2 = at / 64u;
  const Index i1 = above_i2 % 16u;
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const float scale_1 = scale[i1];
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_mul_element(x_1_vector.lane[lane], scale_1);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_mul_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ result,
    Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_mul_contiguous_packet<kLanes>(x, scale, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_mul_contiguous_packet<1>(x, scale, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_mul_contiguous_launch(
    const void* x, const void* scale, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(scale), static_cast<float*>(result),
      Index(num_elems));
}

extern "C" int k1_mul_contiguous(
    const void* x, const void* scale, void* result, int64_t s0, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_contiguous_launch<1, uint32_t>
      : k1_mul_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_mul_contiguous_launch<4, uint32_t>
      : k1_mul_contiguous_launch<4, uint64_t>;
  launch(x, scale, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_mul_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ scale, float* __restrict__ result,
    Index x_stride0, Index x_stride1, Index x_stride2, Index x_stride3, Index scale_stride1,
    Index result_stride0, Index result_stride1, Index result_stride2, Index result_stride3,
    Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i3 = at % 8u;
  const Index above_i3 = at / 8u;
  const Index i2 = above_i3 % 8u;
  const Index above_i2 = above_i3 / 8u;
  const Index i1 = above_i2 % 16u;
  const Index i0 = above_i2 / 16u;
  const float x_1 = x[i0 * x_stride0 + i1 * x_stride1 + i2 * x_stride2 + i3 * x_stride3];
  const float scale_1 = scale[i1 * scale_stride1];
  const float value0 = k1_mul_element(x_1, scale_1);
  result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2
      + i3 * result_stride3] = value0;
}

template <typename Index>
static void k1_mul_strided_launch(
    const void* x, const void* scale, void* result, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t x_stride3, int64_t scale_stride1, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t result_stride3, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(scale), static_cast<float*>(result),
      Index(x_stride0), Index(x_stride1), Index(x_stride2), Index(x_stride3), Index(scale_stride1),
      Index(result_stride0), Index(result_stride1), Index(result_stride2), Index(result_stride3),
      Index(num_elems));
}

extern "C" int k1_mul_strided(
    const void* x, const void* scale, void* result, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t x_stride2, int64_t x_stride3, int64_t scale_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t result_stride3,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_strided_launch<uint32_t> : k1_mul_strided_launch<uint64_t>;
  launch(
      x, scale, result, x_stride0, x_stride1, x_stride2, x_stride3, scale_stride1, result_stride0,
      result_stride1, result_stride2, result_stride3, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
