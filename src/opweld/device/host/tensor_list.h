namespace host {

// Tensors that are one operand, joined along an axis: `data` are so many views as the `rank` says.
struct List {
  std::vector<TensorView> views;
  int32_t device;

  explicit List(const std::vector<Tensor>& tensors) : device(tensors.at(0).get_device_index()) {
    for (const Tensor& x : tensors) {
      views.push_back(operand(x, x.const_data_ptr()));
      if (x.get_device_index() != device) device = -2;
    }
  }
  const void* const_data_ptr() const { return views.data(); }
  int32_t get_device_index() const { return device; }
};
inline TensorView operand(const List& x, const void* data) {
  return {const_cast<void*>(data), -2, int(x.views.size()), nullptr, nullptr};
}

}  // namespace host
