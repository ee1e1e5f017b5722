// k1_relu_add_gt: linear f32[s0, 2048], residual f32[s0, 2048] -> result0 f32[s0, 2048],
//   result1 bool[s0, 2048]
struct k1_relu_add_gt_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 0, 1>,
      op::Along<float, 0, 1>, op::Along<bool, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float linear, float residual, float& result0, bool& result1) {
    // model.py:12 return F.relu(y) + residual, y > 0
    result0 = op::relu(linear) + residual;
    result1 = linear > 0.0f;
  }
};
extern "C" int k1_relu_add_gt_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_relu_add_gt_element>(operands, stream,
      k1_relu_add_gt_element::Operands());
}
