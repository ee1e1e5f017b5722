// k1_mul_sigmoid_gt: 5 operations over one iteration space, 2 results: intermediates stay in
//   registers.
// x f32[s0, 24], norm_weight f32[24], column f32[s0, 1], factor f32[] -> result0 f32[s0, 24],
//   result1 bool[s0, 24]

OPWELD_FN void k1_mul_sigmoid_gt_element(
    float x_1, float norm_weight_1, float column_1, float factor_1, float& result0, bool& result1) {
  // model.py:11 y = (x + self.norm.weight) * column * self.factor
  const float add_1 = x_1 + norm_weight_1;
  const float mul_1 = add_1 * column_1;
  const float mul_2 = mul_1 * factor_1;
  // model.py:12 return torch.sigmoid(y), y > 0
  const float sigmoid_1 = op::sigmoid(mul_2);
  const bool gt_1 = mul_2 > 0.0f;
  result0 = sigmoid_1;
  result1 = gt_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_sigmoid_gt_contiguous_packet(
    const float* __restrict__ x, const float* __restrict__ norm_weight,
    const float* __restrict__ column, const float* __restrict__ factor, float* __restrict__ result0,
    bool* __restrict__ result1, Index at) {
  const Index i1 = at % 24u;
  const Index i0 = at / 24u;
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const auto norm_weight_1_vector = op::load_vector<kLanes>(&norm_weight[i1]);
  const float column_1 = column[i0];
  const float factor_1 = factor[0u];
  op::Vector<float, kLanes> result0_vector;
  op::Vector<bool, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    bool value1;
    k1_mul_sigmoid_gt_element(
        x_1_vector.lane[lane], norm_weight_1_vector.lane[lane], column_1, factor_1, value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_mul_sigmoid_gt_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ norm_weight,
    const float* __restrict__ column, const float* __restrict__ factor, float* __restrict__ result0,
    bool* __restrict__ result1, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_mul_sigmoid_gt_contiguous_packet<kLanes>(
        x, norm_weight, column, factor, result0, result1, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_mul_sigmoid_gt_contiguous_packet<1>(x, norm_weight, column, factor, result0, result1, at);
  }
}

template <int kLanes, typename Index>
static void k1_mul_sigmoid_gt_contiguous_launch(
    const void* x, const void* norm_weight, const void* column, const void* factor, void* result0,
    void* result1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_sigmoid_gt_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(norm_weight),
      static_cast<const float*>(column), static_cast<const float*>(factor),
      static_cast<float*>(result0), static_cast<bool*>(result1), Index(num_elems));
}

extern "C" int k1_mul_sigmoid_gt_contiguous(
    const void* x, const void* norm_weight, const void* column, const void* factor, void* result0,
    void* result1, int64_t s0, int64_t num_elems, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_sigmoid_gt_contiguous_launch<1, uint32_t>
      : k1_mul_sigmoid_gt_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_mul_sigmoid_gt_contiguous_launch<4, uint32_t>
      : k1_mul_sigmoid_gt_contiguous_launch<4, uint64_t>;
  launch(
      x, norm_weight, column, factor, result0, result1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_mul_sigmoid_gt_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ norm_weight,
    const float* __restrict__ column, const float* __restrict__ factor, float* __restrict__ result0,
    bool* __restrict__ result1, Index x_stride0, Index x_stride1, Index norm_weight_stride0,
    Index column_stride0, Index result0_stride0, Index result0_stride1, Index result1_stride0,
    Index result1_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 24u;
  const Index i0 = at / 24u;
  const float x_1 = x[i0 * x_stride0 + i1 * x_stride1];
  const float norm_weight_1 = norm_weight[i1 * norm_weight_stride0];
  const float column_1 = column[column_stride0 * i0];
  const float factor_1 = factor[0u];
  float value0;
  bool value1;
  k1_mul_sigmoid_gt_element(x_1, norm_weight_1, column_1, factor_1, value0, value1);
  result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
  result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
}

template <typename Index>
static void k1_mul_sigmoid_gt_strided_launch(
    const void* x, const void* norm_weight, const void* column, const void* factor, void* result0,
    void* result1, int64_t x_stride0, int64_t x_stride1, int64_t norm_weight_stride0,
    int64_t column_stride0, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_sigmoid_gt_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(norm_weight),
      static_cast<const float*>(column), static_cast<const float*>(factor),
      static_cast<float*>(result0), static_cast<bool*>(result1), Index(x_stride0), Index(x_stride1),
      Index(norm_weight_stride0), Index(column_stride0), Index(result0_stride0),
      Index(result0_stride1), Index(result1_stride0), Index(result1_stride1), Index(num_elems));
}

extern "C" int k1_mul_sigmoid_gt_strided(
    const void* x, const void* norm_weight, const void* column, const void* factor, void* result0,
    void* result1, int64_t s0, int64_t x_stride0, int64_t x_stride1, int64_t norm_weight_stride0,
    int64_t column_stride0, int64_t result0_stride0, int64_t result0_stride1,
    int64_t result1_stride0, int64_t result1_stride1, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_sigmoid_gt_strided_launch<uint32_t>
      : k1_mul_sigmoid_gt_strided_launch<uint64_t>;
  launch(
      x, norm_weight, column, factor, result0, result1, x_stride0, x_stride1, norm_weight_stride0,
      column_stride0, result0_stride0, result0_stride1, result1_stride0, result1_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
