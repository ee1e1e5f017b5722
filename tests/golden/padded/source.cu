// k1_cos: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 4, 5] -> result f32[s0, 7, 8]

OPWELD_FN float k1_cos_element(bool inside_1, float x_1) {
  // model.py:11 return F.pad(x, (2, 1, 1, 2)).cos()
  const float where_1 = inside_1 ? x_1 : 0.0f;
  const float cos_1 = op::cos(where_1);
  return cos_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_cos_contiguous_packet(
    const float* __restrict__ x, float* __restrict__ result, Index at) {
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index i2 = lane_at % 8u;
    const Index above_i2 = lane_at / 8u;
    const Index i1 = above_i2 % 7u;
    const Index i0 = above_i2 / 7u;
    const bool inside_1 = i1 - 1u < 4u && i2 - 2u < 5u;
    const float x_1 = inside_1 ? x[i0 * 20u + i1 * 5u + i2 - 7u] : 0.0f;
    const float value0 = k1_cos_element(inside_1, x_1);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_cos_contiguous_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_cos_contiguous_packet<kLanes>(x, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_cos_contiguous_packet<1>(x, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_cos_contiguous_launch(
    const void* x, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_cos_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(num_elems));
}

static int k1_cos_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_elems, int64_t max_offset, int aligned,
    void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_cos_contiguous_launch<1, uint32_t>
      : k1_cos_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_cos_contiguous_launch<4, uint32_t>
      : k1_cos_contiguous_launch<4, uint64_t>;
  launch(x, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_cos_strided_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index x_stride0, Index x_stride1,
    Index x_stride2, Index result_stride0, Index result_stride1, Index result_stride2,
    Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i2 = at % 8u;
  const Index above_i2 = at / 8u;
  const Index i1 = above_i2 % 7u;
  const Index i0 = above_i2 / 7u;
  const bool inside_1 = i1 - 1u < 4u && i2 - 2u < 5u;
  const float x_1 = inside_1
      ? x[i0 * x_stride0 + i1 * x_stride1 + i2 * x_stride2 - x_stride1 - x_stride2 * 2u] : 0.0f;
  const float value0 = k1_cos_element(inside_1, x_1);
  result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
}

template <typename Index>
static void k1_cos_strided_launch(
    const void* x, void* result, int64_t x_stride0, int64_t x_stride1, int64_t x_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_cos_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(x_stride0), Index(x_stride1),
      Index(x_stride2), Index(result_stride0), Index(result_stride1), Index(result_stride2),
      Index(num_elems));
}

static int k1_cos_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_cos_strided_launch<uint32_t> : k1_cos_strided_launch<uint64_t>;
  launch(
      x, result, x_stride0, x_stride1, x_stride2, result_stride0, result_stride1, result_stride2,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_cos_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &result = operands[1];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 4, 5}},
                                     {op::type_of<float>, {s0, 7, 8}}});
  const int64_t num_elems = s0 * 56;
  if (call.misfit || num_elems == 0) return call.misfit;
  if (call.contiguous) {
    return k1_cos_contiguous(x.data, result.data, s0, num_elems, call.reach, call.aligned, stream);
  }
  return k1_cos_strided(
      x.data, result.data, s0, x.strides[0], x.strides[1], x.strides[2], result.strides[0],
      result.strides[1], result.strides[2], num_elems, call.reach, call.aligned, stream);
}
