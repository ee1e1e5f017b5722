// k1_addmm: a matrix product: about 40.5 us, the library 93.2 us; 8.4 MB are kept of the weight,
//   split again only where it changed.
// x f32[s0, 2048], weight f32[2048, 1024], bias f32[1024] -> result f32[s0, 1024]

OPWELD_FN float k1_addmm_element(float product_1, float bias_1) {
  // model.py:11 return torch.addmm(self.bias, x, self.weight, beta=0.5, alpha=2)
  const float mul_1 = product_1 * 2.0f;
  const float mul_2 = bias_1 * 0.5f;
  const float add_1 = mul_1 + mul_2;
  return add_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_addmm_epilogue_packet(
    const float* __restrict__ bias, float* __restrict__ result, Index at,
    const float (&product)[kLanes]) {
  const Index i1 = at % 1024u;
  const auto bias_1_vector = op::load_vector<kLanes>(&bias[i1]);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_addmm_element(product[lane], bias_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_addmm_epilogue {
  static constexpr int kLanes = 4;  // the most neighbours at once
  const float* bias;
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_addmm_epilogue_packet<kCount>(bias, result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k1_addmm_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::HeldOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_addmm_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_addmm_forms>(product, held);
}

extern "C" int64_t k1_addmm_held(const void* product) {
  return op::held_bytes<k1_addmm_forms>(product);
}

extern "C" int k1_addmm_contract(
    const void* product, const void* bias, void* result, int64_t s0, int64_t max_offset,
    int aligned, void* workspace, void* held, int changed, void* stream) {
  const k1_addmm_epilogue epilogue{static_cast<const float*>(bias), static_cast<float*>(result)};
  return op::contract<k1_addmm_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
