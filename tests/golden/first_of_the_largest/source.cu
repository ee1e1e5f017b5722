// k1_amax: one operation on rows of 48 elements in one pass.
// x f16[3, s0, 16] -> result f16[1, s0, 1]
struct k1_amax_row : op::AlongRows {
  using Operands = op::Types<op::Along<const op::half, 0, 1, 2>, op::Along<op::half, 3, 1, 3>>;
  using Held = op::Of<0>;
  using Teams = op::Types<op::Team<8, 0, 32>>;
  using Cut = op::CutRows<1, 4096, 64, 512, 1024>;
  static constexpr int kRank = 3, kLane = 2, kWidth = 8, kAxesOfRows[] = {1}, kAxesOfRow[] = {0, 2};
  static constexpr int64_t kLength = 48;

  using Pass0 = op::Pass<op::ElementFolds<0, 16, op::Fold<op::Amax, float>>, op::Of<0>,
      op::After<1>>;
  __device__ op::Values<float> of(Pass0, op::half x) const {
    return op::to_compute(x);
  }
  __device__ void after(Pass0, float amax_1, op::half& result) {
    result = op::from_compute<op::half>(amax_1);
  }

  using Passes = op::Types<Pass0>;
};
extern "C" int k1_amax_launch(const TensorView* operands, void* stream) {
  return op::reduce<k1_amax_row>(operands, stream, k1_amax_row::Operands());
}
extern "C" int64_t k1_amax_scratch(const TensorView* operands) {
  return k1_amax_row::Cut::bytes<k1_amax_row>(operands, k1_amax_row::Operands());
}

// k2_argmax: one operation on rows of 16 elements in one pass.
// x f16[3, s0, 16] -> result i64[3, s0, 1]
struct k2_argmax_row : op::AlongRows {
  using Operands = op::Types<op::Along<const op::half, 0, 1, 2>, op::Along<int64_t, 0, 1, 3>>;
  using Held = op::Of<0>;
  using Teams = op::Types<op::Team<8, 0, 32>>;
  using Cut = op::CutRows<1, 4096, 64, 512, 1024>;
  static constexpr int kRank = 3, kLane = 2, kWidth = 8, kAxesOfRows[] = {0, 1}, kAxesOfRow[] = {2};
  static constexpr int64_t kLength = 16;

  using Pass0 = op::Pass<op::ElementFolds<0, op::NoFolds::kChain,
      op::FoldOfPlaces<op::Argmax, float, int32_t>>, op::Of<0>, op::After<1>>;
  __device__ op::Values<float> of(Pass0, op::half x) const {
    return op::to_compute(x);
  }
  __device__ void after(Pass0, const op::Placed<float, int32_t>& of_argmax_1, int64_t& result) {
    const int64_t argmax_1 = of_argmax_1.position;
    result = argmax_1;
  }

  using Passes = op::Types<Pass0>;
};
extern "C" int k2_argmax_launch(const TensorView* operands, void* stream) {
  return op::reduce<k2_argmax_row>(operands, stream, k2_argmax_row::Operands());
}
extern "C" int64_t k2_argmax_scratch(const TensorView* operands) {
  return k2_argmax_row::Cut::bytes<k2_argmax_row>(operands, k2_argmax_row::Operands());
}
