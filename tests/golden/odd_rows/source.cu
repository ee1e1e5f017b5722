// k1_sub: x f32[s0, 37], row_1 f32[37] -> result f32[s0, 37]
struct k1_sub_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 1>,
      op::Along<float, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x, float row_1, float& result) {
    // model.py:11 return x - row
    result = x - row_1;
  }
};
extern "C" int k1_sub_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_sub_element>(operands, stream, k1_sub_element::Operands());
}
