namespace host {
namespace {

// Bytes beside the results that the kernels of one call need.
inline Tensor bytes_beside(const Tensor& tensor, int64_t count) {
  return row_major(tensor, ScalarType::Byte, std::array<int64_t, 1>{count});
}

}  // namespace
}  // namespace host
