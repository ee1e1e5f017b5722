// k1_add_silu_mul: 3 operations over one iteration space, one result: intermediates stay in
//   registers.
// x bf16[s0, 64], shift bf16[64] -> result bf16[s0, 64]

OPWELD_FN float k1_add_silu_mul_element(float x_1, float shift_1) {
  // model.py:11 return F.silu(x + shift) * 0.5
  const float add_1 = x_1 + shift_1;
  const float silu_1 = op::silu_approx(add_1);
  const float mul_1 = silu_1 * 0.5f;
  return mul_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_add_silu_mul_contiguous_packet(
    const op::bfloat16* __restrict__ x, const op::bfloat16* __restrict__ shift,
    op::bfloat16* __restrict__ result, Index at) {
  const Index i1 = at % 64u;
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const auto shift_1_vector = op::load_vector<kLanes>(&shift[i1]);
  op::Vector<op::bfloat16, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_add_silu_mul_element(
        op::to_compute(x_1_vector.lane[lane]), op::to_compute(shift_1_vector.lane[lane]));
    result_vector.lane[lane] = op::from_compute<op::bfloat16>(value0);
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_add_silu_mul_contiguous_kernel(
    const op::bfloat16* __restrict__ x, const op::bfloat16* __restrict__ shift,
    op::bfloat16* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_add_silu_mul_contiguous_packet<kLanes>(x, shift, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_add_silu_mul_contiguous_packet<1>(x, shift, result, at);
  }
}

template <int kLanes, typename Index>
static void k1_add_silu_mul_contiguous_launch(
    const void* x, const void* shift, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_add_silu_mul_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const op::bfloat16*>(x), static_cast<const op::bfloat16*>(shift),
      static_cast<op::bfloat16*>(result), Index(num_elems));
}

extern "C" int k1_add_silu_mul_contiguous(
    const void* x, const void* shift, void* result, int64_t s0, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_add_silu_mul_contiguous_launch<1, uint32_t>
      : k1_add_silu_mul_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_add_silu_mul_contiguous_launch<8, uint32_t>
      : k1_add_silu_mul_contiguous_launch<8, uint64_t>;
  launch(x, shift, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_add_silu_mul_strided_kernel(
    const op::bfloat16* __restrict__ x, const op::bfloat16* __restrict__ shift,
    op::bfloat16* __restrict__ result, Index x_stride0, Index x_stride1, Index shift_stride0,
    Index result_stride0, Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 64u;
  const Index i0 = at / 64u;
  const float x_1 = op::to_compute(x[i0 * x_stride0 + i1 * x_stride1]);
  const float shift_1 = op::to_compute(shift[i1 * shift_stride0]);
  const float value0 = k1_add_silu_mul_element(x_1, shift_1);
  result[i0 * result_stride0 + i1 * result_stride1] = op::from_compute<op::bfloat16>(value0);
}

template <typename Index>
static void k1_add_silu_mul_strided_launch(
    const void* x, const void* shift, void* result, int64_t x_stride0, int64_t x_stride1,
    int64_t shift_stride0, int64_t result_stride0, int64_t result_stride1, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_add_silu_mul_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const op::bfloat16*>(x), static_cast<const op::bfloat16*>(shift),
      static_cast<op::bfloat16*>(result), Index(x_stride0), Index(x_stride1), Index(shift_stride0),
      Index(result_stride0), Index(result_stride1), Index(num_elems));
}

extern "C" int k1_add_silu_mul_strided(
    const void* x, const void* shift, void* result, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t shift_stride0, int64_t result_stride0, int64_t result_stride1,
    int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_add_silu_mul_strided_launch<uint32_t>
      : k1_add_silu_mul_strided_launch<uint64_t>;
  launch(
      x, shift, result, x_stride0, x_stride1, shift_stride0, result_stride0, result_stride1,
      num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
