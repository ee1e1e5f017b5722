// k1_gelu: linear f64[s0, 64] -> result f64[s0, 64]
struct k1_gelu_element {
  using Operands = op::Types<op::Along<const double, 0, 1>, op::Along<double, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 2, kThreads = 128;
  OPWELD_FN void of(double linear, double& result) {
    // model.py:11 h = F.gelu(self.first(x))
    result = op::gelu(linear);
  }
};
extern "C" int k1_gelu_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_gelu_element>(operands, stream, k1_gelu_element::Operands());
}

// k2_tanh_add: linear f64[s0, 64], x f64[s0, 64] -> result f64[s0, 64]
struct k2_tanh_add_element {
  using Operands = op::Types<op::Along<const double, 0, 1>, op::Along<const double, 0, 1>,
      op::Along<double, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 2, kThreads = 128;
  OPWELD_FN void of(double linear, double x, double& result) {
    // model.py:12 return x + torch.tanh(self.second(h))
    result = x + op::tanh(linear);
  }
};
extern "C" int k2_tanh_add_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k2_tanh_add_element>(operands, stream, k2_tanh_add_element::Operands());
}
