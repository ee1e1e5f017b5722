// k2_cast_mul_gelu_linear_relu: a matrix product with the operation after it: about 38.5 us, the
//   library and a kernel for the rest 98.7 us; 8.4 MB are kept of the weight, split again only
//   where it changed; the 3 operations before it, as its operand is split.
// x bf16[s0, 1024], gain f32[1024], fc_weight f32[2048, 1024] -> result f32[s0, 2048]

OPWELD_FN float k2_cast_mul_gelu_linear_relu_operand_element(float x_1, float gain_1) {
  // model.py:11 h = F.gelu(x.float() * gain)
  const float cast_1 = x_1;
  const float mul_1 = cast_1 * gain_1;
  const float gelu_1 = op::gelu(mul_1);
  return gelu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_cast_mul_gelu_linear_relu_operand_prologue_packet(
    const op::bfloat16* __restrict__ x, const float* __restrict__ gain, Index at,
    float (&computed)[kLanes]) {
  const Index i1 = at % 1024u;
  const auto x_1_vector = op::load_vector<kLanes>(x + at);
  const auto gain_1_vector = op::load_vector<kLanes>(&gain[i1]);
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k2_cast_mul_gelu_linear_relu_operand_element(
        op::to_compute(x_1_vector.lane[lane]), gain_1_vector.lane[lane]);
    computed[lane] = value0;
  }
}

// Operand a: kCount neighbours of one row, from position `at` on.
struct k2_cast_mul_gelu_linear_relu_operand_prologue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const op::bfloat16* x;
  const float* gain;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, float (&computed)[kCount]) const {
    k2_cast_mul_gelu_linear_relu_operand_prologue_packet<kCount>(x, gain, at, computed);
  }
};

OPWELD_FN float k2_cast_mul_gelu_linear_relu_element(float product_1) {
  // model.py:12 return torch.relu(self.fc(h))
  const float relu_1 = op::relu(product_1);
  return relu_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k2_cast_mul_gelu_linear_relu_epilogue_packet(
    float* __restrict__ result, Index at, const float (&product)[kLanes]) {
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k2_cast_mul_gelu_linear_relu_element(product[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k2_cast_mul_gelu_linear_relu_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k2_cast_mul_gelu_linear_relu_epilogue_packet<kCount>(result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k2_cast_mul_gelu_linear_relu_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k2_cast_mul_gelu_linear_relu_workspace(const void* product, int held) {
  return op::workspace_bytes<k2_cast_mul_gelu_linear_relu_forms>(product, held);
}

extern "C" int64_t k2_cast_mul_gelu_linear_relu_held(const void* product) {
  return op::held_bytes<k2_cast_mul_gelu_linear_relu_forms>(product);
}

extern "C" int k2_cast_mul_gelu_linear_relu_contract(
    const void* product, const void* x, const void* gain, void* result, int64_t s0,
    int64_t max_offset, int aligned, void* workspace, void* held, int changed, void* stream) {
  const k2_cast_mul_gelu_linear_relu_operand_prologue operand{
      static_cast<const op::bfloat16*>(x),
      static_cast<const float*>(gain),
  };
  const k2_cast_mul_gelu_linear_relu_epilogue epilogue{static_cast<float*>(result)};
  return op::contract_computed<k2_cast_mul_gelu_linear_relu_forms>(
      product, {workspace, held, changed}, operand, epilogue, max_offset, aligned, stream);
}
