// k1_conv2d_add_relu: x f32[s0, 64, 28, 28], a_weight f32[64, 64, 3, 3], a_bias f32[64] ->
//   result f32[s0, 28, 28, 64]
struct k1_conv2d_add_relu_element {
  using Operands = op::Types<op::Along<const float, 3>, op::Along<float, 0, 1, 2, 3>>;
  static constexpr int kRank = 4, kWidth = 4;
  static constexpr bool kMayBeAcross = false;
  static constexpr op::Windowed<2> kWindows{{0, 2, 3, 1}, {1, 1}, {1, 1}, {1, 1}};
  OPWELD_FN void of(float product, float a_bias, float& result) {
    // model.py:11 y = F.relu(self.a(x))
    result = op::relu(product + a_bias);
  }
};
extern "C" int64_t k1_conv2d_add_relu_scratch(const TensorView* operands) {
  return op::convolution_bytes<k1_conv2d_add_relu_element,
      op::WindowTiles<op::Faithful, 2, 64>>(operands[0], operands[1], operands[3]);
}
extern "C" int k1_conv2d_add_relu_launch(const TensorView* operands, void* stream) {
  return op::convolve<k1_conv2d_add_relu_element, op::WindowTiles<op::Faithful, 2, 64>>(
      operands[0], operands[1], {operands[2], operands[3]}, operands[4].data, stream);
}

// k2_conv2d_add_relu: relu_out f32[s0, 28, 28, 64], b_weight f32[64, 64, 3, 3] ->
//   result f32[s0, 28, 28, 64]
struct k2_conv2d_add_relu_element {
  using Operands = op::Types<op::Along<const float, 0, 1, 2, 3>, op::Along<float, 0, 1, 2, 3>>;
  static constexpr int kRank = 4, kWidth = 4;
  static constexpr bool kMayBeAcross = false;
  static constexpr op::Windowed<2> kWindows{{0, 1, 2, 3}, {1, 1}, {1, 1}, {1, 1}};
  OPWELD_FN void of(float product, float relu_out, float& result) {
    // model.py:12 y = F.relu(self.b(y) + y)
    result = op::relu(product + relu_out);
  }
};
extern "C" int64_t k2_conv2d_add_relu_scratch(const TensorView* operands) {
  return op::convolution_bytes<k2_conv2d_add_relu_element,
      op::WindowTiles<op::Faithful, 2, 64>>(operands[0], operands[1], operands[2]);
}
extern "C" int k2_conv2d_add_relu_launch(const TensorView* operands, void* stream) {
  return op::convolve<k2_conv2d_add_relu_element, op::WindowTiles<op::Faithful, 2, 64>>(
      operands[0], operands[1], {operands[0], operands[2]}, operands[3].data, stream);
}

// k3_conv2d_sigmoid: relu_out f32[s0, 28, 28, 64], c_weight f32[96, 64, 3, 3] ->
//   result f32[s0, 12, 13, 96]
struct k3_conv2d_sigmoid_element {
  using Operands = op::Types<op::Along<float, 0, 1, 2, 3>>;
  static constexpr int kRank = 4, kWidth = 4;
  static constexpr bool kMayBeAcross = false;
  static constexpr op::Windowed<2> kWindows{{0, 1, 2, 3}, {2, 2}, {0, 0}, {2, 1}};
  OPWELD_FN void of(float product, float& result) {
    // model.py:13 return torch.sigmoid(self.c(y)).mean((2, 3))
    result = op::sigmoid(product);
  }
};
extern "C" int64_t k3_conv2d_sigmoid_scratch(const TensorView* operands) {
  return op::convolution_bytes<k3_conv2d_sigmoid_element,
      op::WindowTiles<op::Faithful, 2, 128>>(operands[0], operands[1], operands[2]);
}
extern "C" int k3_conv2d_sigmoid_launch(const TensorView* operands, void* stream) {
  return op::convolve<k3_conv2d_sigmoid_element, op::WindowTiles<op::Faithful, 2, 128>>(
      operands[0], operands[1], {operands[2]}, operands[3].data, stream);
}

// k4_mean: one operation on rows of 156 elements in one pass.
// sigmoid_out f32[s0, 12, 13, 96] -> result f32[s0, 1, 1, 96]
struct k4_mean_row : op::AcrossRows {
  using Operands = op::Types<op::Along<const float, 0, 1, 2, 3>, op::Along<float, 0, 4, 4, 3>>;
  using Held = op::Of<0>;
  using Teams = op::Types<op::Team<8>>;
  using Singles = op::Types<op::Team<8>>;
  using Cut = op::CutRows<256, 256, 8, 512, 1024>;
  static constexpr int kRank = 4, kLane = 3, kWidth = 4, kAxesOfRows[] = {0, 3}, kAxesOfRow[] = {1,
      2};
  static constexpr int64_t kLength = 156;

  using Pass0 = op::Pass<op::ElementFolds<0, 8, op::Fold<op::Mean, float>>, op::Of<0>,
      op::After<1>>;
  __device__ op::Values<float> of(Pass0, float sigmoid_out) const {
    return sigmoid_out;
  }
  __device__ void after(Pass0, const op::Compensated<float>& of_mean_1, float& result) {
    const float mean_1 = op::Mean::told(of_mean_1, float(this->length));
    result = mean_1;
  }

  using Passes = op::Types<Pass0>;
};
extern "C" int k4_mean_launch(const TensorView* operands, void* stream) {
  return op::reduce<k4_mean_row>(operands, stream, k4_mean_row::Operands());
}
extern "C" int64_t k4_mean_scratch(const TensorView* operands) {
  return k4_mean_row::Cut::bytes<k4_mean_row>(operands, k4_mean_row::Operands());
}
