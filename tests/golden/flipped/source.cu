// k1_sub: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 9] -> result f32[s0, 9]

OPWELD_FN float k1_sub_element(float x_1, float x_2) {
  // model.py:11 return x - x.flip((0, 1))
  const float sub_1 = x_1 - x_2;
  return sub_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_sub_contiguous_packet(
    const float* __restrict__ x, float* __restrict__ result, Index s0, Index at) {
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index i = lane_at;
    const float x_2 = x[-i + s0 * 9u - 1u];
    const float value0 = k1_sub_element(x_1_vector.lane[lane], x_2);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_sub_contiguous_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index s0, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_sub_contiguous_packet<kLanes>(x, result, s0, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_sub_contiguous_packet<1>(x, result, s0, at);
  }
}

template <int kLanes, typename Index>
static void k1_sub_contiguous_launch(
    const void* x, void* result, int64_t s0, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_sub_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(s0), Index(num_elems));
}

static int k1_sub_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_elems, int64_t max_offset, int aligned,
    void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_sub_contiguous_launch<1, uint32_t>
      : k1_sub_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_sub_contiguous_launch<4, uint32_t>
      : k1_sub_contiguous_launch<4, uint64_t>;
  launch(x, result, s0, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_sub_strided_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index s0, Index x_stride0,
    Index x_stride1, Index result_stride0, Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 9u;
  const Index i0 = at / 9u;
  const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
  const float x_2 = x[-i0 * x_stride0 - i1 * x_stride1 + s0 * x_stride0 - x_stride0
      + x_stride1 * 8u];
  const float value0 = k1_sub_element(x_1, x_2);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k1_sub_strided_launch(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_sub_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(s0), Index(x_stride0),
      Index(x_stride1), Index(result_stride0), Index(result_stride1), Index(num_elems));
}

static int k1_sub_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_sub_strided_launch<uint32_t> : k1_sub_strided_launch<uint64_t>;
  launch(
      x, result, s0, x_stride0, x_stride1, result_stride0, result_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_sub_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &result = operands[1];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 9}}, {op::type_of<float>, {s0, 9}}});
  const int64_t num_elems = s0 * 9;
  if (call.misfit || num_elems == 0) return call.misfit;
  if (call.contiguous) {
    return k1_sub_contiguous(x.data, result.data, s0, num_elems, call.reach, call.aligned, stream);
  }
  return k1_sub_strided(
      x.data, result.data, s0, x.strides[0], x.strides[1], result.strides[0], result.strides[1],
      num_elems, call.reach, call.aligned, stream);
}
