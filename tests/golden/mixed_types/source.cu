// k1_exp_where_logical_not: x f16[s0, 64], mask bool[s0, 64] -> result0 f32[s0, 64],
//   result1 f16[s0, 64], result2 bool[s0, 64]
struct k1_exp_where_logical_not_element {
  using Operands = op::Types<op::Along<const op::half, 0, 1>, op::Along<const bool, 0, 1>,
      op::Along<float, 0, 1>, op::Along<op::half, 0, 1>, op::Along<bool, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(op::half x, bool mask, float& result0, op::half& result1, bool& result2) {
    // model.py:11 y = torch.where(mask, x.float().exp(), -1.0)
    const float y = mask ? op::exp(op::to_compute(x)) : -1.0f;
    // model.py:12 return y, y.half(), ~mask
    result0 = y;
    result1 = op::from_compute<op::half>(op::to_compute(op::from_compute<op::half>(y)));
    result2 = !mask;
  }
};
extern "C" int k1_exp_where_logical_not_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_exp_where_logical_not_element>(operands, stream,
      k1_exp_where_logical_not_element::Operands());
}
