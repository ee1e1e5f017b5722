// k1_add_silu_mul: x bf16[s0, 64], shift bf16[64] -> result bf16[s0, 64]
struct k1_add_silu_mul_element {
  using Operands = op::Types<op::Along<const op::bfloat16, 0, 1>, op::Along<const op::bfloat16, 1>,
      op::Along<op::bfloat16, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 8, kThreads = 128;
  OPWELD_FN void of(op::bfloat16 x, op::bfloat16 shift, op::bfloat16& result) {
    // model.py:11 return F.silu(x + shift) * 0.5
    result = op::from_compute<op::bfloat16>(op::silu_approx(op::to_compute(x)
        + op::to_compute(shift)) * 0.5f);
  }
};
extern "C" int k1_add_silu_mul_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_add_silu_mul_element>(operands, stream,
      k1_add_silu_mul_element::Operands());
}
