// k1_linear_relu_mul_add: a matrix product with the 3 operations after it: about 28.7 us, the
//   library and a kernel for the rest 55.6 us; 4.2 MB are kept of the weight, split again only
//   where it changed.
// x f32[s0, 1024], fc_weight f32[1024, 1024], fc_bias f32[1024], gain f32[s0, 1] ->
//   result0 f32[s0, 1024], result1 f32[s0, 1024]

OPWELD_FN void k1_linear_relu_mul_add_element(
    float product_1, float fc_bias_1, float gain_1, float x_1, float& result0, float& result1) {
  // model.py:11 y = self.fc(x)
  const float add_1 = product_1 + fc_bias_1;
  // model.py:12 return torch.relu(y) * gain + x, y
  const float relu_1 = op::relu(add_1);
  const float mul_1 = relu_1 * gain_1;
  const float add_2 = mul_1 + x_1;
  result0 = add_1;
  result1 = add_2;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_linear_relu_mul_add_epilogue_packet(
    const float* __restrict__ x, const float* __restrict__ fc_bias, const float* __restrict__ gain,
    float* __restrict__ result0, float* __restrict__ result1, Index at,
    const float (&product)[kLanes]) {
  const Index i1 = at % 1024u;
  const Index i0 = at / 1024u;
  const auto fc_bias_1_vector = op::load_vector<kLanes>(&fc_bias[i1]);
  const float gain_1 = gain[i0];
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  op::Vector<float, kLanes> result0_vector;
  op::Vector<float, kLanes> result1_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    float value0;
    float value1;
    k1_linear_relu_mul_add_element(
        product[lane], fc_bias_1_vector.lane[lane], gain_1, x_1_vector.lane[lane], value0, value1);
    result0_vector.lane[lane] = value0;
    result1_vector.lane[lane] = value1;
  }
  op::store_vector(result0 + at, result0_vector);
  op::store_vector(result1 + at, result1_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_linear_relu_mul_add_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const float* x;
  const float* fc_bias;
  const float* gain;
  float* result0;
  float* result1;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_linear_relu_mul_add_epilogue_packet<kCount>(x, fc_bias, gain, result0, result1, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k1_linear_relu_mul_add_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_linear_relu_mul_add_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_linear_relu_mul_add_forms>(product, held);
}

extern "C" int64_t k1_linear_relu_mul_add_held(const void* product) {
  return op::held_bytes<k1_linear_relu_mul_add_forms>(product);
}

extern "C" int k1_linear_relu_mul_add_contract(
    const void* product, const void* x, const void* fc_bias, const void* gain, void* result0,
    void* result1, int64_t s0, int64_t max_offset, int aligned, void* workspace, void* held,
    int changed, void* stream) {
  const k1_linear_relu_mul_add_epilogue epilogue{
      static_cast<const float*>(x),
      static_cast<const float*>(fc_bias),
      static_cast<const float*>(gain),
      static_cast<float*>(result0),
      static_cast<float*>(result1),
  };
  return op::contract<k1_linear_relu_mul_add_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
