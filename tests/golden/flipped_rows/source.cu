// k1_exp: 2 operations over one iteration space, one result: intermediates stay in registers.
// x f32[s0, 6, 16] -> result f32[s0, 6, 16]

OPWELD_FN float k1_exp_element(float x_1) {
  // model.py:11 return x.flip(1).exp()
  const float exp_1 = op::exp(x_1);
  return exp_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_contiguous_packet(
    const float* __restrict__ x, float* __restrict__ result, Index at) {
  const Index i2 = at % 16u;
  const Index above_i2 = at / 16u;
  const Index i1 = above_i2 % 6u;
  const Index i0 = above_i2 / 6u;
  const auto x_1_vector = op::load_vector<kLanes>(&x[op::difference(i0 * 96u + i2 + 80u,
      i1 * 16u)]);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_exp_element(x_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_exp_contiguous_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_exp_contiguous_packet<kLanes>(x, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_exp_contiguous_packet<1>(x, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_exp_contiguous_launch(
    const void* x, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(num_elems));
}

static int k1_exp_contiguous(
    const void* x, void* result, int64_t s0, int64_t num_elems, int64_t max_offset, int aligned,
    void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_contiguous_launch<1, uint32_t>
      : k1_exp_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_exp_contiguous_launch<4, uint32_t>
      : k1_exp_contiguous_launch<4, uint64_t>;
  launch(x, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_exp_strided_kernel(
    const float* __restrict__ x, float* __restrict__ result, Index x_stride0, Index x_stride1,
    Index x_stride2, Index result_stride0, Index result_stride1, Index result_stride2,
    Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i2 = at % 16u;
  const Index above_i2 = at / 16u;
  const Index i1 = above_i2 % 6u;
  const Index i0 = above_i2 / 6u;
  const float x_1 = x[i0 * x_stride0 - i1 * x_stride1 + i2 * x_stride2 + x_stride1 * 5u];
  const float value0 = k1_exp_element(x_1);
  result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
}

template <typename Index>
static void k1_exp_strided_launch(
    const void* x, void* result, int64_t x_stride0, int64_t x_stride1, int64_t x_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<float*>(result), Index(x_stride0), Index(x_stride1),
      Index(x_stride2), Index(result_stride0), Index(result_stride1), Index(result_stride2),
      Index(num_elems));
}

static int k1_exp_strided(
    const void* x, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t result_stride0, int64_t result_stride1, int64_t result_stride2,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_strided_launch<uint32_t> : k1_exp_strided_launch<uint64_t>;
  launch(
      x, result, x_stride0, x_stride1, x_stride2, result_stride0, result_stride1, result_stride2,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_exp_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &result = operands[1];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 6, 16}},
                                     {op::type_of<float>, {s0, 6, 16}}});
  const int64_t num_elems = s0 * 96;
  if (call.misfit || num_elems == 0) return call.misfit;
  if (call.contiguous) {
    return k1_exp_contiguous(x.data, result.data, s0, num_elems, call.reach, call.aligned, stream);
  }
  return k1_exp_strided(
      x.data, result.data, s0, x.strides[0], x.strides[1], x.strides[2], result.strides[0],
      result.strides[1], result.strides[2], num_elems, call.reach, call.aligned, stream);
}
