// k1_mul_exp: x f32[s0, 5, 3], column f32[s0, 5, 1] -> result f32[s0, 5, 3]
struct k1_mul_exp_element {
  using Operands = op::Types<op::Along<const float, 0, 1, 2>, op::Along<const float, 0, 1, 2>,
      op::Along<float, 0, 1, 2>>;
  static constexpr int kRank = 3, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x, float column, float& result) {
    // model.py:11 return torch.exp(x * column)
    result = op::exp(x * column);
  }
};
extern "C" int k1_mul_exp_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_mul_exp_element>(operands, stream, k1_mul_exp_element::Operands());
}
