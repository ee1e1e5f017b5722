// k1_mul_add_tanh: x f32[s0, 8192] -> result f32[s0, 8192]
struct k1_mul_add_tanh_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<float, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x, float& result) {
    // gelu.py:13 inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    const float inner = (x + x * x * x * 0.044715f) * 0.7978846f;
    // gelu.py:14 return 0.5 * x * (1.0 + torch.tanh(inner))
    result = x * 0.5f * (op::tanh(inner) + 1.0f);
  }
};
extern "C" int k1_mul_add_tanh_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_mul_add_tanh_element>(operands, stream,
      k1_mul_add_tanh_element::Operands());
}
