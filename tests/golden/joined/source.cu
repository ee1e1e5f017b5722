// k1_exp_neg_relu: 4 operations over one iteration space, one result: intermediates stay in
//   registers.
// x f32[s0, 5], y f32[s0, 3] -> result f32[s0, 13]

OPWELD_FN float k1_exp_neg_relu_element(
    bool inside_1, float x_1, bool inside_2, float y_1, float x_2) {
  // model.py:11 return torch.cat((x.exp(), y, -x), 1).relu()
  const float exp_1 = op::exp(x_1);
  const float neg_1 = -x_2;
  const float where_1 = inside_2 ? y_1 : neg_1;
  const float where_2 = inside_1 ? exp_1 : where_1;
  const float relu_1 = op::relu(where_2);
  return relu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_neg_relu_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index at) {
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index lane_at = at + lane;
    const Index i1 = lane_at % 13u;
    const Index i0 = lane_at / 13u;
    const bool inside_1 = i1 < 5u;
    const float x_1 = inside_1 ? x[i0 * 5u + i1] : 0.0f;
    const bool inside_2 = i1 - 5u < 3u;
    const float y_1 = inside_2 ? y[i0 * 3u + i1 - 5u] : 0.0f;
    const bool inside_3 = i1 - 8u < 5u;
    const float x_2 = inside_3 ? x[i0 * 5u + i1 - 8u] : 0.0f;
    const float value0 = k1_exp_neg_relu_element(inside_1, x_1, inside_2, y_1, x_2);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_exp_neg_relu_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_exp_neg_relu_contiguous_packet<kLanes>(x, y, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_exp_neg_relu_contiguous_packet<1>(x, y, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_exp_neg_relu_contiguous_launch(
    const void* x, const void* y, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_neg_relu_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(num_elems));
}

static int k1_exp_neg_relu_contiguous(
    const void* x, const void* y, void* result, int64_t s0, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_neg_relu_contiguous_launch<1, uint32_t>
      : k1_exp_neg_relu_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_exp_neg_relu_contiguous_launch<4, uint32_t>
      : k1_exp_neg_relu_contiguous_launch<4, uint64_t>;
  launch(x, y, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_exp_neg_relu_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ y, float* __restrict__ result,
    Index x_stride0, Index x_stride1, Index y_stride0, Index y_stride1, Index result_stride0,
    Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 13u;
  const Index i0 = at / 13u;
  const bool inside_1 = i1 < 5u;
  const float x_1 = inside_1 ? x[i0 * x_stride0 + i1 * x_stride1] : 0.0f;
  const bool inside_2 = i1 - 5u < 3u;
  const float y_1 = inside_2 ? y[i0 * y_stride0 + i1 * y_stride1 - y_stride1 * 5u] : 0.0f;
  const bool inside_3 = i1 - 8u < 5u;
  const float x_2 = inside_3 ? x[i0 * x_stride0 + i1 * x_stride1 - x_stride1 * 8u] : 0.0f;
  const float value0 = k1_exp_neg_relu_element(inside_1, x_1, inside_2, y_1, x_2);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k1_exp_neg_relu_strided_launch(
    const void* x, const void* y, void* result, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_neg_relu_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(y), static_cast<float*>(result),
      Index(x_stride0), Index(x_stride1), Index(y_stride0), Index(y_stride1), Index(result_stride0),
      Index(result_stride1), Index(num_elems));
}

static int k1_exp_neg_relu_strided(
    const void* x, const void* y, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t y_stride0, int64_t y_stride1, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_neg_relu_strided_launch<uint32_t>
      : k1_exp_neg_relu_strided_launch<uint64_t>;
  launch(
      x, y, result, x_stride0, x_stride1, y_stride0, y_stride1, result_stride0, result_stride1,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_exp_neg_relu_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &y = operands[1], &result = operands[2];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 5}},
                                     {op::type_of<float>, {s0, 3}},
                                     {op::type_of<float>, {s0, 13}}});
  const int64_t num_elems = s0 * 13;
  if (call.misfit || num_elems == 0) return call.misfit;
  if (call.contiguous) {
    return k1_exp_neg_relu_contiguous(
      x.data, y.data, result.data, s0, num_elems, call.reach, call.aligned, stream);
  }
  return k1_exp_neg_relu_strided(
      x.data, y.data, result.data, s0, x.strides[0], x.strides[1], y.strides[0], y.strides[1],
      result.strides[0], result.strides[1], num_elems, call.reach, call.aligned, stream);
}
