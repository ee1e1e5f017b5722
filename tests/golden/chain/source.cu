// k1_abs_neg_exp: 12 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// x f32[s0, 16384], scale f32[16384], shift f32[s0, 1] -> result0 f32[s0, 16384],
//   result1 f32[s0, 16384]

OPWELD_FN void k1_abs_neg_exp_element(
    float x_1, float scale_1, float shift_1, float& result0, float& result1) {
  // chain.py:12 centred = x * scale + shift # 1, 2
  const float mul_1 = x_1 * scale_1;
  const float add_1 = mul_1 + shift_1;
  // chain.py:13 gate = torch.sigmoid(centred) # 3
  const float sigmoid_1 = op::sigmoid(add_1);
  // chain.py:14 swish = centred * gate # 4
  const float mul_2 = add_1 * sigmoid_1;
  // chain.py:15 bent = torch.where(swish > 0.0, swish, 0.1 * swish) # 5, 6, 7
  const bool gt_1 = mul_2 > 0.0f;
  const float mul_3 = mul_2 * 0.1f;
  const float where_1 = gt_1 ? mul_2 : mul_3;
  // chain.py:16 first = torch.tanh(bent) + x # 8, 9
  const float tanh_1 = op::tanh(where_1);
  const float add_2 = tanh_1 + x_1;
  // chain.py:17 second = torch.exp(-torch.abs(first)) # 10, 11, 12
  const float abs_1 = op::abs(add_2);
  const float neg_1 = -abs_1;
  const float exp_1 = op::exp(neg_1);
  result0 = add_2;
  result1 = exp_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_abs_neg_exp_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
    float* __restrict__ result0, float* __restrict__ result1, Index at) {
  const Index i1 = at % 16384u;
  const Index i0 = at / 16384u;
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const auto scale_1_vector = op::load_vector<kLanes>(&scale[i1]);
  const float shift_1 = shift[i0];
  op::Vector<float, kLanes> result0_vector;
  op::Vector<float, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    float value1;
    k1_abs_neg_exp_element(
        x_1_vector.lane[lane], scale_1_vector.lane[lane], shift_1, value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_abs_neg_exp_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
    float* __restrict__ result0, float* __restrict__ result1, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_abs_neg_exp_contiguous_packet<kLanes>(x, scale, shift, result0, result1, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_abs_neg_exp_contiguous_packet<1>(x, scale, shift, result0, result1, at);
  }
}

template <int kLanes, typename Index>
static void k1_abs_neg_exp_contiguous_launch(
    const void* x, const void* scale, const void* shift, void* result0, void* result1,
    int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_abs_neg_exp_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(scale),
      static_cast<const float*>(shift), static_cast<float*>(result0), static_cast<float*>(result1),
      Index(num_elems));
}

extern "C" int k1_abs_neg_exp_contiguous(
    const void* x, const void* scale, const void* shift, void* result0, void* result1, int64_t s0,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_abs_neg_exp_contiguous_launch<1, uint32_t>
      : k1_abs_neg_exp_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_abs_neg_exp_contiguous_launch<4, uint32_t>
      : k1_abs_neg_exp_contiguous_launch<4, uint64_t>;
  launch(x, scale, shift, result0, result1, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_abs_neg_exp_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
    float* __restrict__ result0, float* __restrict__ result1, Index x_stride0, Index x_stride1,
    Index scale_stride0, Index shift_stride0, Index result0_stride0, Index result0_stride1,
    Index result1_stride0, Index result1_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 16384u;
  const Index i0 = at / 16384u;
  const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
  const float scale_1 = scale[i1 * scale_stride0];
  const float shift_1 = shift[i0 * shift_stride0];
  float value0;
  float value1;
  k1_abs_neg_exp_element(x_1, scale_1, shift_1, value0, value1);
  result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
  result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
}

template <typename Index>
static void k1_abs_neg_exp_strided_launch(
    const void* x, const void* scale, const void* shift, void* result0, void* result1,
    int64_t x_stride0, int64_t x_stride1, int64_t scale_stride0, int64_t shift_stride0,
    int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_abs_neg_exp_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(scale),
      static_cast<const float*>(shift), static_cast<float*>(result0), static_cast<float*>(result1),
      Index(x_stride0), Index(x_stride1), Index(scale_stride0), Index(shift_stride0),
      Index(result0_stride0), Index(result0_stride1), Index(result1_stride0),
      Index(result1_stride1), Index(num_elems));
}

extern "C" int k1_abs_neg_exp_strided(
    const void* x, const void* scale, const void* shift, void* result0, void* result1, int64_t s0,
    int64_t x_stride0, int64_t x_stride1, int64_t scale_stride0, int64_t shift_stride0,
    int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_abs_neg_exp_strided_launch<uint32_t>
      : k1_abs_neg_exp_strided_launch<uint64_t>;
  launch(
      x, scale, shift, result0, result1, x_stride0, x_stride1, scale_stride0, shift_stride0,
      result0_stride0, result0_stride1, result1_stride0, result1_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
