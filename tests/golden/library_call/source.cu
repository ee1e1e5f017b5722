// k1_linear_gelu: a matrix product with the operation after it: about 4.2 us, the library and a
//   kernel for the rest 10.8 us; so small that the CUDA cores are as fast, which split nothing.
// x f32[s0, 64], first_weight f32[64, 64] -> result f32[s0, 64]

OPWELD_FN float k1_linear_gelu_element(float product_1) {
  // model.py:11 h = F.gelu(self.first(x))
  const float gelu_1 = op::gelu(product_1);
  return gelu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_linear_gelu_epilogue_packet(
    float* __restrict__ result, Index at, const float (&product)[kLanes]) {
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_linear_gelu_element(product[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_linear_gelu_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_linear_gelu_epilogue_packet<kCount>(result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   multiply-adds: up to 320 squares of 32 rows and columns
//   multiply-adds: all others
using k1_linear_gelu_forms = op::Forms<
    op::FmaTiles<float, 32>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_linear_gelu_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_linear_gelu_forms>(product, held);
}

extern "C" int64_t k1_linear_gelu_held(const void* product) {
  return op::held_bytes<k1_linear_gelu_forms>(product);
}

extern "C" int k1_linear_gelu_contract(
    const void* product, void* result, int64_t s0, int64_t max_offset, int aligned, void* workspace,
    void* held, int changed, void* stream) {
  const k1_linear_gelu_epilogue epilogue{static_cast<float*>(result)};
  return op::contract<k1_linear_gelu_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}

// k2_linear_tanh_add: a matrix product with the 2 operations after it: about 4.2 us, the library
//   and a kernel for the rest 10.8 us; so small that the CUDA cores are as fast, which split
//   nothing.
// gelu_out f32[s0, 64], second_weight f32[64, 64], x f32[s0, 64] -> result f32[s0, 64]

OPWELD_FN float k2_linear_tanh_add_element(float x_1, float product_1) {
  // model.py:12 return x + torch.tanh(self.second(h))
  const float tanh_1 = op::tanh(product_1);
  const float add_1 = x_1 + tanh_1;
  return add_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_linear_tanh_add_epilogue_packet(
    const float* __restrict__ x, float* __restrict__ result, Index at,
    const float (&product)[kLanes]) {
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k2_linear_tanh_add_element(x_1_vector.lane[lane], product[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k2_linear_tanh_add_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const float* x;
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k2_linear_tanh_add_epilogue_packet<kCount>(x, result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   multiply-adds: up to 320 squares of 32 rows and columns
//   multiply-adds: all others
using k2_linear_tanh_add_forms = op::Forms<
    op::FmaTiles<float, 32>,
    op::FmaTiles<float>>;

extern "C" int64_t k2_linear_tanh_add_workspace(const void* product, int held) {
  return op::workspace_bytes<k2_linear_tanh_add_forms>(product, held);
}

extern "C" int64_t k2_linear_tanh_add_held(const void* product) {
  return op::held_bytes<k2_linear_tanh_add_forms>(product);
}

extern "C" int k2_linear_tanh_add_contract(
    const void* product, const void* x, void* result, int64_t s0, int64_t max_offset, int aligned,
    void* workspace, void* held, int changed, void* stream) {
  const k2_linear_tanh_add_epilogue epilogue{
      static_cast<const float*>(x),
      static_cast<float*>(result),
  };
  return op::contract<k2_linear_tanh_add_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
