// k1_mul_sum_div: 4 operations on rows of s0 * 4096 elements in one pass, each split over several
//   blocks.
// x f32[s0, 4096], y f32[s0, 4096] -> result f32[]
struct k1_mul_sum_div_row : op::AlongRows {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 0, 1>,
      op::Along<float>>;
  using Held = op::Of<0, 1>;
  using Teams = op::Types<op::Team<8, 0, 32>, op::Team<32, 0, 512>, op::Team<256>>;
  using Cut = op::CutRows<1, 4096, 64, 512, 1024>;
  static constexpr int kRank = 2, kLane = 1, kWidth = 4, kAxesOfRows[] = {2}, kAxesOfRow[] = {0, 1};

  using Pass0 = op::Pass<op::ElementFolds<0, 8, op::Fold<op::Sum, float>>, op::Of<0, 1>,
      op::After<2>>;
  __device__ op::Values<float> of(Pass0, float x, float y) const {
    // model.py:11 return torch.mean((x - y) ** 2)
    const float sub_1 = x - y;
    return sub_1 * sub_1;
  }
  __device__ void after(Pass0, float sum_1, float& result) {
    // model.py:11 return torch.mean((x - y) ** 2)
    result = sum_1 / static_cast<float>(this->length);
  }

  using Passes = op::Types<Pass0>;
};
extern "C" int k1_mul_sum_div_launch(const TensorView* operands, void* stream) {
  return op::reduce<k1_mul_sum_div_row>(operands, stream, k1_mul_sum_div_row::Operands());
}
extern "C" int64_t k1_mul_sum_div_scratch(const TensorView* operands) {
  return k1_mul_sum_div_row::Cut::bytes<k1_mul_sum_div_row>(operands,
      k1_mul_sum_div_row::Operands());
}
