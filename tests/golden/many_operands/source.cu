// k1_mul_add: query_projection f32[s0, 3, 20], key_projection f32[s0, 3, 20],
//   value_projection f32[s0, 3, 20], output_projection f32[s0, 3, 20] -> result f32[s0, 3, 20]
struct k1_mul_add_element {
  using Operands = op::Types<op::Along<const float, 0, 1, 2>, op::Along<const float, 0, 1, 2>,
      op::Along<const float, 0, 1, 2>, op::Along<const float, 0, 1, 2>, op::Along<float, 0, 1, 2>>;
  static constexpr int kRank = 3, kWidth = 4, kThreads = 128;
  OPWELD_FN void of(
    float query_projection, float key_projection, float value_projection, float output_projection,
    float& result) {
    // model.py:11 return sum(each * each for each in projections)
    result = query_projection * query_projection + key_projection * key_projection
        + value_projection * value_projection + output_projection * output_projection;
  }
};
extern "C" int k1_mul_add_launch(const TensorView* operands, void* stream) {
  return op::pointwise<k1_mul_add_element>(operands, stream, k1_mul_add_element::Operands());
}
