// k1_matmul_mul_add: a matrix product with the 2 operations after it: about 4310 us, the library
//   and a kernel for the rest 9416 us.
// query f32[s0, 8, 511, 64], key f32[s0, 511, 8, 64], mask f32[511, 511] ->
//   result f32[s0, 8, 511, 511]

OPWELD_FN float k1_matmul_mul_add_element(float product_1, float mask_1) {
  // model.py:12 return scores * 0.125 + mask
  const float mul_1 = product_1 * 0.125f;
  const float add_1 = mul_1 + mask_1;
  return add_1;
}

template <int kLanes, typename Index>
OPWELD_FN void k1_matmul_mul_add_epilogue_packet(
    const float* __restrict__ mask, float* __restrict__ result, Index at,
    const float (&product)[kLanes]) {
  const Index i1 = at % 261121u;
  const auto mask_1_vector = op::load_vector<kLanes>(&mask[i1]);
  op::Vector<float, kLanes> result_vector;
#pragma unroll
  for (int lane = 0; lane < kLanes; ++lane) {
    const float value0 = k1_matmul_mul_add_element(product[lane], mask_1_vector.lane[lane]);
    result_vector.lane[lane] = value0;
  }
  op::store_vector(result + at, result_vector);
}

// What becomes of the product: kCount neighbours of one row, from position `at` on.
struct k1_matmul_mul_add_epilogue {
  static constexpr int kLanes = 1;  // the most neighbours at once
  const float* mask;
  float* result;

  template <int kCount, typename Index>
  __device__ __forceinline__ void operator()(Index at, const float (&product)[kCount]) const {
    k1_matmul_mul_add_epilogue_packet<kCount>(mask, result, at, product);
  }
};

// By which form the product is made, the first that takes it:
//   tiles: sums of 33 terms or more
//   multiply-adds: all others
using k1_matmul_mul_add_forms = op::Forms<
    op::SplitTiles<op::Faithful, op::NewOperand, op::TilesSm90>,
    op::FmaTiles<float>>;

extern "C" int64_t k1_matmul_mul_add_workspace(const void* product, int held) {
  return op::workspace_bytes<k1_matmul_mul_add_forms>(product, held);
}

extern "C" int k1_matmul_mul_add_contract(
    const void* product, const void* mask, void* result, int64_t s0, int64_t max_offset,
    int aligned, void* workspace, void* held, int changed, void* stream) {
  const k1_matmul_mul_add_epilogue epilogue{
      static_cast<const float*>(mask),
      static_cast<float*>(result),
  };
  return op::contract<k1_matmul_mul_add_forms, float>(
      product, {workspace, held, changed}, epilogue, max_offset, aligned, stream);
}
