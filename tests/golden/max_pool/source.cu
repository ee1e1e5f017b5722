// k1_relu_amax_mul: 5 operations on rows of 9 elements in one pass.
// x f32[s0, 16, 32, 32], bias f32[16, 1, 1] -> result f32[s0, 16, 16, 16]

OPWELD_FN float k1_relu_amax_mul_pass0(bool inside_1, float x_1, float bias_1) {
  // model.py:11 return F.max_pool2d(torch.relu(x + self.bias), 3, 2, 1) * 0.5
  const float add_1 = x_1 + bias_1;
  const float relu_1 = op::relu(add_1);
  const float where_1 = inside_1 ? relu_1 : -op::kInfinity<float>;
  return where_1;
}

OPWELD_FN float k1_relu_amax_mul_once0(float amax_1) {
  // model.py:11 return F.max_pool2d(torch.relu(x + self.bias), 3, 2, 1) * 0.5
  const float mul_1 = amax_1 * 0.5f;
  return mul_1;
}

// What is known of a row after its passes.
struct k1_relu_amax_mul_known {
  float amax_1;
};

// What pass 0 folds.
struct k1_relu_amax_mul_folds0 {
  static constexpr int kChain = 16;
  float amax_1;

  OPWELD_FN k1_relu_amax_mul_folds0 nothing() {
    return {op::Amax::identity<float>()};
  }
  __device__ __forceinline__ void add(float value0) {
    amax_1 = op::Amax::combine(amax_1, value0);
  }
  __device__ __forceinline__ void merge(const k1_relu_amax_mul_folds0& other) {
    amax_1 = op::Amax::combine(amax_1, other.amax_1);
  }
  __device__ __forceinline__ void tell(k1_relu_amax_mul_known& row) const {
    row.amax_1 = amax_1;
  }
};

template <int kLanes, typename Index>
__global__ void __launch_bounds__(256, op::kLeastBlocks<256, Index>)
k1_relu_amax_mul_contiguous_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ result,
    Index num_threads) {
  const Index thread = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (thread >= num_threads) return;
  constexpr Index blocks_i2 = (16u + kLanes - 1) / kLanes;
  const Index i3 = thread % 16u;
  const Index above_i3 = thread / 16u;
  const Index block_i2 = above_i3 % blocks_i2;
  const Index above_block_i2 = above_i3 / blocks_i2;
  const Index i1 = above_block_i2 % 16u;
  const Index i0 = above_block_i2 / 16u;
  const Index first_i2 = block_i2 * kLanes;
  k1_relu_amax_mul_folds0 of_lane[kLanes];
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    of_lane[lane] = k1_relu_amax_mul_folds0::nothing();
  }
#pragma unroll
  for (int r0 = 0; r0 < 3 + 2 * (kLanes - 1); ++r0) {
    k1_relu_amax_mul_folds0 part = k1_relu_amax_mul_folds0::nothing();
#pragma unroll
    for (int r1 = 0; r1 < 3; ++r1) {
      const Index i2 = first_i2;
      const bool inside_1 = i2 * 2u + r0 - 1u < 32u && i3 * 2u + r1 - 1u < 32u;
      const float x_1 = inside_1
          ? (x + (i0 * 16384u + i1 * 1024u + i2 * 64u + i3 * 2u))[r0 * 32 + r1 - 33] : 0.0f;
      const float bias_1 = bias[i1];
      const float value0 = k1_relu_amax_mul_pass0(inside_1, x_1, bias_1);
      part.add(value0);
    }
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      const int place_r0 = r0 - 2 * lane;
      if (0 <= place_r0 && place_r0 < 3) of_lane[lane].merge(part);
    }
  }
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const Index i2 = first_i2 + lane;
    k1_relu_amax_mul_known known;
    of_lane[lane].tell(known);
    const float value0 = k1_relu_amax_mul_once0(known.amax_1);
    result[i0 * 4096u + i1 * 256u + i2 * 16u + i3] = value0;
  }
}

template <int kLanes, typename Index>
static void k1_relu_amax_mul_contiguous_launch(
    const void* x, const void* bias, void* result, int64_t num_rows, cudaStream_t stream) {
  constexpr int64_t kRows = 256;
  const int64_t num_threads = num_rows / 16u * ((16u + kLanes - 1) / kLanes);
  const unsigned int blocks = (num_threads + kRows - 1) / kRows;
  const auto kernel = k1_relu_amax_mul_contiguous_kernel<kLanes, Index>;
  kernel<<<blocks, 256, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(bias), static_cast<float*>(result),
      Index(num_threads));
}

