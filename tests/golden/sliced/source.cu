// k1_sigmoid_mul: x f32[s0, 32] -> result f32[s0, 16]
struct k1_sigmoid_mul_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 0, 1>,
      op::Along<float, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x_1, float x_2, float& result) {
    // model.py:12 return a * torch.sigmoid(b)
    result = x_1 * op::sigmoid(x_2);
  }
};
extern "C" int k1_sigmoid_mul_launch(const TensorView* operands, void* stream) {
  const op::Part<float, 2> x_1(operands[0], {{1, 0, 16}});
  const op::Part<float, 2> x_2(operands[0], {{1, 16, 16}});
  const TensorView parts[] = {x_1, x_2, operands[1]};
  return op::pointwise<k1_sigmoid_mul_element>(parts, stream, k1_sigmoid_mul_element::Operands());
}
