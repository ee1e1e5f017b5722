// k1_linear_relu_add_gt: a matrix product with the 3 operations after it: about 21.3 us, the
//   library and a kernel for the rest 21.7 us; 0.5 MB are kept of the weight, split again only
//   where it changed.
// x f32[s0, 64], fc_weight f32[2048, 64], fc_bias f32[2048], residual f32[s0, 2048] ->
//   result0 f32[s0, 2048], result1 bool[s0, 2048]

OPWELD_FN void k1_linear_relu_add_gt_element(
    float product_1, float fc_bias_1, float residual_1, float& result0, bool& result1) {
  // model.py:11 y = self.fc(x)
  const float add_1 = product_1 + fc_bias_1;
  // model.py:12 return F.relu(y) + residual, y > 0
  const float relu_1 = op::relu(add_1);
  const float add_2 = relu_1 + residual_1;
  const bool gt_1 = add_1 > 0.0f;
  result0 = add_2;
  result1 = gt_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_linear_relu_add_gt_epilogue_packet(
    const float* __restrict__ fc_bias, const float* __restrict__ residual,
    float* __restrict__ result0, bool* __restrict__ result1, Index at,
    const float (&product)[kLanes]) {
  const Index i1 = at % 2048u;
  const auto fc_bias_1_vector = op::load_vector<kLanes>(&fc_bias[i1]);
  const auto residual_1_vector = op::load_vector<kLanes>(residual + at);
  op::Vector<float, kLanes> result0_vector;
  op::Vector<bool, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    bool value1;
    k1_linear_relu_add_gt_element(
        product[lane], fc_bias_1_vector.lane[lane], residual_1_vector.lane[lane], value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_linear_relu_add_gt_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const float* fc_bias;
  const float* residual;
  float* result0;
  bool* result1;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_linear_relu_add_gt_epilogue_packet<kCount>(fc_bias, residual, result0, result1, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k1_linear_relu_add_gt_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_linear_relu_add_gt_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_linear_relu_add_gt_forms>(product, held);
}

extern "C" int64_t k1_linear_relu_add_gt_held(const void* product) {
  return op::held_bytes<k1_linear_relu_add_gt_forms>(product);
}

extern "C" int k1_linear_relu_add_gt_contract(
    const void* product, const void* fc_bias, const void* residual, void* result0, void* result1,
    int64_t s0, int64_t max_offset, int aligned, void* workspace, void* held, int changed,
    void* stream) {
  const k1_linear_relu_add_gt_epilogue epilogue{
      static_cast<const float*>(fc_bias),
      static_cast<const float*>(residual),
      static_cast<float*>(result0),
      static_cast<bool*>(result1),
  };
  return op::contract<k1_linear_relu_add_gt_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
