// k1_mul: x f32[s0, 16, 8, 8], scale f32[1, 16, 1, 1] -> result f32[s0, 16, 8, 8]
struct k1_mul_element {
  using Operands = op::Types<op::Along<const float, 0, 1, 2, 3>, op::Along<const float, 0, 1, 2, 3>,
      op::Along<float, 0, 1, 2, 3>>;
  static constexpr int kRank = 4, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x, float scale, float& result) {
    // model.py:11 return x * self.scale
    result = x * scale;
  }
};
extern "C" int k1_mul_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_mul_element>(operands, stream, k1_mul_element::Operands());
}