static int k1_relu_amax_mul_contiguous(
    const void* x, const void* bias, void* result, int64_t s0, int64_t num_rows, int64_t length,
    int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_relu_amax_mul_contiguous_launch<1, uint32_t>
      : k1_relu_amax_mul_contiguous_launch<1, uint64_t>;
  if (num_rows >= 4096ll * op::num_multiprocessors()) {
    launch = narrow ? k1_relu_amax_mul_contiguous_launch<4, uint32_t>
        : k1_relu_amax_mul_contiguous_launch<4, uint64_t>;
  }
  launch(x, bias, result, num_rows, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

template <typename Index>
__global__ void __launch_bounds__(256, op::kLeastBlocks<256, Index>)
k1_relu_amax_mul_strided_kernel(
    const float* __restrict__ x, const float* __restrict__ bias, float* __restrict__ result,
    Index x_stride0, Index x_stride1, Index x_stride2, Index x_stride3, Index bias_stride0,
    Index result_stride0, Index result_stride1, Index result_stride2, Index result_stride3,
    Index num_rows) {
  const Index row = Index(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= num_rows) return;
  const Index i5 = row % 16u;
  const Index above_i5 = row / 16u;
  const Index i4 = above_i5 % 16u;
  const Index above_i4 = above_i5 / 16u;
  const Index i3 = above_i4 % 16u;
  const Index i2 = above_i4 / 16u;
  k1_relu_amax_mul_folds0 folds = k1_relu_amax_mul_folds0::nothing();
#pragma unroll
  for (int r0 = 0; r0 < 3; ++r0) {
#pragma unroll
    for (int r1 = 0; r1 < 3; ++r1) {
      const bool inside_1 = i4 * 2u + r0 - 1u < 32u && i5 * 2u + r1 - 1u < 32u;
      const float x_1 = inside_1 ? x[i2 * x_stride0 + i3 * x_stride1 + i4 * x_stride2 * 2u
          + i5 * x_stride3 * 2u + r0 * x_stride2 + r1 * x_stride3 - x_stride2 - x_stride3] : 0.0f;
      const float bias_1 = bias[bias_stride0 * i3];
      const float value0 = k1_relu_amax_mul_pass0(inside_1, x_1, bias_1);
      folds.add(value0);
    }
  }
  k1_relu_amax_mul_known known;
  folds.tell(known);
  const float value0 = k1_relu_amax_mul_once0(known.amax_1);
  result[i2 * result_stride0 + i3 * result_stride1 + i4 * result_stride2
      + i5 * result_stride3] = value0;
}

template <typename Index>
static void k1_relu_amax_mul_strided_launch(
    const void* x, const void* bias, void* result, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t x_stride3, int64_t bias_stride0, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t result_stride3, int64_t num_rows,
    cudaStream_t stream) {
  constexpr int64_t kRows = 256;
  const unsigned int blocks = (num_rows + kRows - 1) / kRows;
  const auto kernel = k1_relu_amax_mul_strided_kernel<Index>;
  kernel<<<blocks, 256, 0, stream>>>(
      static_cast<const float*>(x), static_cast<const float*>(bias), static_cast<float*>(result),
      Index(x_stride0), Index(x_stride1), Index(x_stride2), Index(x_stride3), Index(bias_stride0),
      Index(result_stride0), Index(result_stride1), Index(result_stride2), Index(result_stride3),
      Index(num_rows));
}

static int k1_relu_amax_mul_strided(
    const void* x, const void* bias, void* result, int64_t s0, int64_t x_stride0, int64_t x_stride1,
    int64_t x_stride2, int64_t x_stride3, int64_t bias_stride0, int64_t result_stride0,
    int64_t result_stride1, int64_t result_stride2, int64_t result_stride3, int64_t num_rows,
    int64_t length, int64_t max_offset, int aligned, void* stream) {
  // 32-bit positions must not wrap round behind the last element.
  const bool narrow = num_rows < (1ll << 31) && max_offset < (1ll << 31);
  auto launch = narrow ? k1_relu_amax_mul_strided_launch<uint32_t>
      : k1_relu_amax_mul_strided_launch<uint64_t>;
  launch(
      x, bias, result, x_stride0, x_stride1, x_stride2, x_stride3, bias_stride0, result_stride0,
      result_stride1, result_stride2, result_stride3, num_rows, static_cast<cudaStream_t>(stream));
  return int(cudaGetLastError());
}

extern "C" int k1_relu_amax_mul_launch(const TensorView* operands, void* stream) {
  const TensorView &x = operands[0], &bias = operands[1], &result = operands[2];
  const int64_t s0 = x.sizes[0];
  const op::Operands call(operands, {{op::type_of<float>, {s0, 16, 32, 32}},
                                     {op::type_of<float>, {16, 1, 1}},
                                     {op::type_of<float>, {s0, 16, 16, 16}}});
  const int64_t num_rows = s0 * 4096;
  const int64_t length = 9;
  if (call.misfit || num_rows == 0) return call.misfit;
  if (call.contiguous) {
    return k1_relu_amax_mul_contiguous(
      x.data, bias.data, result.data, s0, num_rows, length, call.reach, call.aligned, stream);
  }
  return k1_relu_amax_mul_strided(
      x.data, bias.data, result.data, s0, x.strides[0], x.strides[1], x.strides[2], x.strides[3],
      bias.strides[0], result.strides[0], result.strides[1], result.strides[2], result.strides[3],
      num_rows, length, call.reach, call.aligned, stream);
}
