// k1_linear_sigmoid_mul_add: a matrix product with the 3 operations after it: about 658 us, the
//   library and a kernel for the rest 2721 us; 268.4 MB are kept of the weight, split again only
//   where it changed.
// x f32[s0, 8192], project_weight f32[8192, 8192], project_bias f32[8192] -> result f32[s0, 8192]

OPWELD_FN float k1_linear_sigmoid_mul_add_element(float product_1, float project_bias_1) {
  // linear_sigmoid.py:17 y = self.project(x)
  const float add_1 = product_1 + project_bias_1;
  // linear_sigmoid.py:18 gate = torch.sigmoid(y) * self.scale
  const float sigmoid_1 = op::sigmoid(add_1);
  const float mul_1 = sigmoid_1 * 2.0f;
  // linear_sigmoid.py:19 return gate + y
  const float add_2 = mul_1 + add_1;
  return add_2;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_linear_sigmoid_mul_add_epilogue_packet(
    const float* __restrict__ project_bias, float* __restrict__ result, Index at,
    const float (&product)[kLanes]) {
  const Index i1 = at % 8192u;
  const auto project_bias_1_vector = op::load_vector<kLanes>(&project_bias[i1]);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_linear_sigmoid_mul_add_element(
        product[lane], project_bias_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_linear_sigmoid_mul_add_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const float* project_bias;
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_linear_sigmoid_mul_add_epilogue_packet<kCount>(project_bias, result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k1_linear_sigmoid_mul_add_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_linear_sigmoid_mul_add_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_linear_sigmoid_mul_add_forms>(product, held);
}

extern "C" int64_t k1_linear_sigmoid_mul_add_held(const void* product) {
  return op::held_bytes<k1_linear_sigmoid_mul_add_forms>(product);
}

extern "C" int k1_linear_sigmoid_mul_add_contract(
    const void* product, const void* project_bias, void* result, int64_t s0, int64_t max_offset,
    int aligned, void* workspace, void* held, int changed, void* stream) {
  const k1_linear_sigmoid_mul_add_epilogue epilogue{
      static_cast<const float*>(project_bias),
      static_cast<float*>(result),
  };
  return op::contract<k1_linear_sigmoid_mul_add_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
