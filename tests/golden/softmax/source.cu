// k1_exp_sum_div: 6 operations on rows of 40 elements in 3 passes.
// x f32[s0, 40], mask f32[40] -> result f32[s0, 40]
struct k1_exp_sum_div_row : op::AlongRows {
  using Operands = op::Types<op::Along<const float, 0, 1>, op::Along<const float, 1>,
      op::Along<float, 0, 1>>;
  using Held = op::Of<0, 1>;
  using Teams = op::Types<op::Team<8, 2, 10>>;
  static constexpr int kRank = 2, kLane = 1, kWidth = 4, kAxesOfRows[] = {0}, kAxesOfRow[] = {1};
  static constexpr int64_t kLength = 40;
  float amax_1, sum_1;

  using Pass0 = op::Pass<op::ElementFolds<0, 16, op::Fold<op::Amax, float>>, op::Of<0, 1>>;
  __device__ op::Values<float> of(Pass0, float x, float mask) const {
    // model.py:11 return torch.softmax(x + mask, dim=-1)
    return x + mask;
  }
  __device__ void after(Pass0, float amax_1) {
    this->amax_1 = amax_1;
  }

  using Pass1 = op::Pass<op::ElementFolds<1, 8, op::Fold<op::Sum, float>>, op::Of<0, 1>>;
  __device__ op::Values<float> of(Pass1, float x, float mask) const {
    // model.py:11 return torch.softmax(x + mask, dim=-1)
    return op::exp(x + mask - amax_1);
  }
  __device__ void after(Pass1, float sum_1) {
    this->sum_1 = sum_1;
  }

  using Pass2 = op::Pass<op::NoFolds, op::Of<0, 1, 2>>;
  __device__ void of(Pass2, float x, float mask, float& result) const {
    // model.py:11 return torch.softmax(x + mask, dim=-1)
    result = op::exp(x + mask - amax_1) / sum_1;
  }

  using Passes = op::Types<Pass0, Pass1, Pass2>;
};
extern "C" int k1_exp_sum_div_launch(const TensorView* operands, void* stream) {
  return op::reduce<k1_exp_sum_div_row>(operands, stream, k1_exp_sum_div_row::Operands());
}
