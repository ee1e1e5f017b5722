// k1_tanh_mul: 2 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 6, 8], y f32[s0, 4, 12] -> result f32[s0, 4, 12]

OPWELD_FN float k1_tanh_mul_element(float x_1, float y_1) {
  // model.py:11 return torch.tanh(x).reshape(-1, 12, 4).permute(0, 2, 1) * y
  const float tanh_1 = op::tanh(x_1);
  const float mul_1 = tanh_1 * y_1;
  return mul_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_tanh_mul_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index at) {
  const auto y_1_vector = op::load_vector<kLanes>(y + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index i2 = lane_at % 12u;
    const Index above_i2 = lane_at / 12u;
    const Index i1 = above_i2 % 4u;
    const Index i0 = above_i2 / 4u;
    const float x_1 = x[((i1 + i2 * 4u) % 8u) + ((i1 + i2 * 4u) / 8u) * 8u + i0 * 48u];
    const float value0 = k1_tanh_mul_element(x_1, y_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_tanh_mul_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_tanh_mul_contiguous_packet<kLanes>(x, y, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_tanh_mul_contiguous_packet<1>(x, y, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_tanh_mul_contiguous_launch(
    const void* x, const void* y, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_tanh_mul_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(num_elems));
}

static int k1_tanh_mul_contiguous(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_tanh_mul_contiguous_launch<1, uint32_t>
      : k1_tanh_mul_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_tanh_mul_contiguous_launch<4, uint32_t>
      : k1_tanh_mul_contiguous_launch<4, uint64_t>;
  launch(x, y, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_tanh_mul_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index x_stride0, Index x_stride1, Index x_stride2, Index y_stride0, Index y_stride1,
    Index y_stride2, Index result_stride0, Index result_stride1, Index result_stride2,
    Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i2 = at % 12u;
  const Index above_i2 = at / 12u;
  const Index i1 = above_i2 % 4u;
  const Index i0 = above_i2 / 4u;
  const float x_1 = x[((i1 + i2 * 4u) % 8u) * x_stride2 + ((i1 + i2 * 4u) / 8u) * x_stride1
      + i0 * x_stride0];
  const float y_1 = y[i0 * y_stride0 + i1 * y_stride1 + i2 * y_stride2];
  const float value0 = k1_tanh_mul_element(x_1, y_1);
  result[i0 * result_stride0 + i1 * result_stride1 + i2 * result_stride2] = value0;
}

template <typename Index>
static void k1_tanh_mul_strided_launch(
    const void* x, const void* y, void* result, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t y_stride0, int64_t y_stride1, int64_t y_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_tanh_mul_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(x_stride0), Index(x_stride1), Index(x_stride2), Index(y_stride0), Index(y_stride1),
      Index(y_stride2), Index(result_stride0), Index(result_stride1), Index(result_stride2),
      Index(num_elems));
}

static int k1_tanh_mul_strided(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t y_stride0, int64_t y_stride1, int64_t y_stride2,
    int64_t result_stride0, int64_t result_stride1, int64_t result_stride2, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_tanh_mul_strided_launch<uint32_t>
      : k1_tanh_mul_strided_launch<uint64_t>;
  launch(
      x, y, result, x_stride0, x_stride1, x_stride2, y_stride0, y_stride1, y_stride2,
      result_stride0, result_stride1, result_stride2, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_tanh_mul_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &y = operands[1], &result = operands[2];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 6, 8}},
                                     {op::type_of<float>, {s0, 4, 12}},
                                     {op::type_of<float>, {s0, 4, 12}}});
  const int64_t num_elems = s0 * 48;
  if (call.misfit || num_elems == 0) return call.misfit;
  if (call.contiguous) {
    return k1_tanh_mul_contiguous(
      x.data, y.data, result.data, s0, num_elems, call.reach, call.aligned, stream);
  }
  return k1_tanh_mul_strided(
      x.data, y.data, result.data, s0, x.strides[0], x.strides[1], x.strides[2], y.strides[0],
      y.strides[1], y.strides[2], result.strides[0], result.strides[1], result.strides[2],
      num_elems, call.reach, call.aligned, stream);
}
