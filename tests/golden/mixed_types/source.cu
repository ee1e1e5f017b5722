// k1_exp_where_logical_not: 5 operations over one iteration space, 3 results: intermediates stay
//   in registers.
// x f16[s0, 64], mask bool[s0, 64] -> result0 f32[s0, 64], result1 f16[s0, 64],
//   result2 bool[s0, 64]

OPWELD_FN void k1_exp_where_logical_not_element(
    bool mask_1, float x_1, float& result0, float& result1, bool& result2) {
  // model.py:11 y = torch.where(mask, x.float().exp(), -1.0)
  const float cast_1 = x_1;
  const float exp_1 = op::exp(cast_1);
  const float where_1 = mask_1 ? exp_1 : -1.0f;
  // model.py:12 return y, y.half(), ~mask
  const float cast_2 = op::to_compute(op::from_compute<op::half>(where_1));
  const bool logical_not_1 = !mask_1;
  result0 = where_1;
  result1 = cast_2;
  result2 = logical_not_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_exp_where_logical_not_contiguous_packet(
    const op::half* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ result0,
    op::half* __restrict__ result1, bool* __restrict__ result2, Index at) {
  const auto mask_1_vector = op::load_vector<kLanes>(mask + at);
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  op::Vector<float, kLanes> result0_vector;
  op::Vector<op::half, kLanes> result1_vector;
  op::Vector<bool, kLanes> result2_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    float value1;
    bool value2;
    k1_exp_where_logical_not_element(
        mask_1_vector.lane[lane], op::to_compute(x_1_vector.lane[lane]), value0, value1, value2);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = op::from_compute<op::half>(value1);
    result2_vector.lane[lane] = value2;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
  op::store_vector(result2 + at, result2_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_exp_where_logical_not_contiguous_kernel(
    const op::half* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ result0,
    op::half* __restrict__ result1, bool* __restrict__ result2, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_exp_where_logical_not_contiguous_packet<kLanes>(x, mask, result0, result1, result2, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_exp_where_logical_not_contiguous_packet<1>(x, mask, result0, result1, result2, at);
  }
}

template <int kLanes, typename Index>
static void k1_exp_where_logical_not_contiguous_launch(
    const void* x, const void* mask, void* result0, void* result1, void* result2, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_where_logical_not_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const op::half*>(x), static_cast<const bool*>(mask), static_cast<float*>(result0),
      static_cast<op::half*>(result1), static_cast<bool*>(result2), Index(num_elems));
}

extern "C" int k1_exp_where_logical_not_contiguous(
    const void* x, const void* mask, void* result0, void* result1, void* result2, int64_t s0,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_where_logical_not_contiguous_launch<1, uint32_t>
      : k1_exp_where_logical_not_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_exp_where_logical_not_contiguous_launch<4, uint32_t>
      : k1_exp_where_logical_not_contiguous_launch<4, uint64_t>;
  launch(x, mask, result0, result1, result2, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_exp_where_logical_not_strided_kernel(
    const op::half* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ result0,
    op::half* __restrict__ result1, bool* __restrict__ result2, Index x_stride0, Index x_stride1,
    Index mask_stride0, Index mask_stride1, Index result0_stride0, Index result0_stride1,
    Index result1_stride0, Index result1_stride1, Index result2_stride0, Index result2_stride1,
    Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 64u;
  const Index i0 = at / 64u;
  const bool mask_1 = mask[i0 * mask_stride0 + i1 * mask_stride1];
  const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
  float value0;
  float value1;
  bool value2;
  k1_exp_where_logical_not_element(mask_1, x_1, value0, value1, value2);
  result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
  result1[i0 * result1_stride0 + i1 * result1_stride1] = op::from_compute<op::half>(value1);
  result2[i0 * result2_stride0 + i1 * result2_stride1] = value2;
}

template <typename Index>
static void k1_exp_where_logical_not_strided_launch(
    const void* x, const void* mask, void* result0, void* result1, void* result2, int64_t x_stride0,
    int64_t x_stride1, int64_t mask_stride0, int64_t mask_stride1, int64_t result0_stride0,
    int64_t result0_stride1, int64_t result1_stride0, int64_t result1_stride1,
    int64_t result2_stride0, int64_t result2_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_exp_where_logical_not_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const op::half*>(x), static_cast<const bool*>(mask), static_cast<float*>(result0),
      static_cast<op::half*>(result1), static_cast<bool*>(result2), Index(x_stride0),
      Index(x_stride1), Index(mask_stride0), Index(mask_stride1), Index(result0_stride0),
      Index(result0_stride1), Index(result1_stride0), Index(result1_stride1),
      Index(result2_stride0), Index(result2_stride1), Index(num_elems));
}

extern "C" int k1_exp_where_logical_not_strided(
    const void* x, const void* mask, void* result0, void* result1, void* result2, int64_t s0,
    int64_t x_stride0, int64_t x_stride1, int64_t mask_stride0, int64_t mask_stride1,
    int64_t result0_stride0, int64_t result0_stride1, int64_t result1_stride0,
    int64_t result1_stride1, int64_t result2_stride0, int64_t result2_stride1, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_exp_where_logical_not_strided_launch<uint32_t>
      : k1_exp_where_logical_not_strided_launch<uint64_t>;
  launch(
      x, mask, result0, result1, result2, x_stride0, x_stride1, mask_stride0, mask_stride1,
      result0_stride0, result0_stride1, result1_stride0, result1_stride1, result2_stride0,
      result2_stride1, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
