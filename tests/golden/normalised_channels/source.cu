// k1_div_add_sqrt: 7 operations on rows of 6 elements in 2 passes.
// x f32[s0, 6, 5, 4], weight f32[6] -> result0 f32[s0, 1, 5, 4], result1 f32[s0, 6, 5, 4]
struct k1_div_add_sqrt_row : op::AcrossRows {
  using Operands = op::Types<op::Along<const float, 0, 1, 2, 3>, op::Along<const float, 1>,
      op::Along<float, 0, 4, 2, 3>, op::Along<float, 0, 1, 2, 3>>;
  using Held = op::Of<0>;
  using Teams = op::Types<op::Team<1, 8, 8>>;
  using Singles = op::Types<op::Team<1, 32, 32>>;
  static constexpr int kRank = 4, kLane = 3, kWidth = 4, kAxesOfRows[] = {0, 2, 3},
      kAxesOfRow[] = {1};
  static constexpr int64_t kLength = 6;
  static constexpr int64_t kLeastRows = 16384;
  float sqrt_1;

  using Pass0 = op::Pass<op::ElementFolds<0, 8, op::Fold<op::Sum, float>>, op::Of<0>, op::After<2>>;
  __device__ op::Values<float> of(Pass0, float x) const {
    // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
    return x * x;
  }
  __device__ void after(Pass0, float sum_1, float& result0) {
    // model.py:11 rms = torch.sqrt((x * x).mean(dim=1, keepdim=True) + 1e-5)
    const float rms = op::sqrt(op::ratio(sum_1, 6.0f) + 1e-05f);
    this->sqrt_1 = rms;
    result0 = rms;
  }

  using Pass1 = op::Pass<op::NoFolds, op::Of<0, 1, 3>>;
  __device__ void of(Pass1, float x, float weight, float& result1) const {
    // model.py:12 return x / rms * self.weight[:, None, None], rms
    result1 = x / sqrt_1 * weight;
  }

  using Passes = op::Types<Pass0, Pass1>;
};
extern "C" int k1_div_add_sqrt_launch(const TensorView* operands, void* stream) {
  return op::reduce<k1_div_add_sqrt_row>(operands, stream, k1_div_add_sqrt_row::Operands());
}
