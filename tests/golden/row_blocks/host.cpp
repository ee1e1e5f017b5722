void k1_linear_relu_add_gt_run(
    const Tensor& x, const Tensor& fc_weight, const Tensor& fc_bias, const Tensor& residual,
    const Tensor& result0, const Tensor& result1) {
  const int64_t s0 = x.size(0);
  const Tensor& linear = result0;
  const bool alike = host::same_layout(linear, result0) &&
      host::same_layout(residual, result0) &&
      host::same_layout(result1, result0);
  const auto tail = [&](int64_t begin, int64_t end) {
    if (alike) {
      k1_relu_add_gt_contiguous(
          linear.const_data_ptr(), residual.const_data_ptr(), result0.mutable_data_ptr(),
          result1.mutable_data_ptr(), s0, begin, end);
    } else {
      k1_relu_add_gt_strided(
          linear.const_data_ptr(), residual.const_data_ptr(), result0.mutable_data_ptr(),
          result1.mutable_data_ptr(), s0, linear.stride(0), linear.stride(1),
          residual.stride(0), residual.stride(1), result0.stride(0), result0.stride(1),
          result1.stride(0), result1.stride(1), begin, end);
    }
  };
  const host::RowsProduct product{
      host::as_rows(x), host::as_columns(fc_weight, true), &fc_bias, 1.0, 1.0,
      host::as_rows(result0)};
  host::row_blocks<512>(product, tail);
}
