// k1_linear_gelu: a matrix product with the operation after it: about 4.2 us, the library and a
//   kernel for the rest 10.8 us; small enough for the CUDA cores, which split nothing.
// x f32[s0, 64], fc_weight f32[64, 64] -> result f32[s0, 64]

OPWELD_FN float k1_linear_gelu_element(float product_1) {
  // model.py:11 return F.gelu(self.fc(x))
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
    op::FmaTiles<float, 32, 320>,
    op::FmaTiles<float>>;

extern "C" int k1_linear_gelu_contract(
    const void* product, void* result, int64_t s0, int64_t max_offset, int aligned, void* workspace,
    void* held, int changed, void* stream) {
  const k1_linear_gelu_epilogue epilogue{static_cast<float*>(result)};
  return op::contract<k1_linear_gelu_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
