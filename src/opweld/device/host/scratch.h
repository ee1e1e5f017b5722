namespace host {

// Runs a kernel that keeps what it folds of pieces in memory, an operand behind all others: `bytes`
// tells how much.
template <size_t n, typename... Inputs>
auto run_in_pieces(const char* name, Kernel* kernel, int64_t (*bytes)(const TensorView*),
                   const std::array<Tensor, n>& results, const Inputs&... inputs) {
  const torch::stable::accelerator::DeviceGuard device_guard(results[0].get_device_index());
  std::vector<TensorView> operands{operand(inputs, inputs.const_data_ptr())...};
  std::array<Tensor, n + 1> all;
  for (size_t i = 0; i < n; ++i) {
    all[i] = results[i];
    operands.push_back(operand(results[i], nullptr));
  }
  all[n] = in_rows(results[0], ScalarType::Byte, std::array{bytes(operands.data())});
  run(name, kernel, all, inputs...);
  if constexpr (n == 1) return results[0];
  else return std::tuple_cat(results);
}

}  // namespace host
