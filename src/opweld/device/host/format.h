namespace host {

// A new tensor of four axes without gaps; where `channels_last` is not 0 these are the last in
// memory.
inline Tensor in_format(int64_t channels_last, const Tensor& x, ScalarType dtype,
                        const std::array<int64_t, 4>& sizes) {
  const auto [images, channels, height, width] = sizes;
  if (!channels_last) return in_rows(x, dtype, sizes);
  const Tensor made = in_rows(x, dtype, std::array{images, height, width, channels});
  const std::array strides{made.stride(0), made.stride(3), made.stride(1), made.stride(2)};
  AtenTensorHandle view = nullptr;
  aoti_torch__reinterpret_tensor(made.get(), 4, sizes.data(), strides.data(), 0, &view);
  require(view != nullptr, "a result", " has no view");
  return Tensor(view);
}

}  // namespace host
