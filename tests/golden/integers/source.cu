// k1_mul_bitwise_xor_maximum: 3 operations over one iteration space, 2 results: intermediates
//   stay in registers.
// x i64[s0, 11], y i64[s0, 11] -> result0 i64[s0, 11], result1 i64[s0, 11]

OPWELD_FN void k1_mul_bitwise_xor_maximum_element(
    int64_t x_1, int64_t y_1, int64_t& result0, int64_t& result1) {
  // model.py:11 return (x * y) ^ -7, torch.maximum(x, y), small + small
  const int64_t mul_1 = x_1 * y_1;
  const int64_t bitwise_xor_1 = mul_1 ^ int64_t(-7ll);
  const int64_t maximum_1 = op::maximum(x_1, y_1);
  result0 = bitwise_xor_1;
  result1 = maximum_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_mul_bitwise_xor_maximum_contiguous_packet(
    const int64_t* __restrict__ x, const int64_t* __restrict__ y, int64_t* __restrict__ result0,
    int64_t* __restrict__ result1, Index at) {
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const auto y_1_vector = op::load_vector<kLanes>(y + at);
  op::Vector<int64_t, kLanes> result0_vector;
  op::Vector<int64_t, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    int64_t value0;
    int64_t value1;
    k1_mul_bitwise_xor_maximum_element(
        x_1_vector.lane[lane], y_1_vector.lane[lane], value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k1_mul_bitwise_xor_maximum_contiguous_kernel(
    const int64_t* __restrict__ x, const int64_t* __restrict__ y, int64_t* __restrict__ result0,
    int64_t* __restrict__ result1, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k1_mul_bitwise_xor_maximum_contiguous_packet<kLanes>(x, y, result0, result1, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k1_mul_bitwise_xor_maximum_contiguous_packet<1>(x, y, result0, result1, at);
  }
}

template <int kLanes, typename Index>
static void k1_mul_bitwise_xor_maximum_contiguous_launch(
    const void* x, const void* y, void* result0, void* result1, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_bitwise_xor_maximum_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const int64_t*>(x), static_cast<const int64_t*>(y),
      static_cast<int64_t*>(result0), static_cast<int64_t*>(result1), Index(num_elems));
}

extern "C" int k1_mul_bitwise_xor_maximum_contiguous(
    const void* x, const void* y, void* result0, void* result1, int64_t s0, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_bitwise_xor_maximum_contiguous_launch<1, uint32_t>
      : k1_mul_bitwise_xor_maximum_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k1_mul_bitwise_xor_maximum_contiguous_launch<2, uint32_t>
      : k1_mul_bitwise_xor_maximum_contiguous_launch<2, uint64_t>;
  launch(x, y, result0, result1, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k1_mul_bitwise_xor_maximum_strided_kernel(
    const int64_t* __restrict__ x, const int64_t* __restrict__ y, int64_t* __restrict__ result0,
    int64_t* __restrict__ result1, Index x_stride0, Index x_stride1, Index y_stride0,
    Index y_stride1, Index result0_stride0, Index result0_stride1, Index result1_stride0,
    Index result1_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 11u;
  const Index i0 = at / 11u;
  const int64_t x_1 = x[i0 * x_stride0 + i1 * x_stride1];
  const int64_t y_1 = y[i0 * y_stride0 + i1 * y_stride1];
  int64_t value0;
  int64_t value1;
  k1_mul_bitwise_xor_maximum_element(x_1, y_1, value0, value1);
  result0[i0 * result0_stride0 + i1 * result0_stride1] = value0;
  result1[i0 * result1_stride0 + i1 * result1_stride1] = value1;
}

template <typename Index>
static void k1_mul_bitwise_xor_maximum_strided_launch(
    const void* x, const void* y, void* result0, void* result1, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t result0_stride0,
    int64_t result0_stride1, int64_t result1_stride0, int64_t result1_stride1, int64_t num_elems,
    cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k1_mul_bitwise_xor_maximum_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const int64_t*>(x), static_cast<const int64_t*>(y),
      static_cast<int64_t*>(result0), static_cast<int64_t*>(result1), Index(x_stride0),
      Index(x_stride1), Index(y_stride0), Index(y_stride1), Index(result0_stride0),
      Index(result0_stride1), Index(result1_stride0), Index(result1_stride1), Index(num_elems));
}

extern "C" int k1_mul_bitwise_xor_maximum_strided(
    const void* x, const void* y, void* result0, void* result1, int64_t s0, int64_t x_stride0,
    int64_t x_stride1, int64_t y_stride0, int64_t y_stride1, int64_t result0_stride0,
    int64_t result0_stride1, int64_t result1_stride0, int64_t result1_stride1, int64_t num_elems,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_mul_bitwise_xor_maximum_strided_launch<uint32_t>
      : k1_mul_bitwise_xor_maximum_strided_launch<uint64_t>;
  launch(
      x, y, result0, result1, x_stride0, x_stride1, y_stride0, y_stride1, result0_stride0,
      result0_stride1, result1_stride0, result1_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

// k2_add: one operation, one read and one write of memory.
// small u8[s0, 11] -> result u8[s0, 11]

OPWELD_FN uint8_t k2_add_element(uint8_t small_1) {
  // model.py:11 return (x * y) ^ -7, torch.maximum(x, y), small + small
  const uint8_t add_1 = uint8_t(small_1 + small_1);
  return add_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_add_contiguous_packet(
    const uint8_t* __restrict__ small, uint8_t* __restrict__ result, Index at) {
  const auto small_1_vector = op::load_vector<kLanes>(small + at);
  op::Vector<uint8_t, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint8_t value0 = k2_add_element(small_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

template <int kLanes, typename Index>
__global__ void __launch_bounds__(128) k2_add_contiguous_kernel(
    const uint8_t* __restrict__ small, uint8_t* __restrict__ result, Index num_elems) {
  const Index first = Index(blockIdx.x) * (128 * kLanes);
  const Index begin = first + Index(threadIdx.x) * kLanes;
  if (num_elems - first >= 128 * kLanes) {  // all blocks but the last
    k2_add_contiguous_packet<kLanes>(small, result, begin);
    return;
  }
  for (Index at = begin; at < num_elems && at < begin + kLanes; ++at) {
    k2_add_contiguous_packet<1>(small, result, at);
  }
}

template <int kLanes, typename Index>
static void k2_add_contiguous_launch(
    const void* small, void* result, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128 * kLanes;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k2_add_contiguous_kernel<kLanes, Index><<<blocks, 128, 0, stream>>>(
      static_cast<const uint8_t*>(small), static_cast<uint8_t*>(result), Index(num_elems));
}

extern "C" int k2_add_contiguous(
    const void* small, void* result, int64_t s0, int64_t num_elems, int64_t max_offset, int aligned,
    void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k2_add_contiguous_launch<1, uint32_t>
      : k2_add_contiguous_launch<1, uint64_t>;
  if (aligned) launch = narrow ? k2_add_contiguous_launch<16, uint32_t>
      : k2_add_contiguous_launch<16, uint64_t>;
  launch(small, result, num_elems, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(128) k2_add_strided_kernel(
    const uint8_t* __restrict__ small, uint8_t* __restrict__ result, Index small_stride0,
    Index small_stride1, Index result_stride0, Index result_stride1, Index num_elems) {
  const Index at = Index(blockIdx.x) * 128 + threadIdx.x;
  if (at >= num_elems) return;
  const Index i1 = at % 11u;
  const Index i0 = at / 11u;
  const uint8_t small_1 = small[i0 * small_stride0 + i1 * small_stride1];
  const uint8_t value0 = k2_add_element(small_1);
  result[i0 * result_stride0 + i1 * result_stride1] = value0;
}

template <typename Index>
static void k2_add_strided_launch(
    const void* small, void* result, int64_t small_stride0, int64_t small_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, cudaStream_t stream) {
  constexpr int64_t kBlock = 128;
  const unsigned int blocks = (num_elems + kBlock - 1) / kBlock;
  k2_add_strided_kernel<Index><<<blocks, 128, 0, stream>>>(
      static_cast<const uint8_t*>(small), static_cast<uint8_t*>(result), Index(small_stride0),
      Index(small_stride1), Index(result_stride0), Index(result_stride1), Index(num_elems));
}

extern "C" int k2_add_strided(
    const void* small, void* result, int64_t s0, int64_t small_stride0, int64_t small_stride1,
    int64_t result_stride0, int64_t result_stride1, int64_t num_elems, int64_t max_offset,
    int aligned, void* stream) {
  // 32-bit positions must not wrap round in the last, partial block.
  const bool narrow = num_elems < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k2_add_strided_launch<uint32_t> : k2_add_strided_launch<uint64_t>;
  launch(
      small, result, small_stride0, small_stride1, result_stride0, result_stride1, num_elems,
      static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}
