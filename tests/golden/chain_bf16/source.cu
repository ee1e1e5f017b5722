// k1_abs_neg_exp: x bf16[s0, 16384], scale bf16[16384], shift bf16[s0, 1] ->
//   result0 bf16[s0, 16384], result1 bf16[s0, 16384]
struct k1_abs_neg_exp_element {
  using Operands = op::Types<op::Along<const op::bfloat16, 0, 1>, op::Along<const op::bfloat16, 1>,
      op::Along<const op::bfloat16, 0, 1>, op::Along<op::bfloat16, 0, 1>,
      op::Along<op::bfloat16, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 8, kThreads = 128;
  OPWELD_FN void of(
    op::bfloat16 x, op::bfloat16 scale, op::bfloat16 shift, op::bfloat16& result0,
    op::bfloat16& result1) {
    // chain_bf16.py:12 centred = x * scale + shift # 1, 2
    const float centred = op::to_compute(x) * op::to_compute(scale) + op::to_compute(shift);
    // chain_bf16.py:13 gate = torch.sigmoid(centred) # 3
    const float gate = op::sigmoid_approx(centred);
    // chain_bf16.py:14 swish = centred * gate # 4
    const float swish = centred * gate;
    // chain_bf16.py:15 bent = torch.where(swish > 0.0, swish, 0.1 * swish) # 5, 6, 7
    const float bent = (swish > 0.0f) ? swish : (swish * 0.1f);
    // chain_bf16.py:16 first = torch.tanh(bent) + x # 8, 9
    const float add_2 = op::tanh_bf16(bent) + op::to_compute(x);
    // chain_bf16.py:17 second = torch.exp(-torch.abs(first)) # 10, 11, 12
    result0 = op::from_compute<op::bfloat16>(add_2);
    result1 = op::from_compute<op::bfloat16>(op::exp_approx(-op::abs(add_2)));
  }
};
extern "C" int k1_abs_neg_exp_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_abs_neg_exp_element>(operands, stream,
      k1_abs_neg_exp_element::Operands());
}
