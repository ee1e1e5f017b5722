// k1_mul_sigmoid_gt: x f32[s0, 24], norm_weight f32[24], column f32[s0, 1], factor f32[] ->
//   result0 f32[s0, 24], result1 bool[s0, 24]
struct k1_mul_sigmoid_gt_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 1>,
      op::Along<const float, 0, 1>, op::Along<const float>, op::Along<float, 0, 1>,
      op::Along<bool, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(
    float x, float norm_weight, float column, float factor, float& result0, bool& result1) {
    // model.py:11 y = (x + self.norm.weight) * column * self.factor
    const float y = (x + norm_weight) * column * factor;
    // model.py:12 return torch.sigmoid(y), y > 0
    result0 = op::sigmoid(y);
    result1 = y > 0.0f;
  }
};
extern "C" int k1_mul_sigmoid_gt_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_mul_sigmoid_gt_element>(operands, stream,
      k1_mul_sigmoid_gt_element::Operands());
}
