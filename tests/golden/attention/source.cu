// k1_attention_relu: attention as one kernel with the operation after it: 393.2 MB of scores stay
//   on the chip.
// query f32[s0, 8, 100, 64], key f32[s0, 120, 8, 64], value_1 f32[s0, 8, 120, 48],
//   mask f32[s0, 1, 1, 120] -> result f32[s0, 8, 100, 48]

OPWELD_FN float k1_attention_relu_score(float product_1, float mask_1) {
  // model.py:12 weights = torch.softmax(scores * 0.125 + mask, dim=-1)
  const float mul_1 = product_1 * 0.125f;
  const float add_1 = mul_1 + mask_1;
  return add_1;
}

// Where the operands of attention lie, and what a score is.
struct k1_attention_relu_problem {
  using Index = uint64_t;
  static constexpr int kDepth = 64, kColumns = 48;
  static constexpr bool kCausal = false, kZeros = false, kPlain = false, kHolds = true;
  static constexpr float kFactor = 1.0f;
  const float* query;
  const float* key;
  const float* value_1;
  const float* mask;
  uint64_t s0;
  uint64_t query_stride0;
  uint64_t query_stride1;
  uint64_t query_stride2;
  uint64_t query_stride3;
  uint64_t key_stride0;
  uint64_t key_stride1;
  uint64_t key_stride2;
  uint64_t key_stride3;
  uint64_t value_1_stride0;
  uint64_t value_1_stride1;
  uint64_t value_1_stride2;
  uint64_t value_1_stride3;
  uint64_t mask_stride0;
  uint64_t mask_stride3;

  __device__ __forceinline__ op::AttendLines query_lines(Index at_batch) const {
    const Index i1 = at_batch % 8u;
    const Index i0 = at_batch / 8u;
    const Index begin = i0 * query_stride0 + i1 * query_stride1;
    const int64_t row = query_stride2, stride = query_stride3;
    return {query + begin, row, stride};
  }
  __device__ __forceinline__ op::AttendLines key_lines(Index at_batch) const {
    const Index i1 = at_batch % 8u;
    const Index i0 = at_batch / 8u;
    const Index begin = i0 * key_stride0 + i1 * key_stride2;
    const int64_t row = key_stride1, stride = key_stride3;
    return {key + begin, row, stride};
  }
  __device__ __forceinline__ op::AttendLines value_lines(Index at_batch) const {
    const Index i1 = at_batch % 8u;
    const Index i0 = at_batch / 8u;
    const Index begin = i0 * value_1_stride0 + i1 * value_1_stride1;
    const int64_t row = value_1_stride2, stride = value_1_stride3;
    return {value_1 + begin, row, stride};
  }
  __device__ __forceinline__ int64_t shared_of(Index at_batch) const {
    return at_batch;
  }
  __device__ __forceinline__ int64_t place_of(Index at_batch) const {
    const Index i1 = at_batch % 8u;
    const Index i0 = at_batch / 8u;
    return i0 * 38400u + i1 * 4800u;
  }
  __device__ __forceinline__ float score_of(Index at_batch, Index i, Index r, float product) const {
    const Index i0 = at_batch / 8u;
    const float mask_1 = mask[i0 * mask_stride0 + mask_stride3 * r];
    const float value0 = k1_attention_relu_score(product, mask_1);
    return value0;
  }
};

OPWELD_FN float k1_attention_relu_element(float product_1) {
  // model.py:13 return torch.relu(torch.matmul(weights, value))
  const float relu_1 = op::relu(product_1);
  return relu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_attention_relu_epilogue_packet(
    float* __restrict__ result, Index at, const float (&product)[kLanes]) {
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_attention_relu_element(product[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_attention_relu_epilogue {
  static constexpr int kLanes = 2;  // the most neighbours at once
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_attention_relu_epilogue_packet<kCount>(result, at, product);
  }
};

extern "C" int64_t k1_attention_relu_workspace(
    int64_t num_batches, int64_t num_shared, int64_t num_rows, int64_t num_keys) {
  const op::AttendSizes sizes{num_batches, num_shared, num_rows, num_keys, 0};
  return op::attend_bytes<op::AttendTileSm90<k1_attention_relu_problem>>(sizes);
}

extern "C" int k1_attention_relu_attend(
    const void* query, const void* key, const void* value_1, const void* mask, void* result,
    int64_t s0, int64_t query_stride0, int64_t query_stride1, int64_t query_stride2,
    int64_t query_stride3, int64_t key_stride0, int64_t key_stride1, int64_t key_stride2,
    int64_t key_stride3, int64_t value_1_stride0, int64_t value_1_stride1, int64_t value_1_stride2,
    int64_t value_1_stride3, int64_t mask_stride0, int64_t mask_stride3, int64_t num_batches,
    int64_t num_shared, int64_t num_rows, int64_t num_keys, int64_t row_step, int64_t max_offset,
    int aligned, void* workspace, void* stream) {
  const k1_attention_relu_problem problem{
      static_cast<const float*>(query),
      static_cast<const float*>(key),
      static_cast<const float*>(value_1),
      static_cast<const float*>(mask),
      uint64_t(s0),
      uint64_t(query_stride0),
      uint64_t(query_stride1),
      uint64_t(query_stride2),
      uint64_t(query_stride3),
      uint64_t(key_stride0),
      uint64_t(key_stride1),
      uint64_t(key_stride2),
      uint64_t(key_stride3),
      uint64_t(value_1_stride0),
      uint64_t(value_1_stride1),
      uint64_t(value_1_stride2),
      uint64_t(value_1_stride3),
      uint64_t(mask_stride0),
      uint64_t(mask_stride3),
  };
  const op::AttendSizes sizes{num_batches, num_shared, num_rows, num_keys, row_step};
  const k1_attention_relu_epilogue epilogue{static_cast<float*>(result)};
  // 32-bit positions must not wrap round.
  const bool narrow = num_batches * num_rows * row_step < (1ll << 31) &&
                      max_offset < (1ll << 31);
  return op::attend_sm90(problem, sizes, workspace, epilogue, narrow,
      aligned, stream);
}
