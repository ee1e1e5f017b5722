// k1_abs_neg_exp: x f32[s0, 16384], scale f32[16384], shift f32[s0, 1] -> result0 f32[s0, 16384],
//   result1 f32[s0, 16384]
struct k1_abs_neg_exp_element {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 1>,
      op::Along<const float, 0, 1>, op::Along<float, 0, 1>, op::Along<float, 0, 1>>;
  static constexpr int kRank = 2, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(float x, float scale, float shift, float& result0, float& result1) {
    // chain.py:12 centred = x * scale + shift # 1, 2
    const float centred = x * scale + shift;
    // chain.py:13 gate = torch.sigmoid(centred) # 3
    const float gate = op::sigmoid(centred);
    // chain.py:14 swish = centred * gate # 4
    const float swish = centred * gate;
    // chain.py:15 bent = torch.where(swish > 0.0, swish, 0.1 * swish) # 5, 6, 7
    const float bent = (swish > 0.0f) ? swish : (swish * 0.1f);
    // chain.py:16 first = torch.tanh(bent) + x # 8, 9
    const float add_2 = op::tanh(bent) + x;
    // chain.py:17 second = torch.exp(-torch.abs(first)) # 10, 11, 12
    result0 = add_2;
    result1 = op::exp(-op::abs(add_2));
  }
};
extern "C" int k1_abs_neg_exp_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_abs_neg_exp_element>(operands, stream,
      k1_abs_neg_exp_element::Operands());
}
