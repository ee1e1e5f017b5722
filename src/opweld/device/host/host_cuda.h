
// The largest element offset that a kernel can form in this tensor.
inline int64_t reach(const Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  int64_t offset = 0;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] > 1) offset += (sizes[axis] - 1) * strides[axis];
  }
  return offset;
}

template <typename... Tensors>
int64_t largest_reach(const Tensors&... tensors) {
  int64_t largest = 0;
  for (int64_t offset : {reach(tensors)...}) largest = offset > largest ? offset : largest;
  return largest;
}

// Whether every pointer allows 16-byte accesses.
template <typename... Tensors>
int all_aligned(const Tensors&... tensors) {
  return ((reinterpret_cast<uintptr_t>(tensors.data_ptr()) | ...) & 15) == 0;
}

inline void* current_stream(const Tensor& tensor) {
  void* stream = nullptr;
  done(aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream));
  return stream;
}

inline void check_launch(const char* name, int error) {
  require(error == 0, name, " was not launched: CUDA error ", error);
}

}  // namespace host
