#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace host {

// Stops with the operand's name when it is not what the kernel was made for.
template <size_t kRank>
void expect(const char* name, const Tensor& tensor, const Tensor& first, ScalarType dtype,
            const std::array<int64_t, kRank>& shape) {
  STD_TORCH_CHECK(tensor.scalar_type() == dtype, name, " has another dtype than its kernel");
  STD_TORCH_CHECK(tensor.dim() == int64_t(kRank), name, " has ", tensor.dim(), " axes, not ",
                  kRank);
  STD_TORCH_CHECK(tensor.get_device_index() == first.get_device_index(), name, " is elsewhere");
  const auto sizes = tensor.sizes();
  for (size_t axis = 0; axis < kRank; ++axis) {
    STD_TORCH_CHECK(sizes[axis] == shape[axis], name, " has size ", sizes[axis], " along axis ",
                    axis, ", not ", shape[axis]);
  }
}

// A new tensor, contiguous, on the device of `beside`.
template <size_t kRank>
Tensor row_major(const Tensor& beside, ScalarType dtype, const std::array<int64_t, kRank>& shape) {
  std::array<int64_t, kRank> strides{};
  int64_t stride = 1;
  for (size_t axis = kRank; axis-- > 0; stride *= shape[axis] > 1 ? shape[axis] : 1) {
    strides[axis] = stride;
  }
  int32_t device_type;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(beside.get(), &device_type));
  AtenTensorHandle handle;
  TORCH_ERROR_CODE_CHECK(
      aoti_torch_empty_strided(kRank, shape.data(), strides.data(), int32_t(dtype), device_type,
                               beside.get_device_index(), &handle));
  return Tensor(handle);
}

// A new tensor in the layout that PyTorch gives to an elementwise result of `like`.
template <size_t kRank>
Tensor laid_out_like(const Tensor& like, ScalarType dtype,
                     const std::array<int64_t, kRank>& shape) {
  if (like.is_contiguous()) return row_major(like, dtype, shape);
  std::array<StableIValue, 6> stack{
      torch::stable::detail::from(like), torch::stable::detail::from(std::make_optional(dtype)),
      torch::stable::detail::from(std::nullopt), torch::stable::detail::from(std::nullopt),
      torch::stable::detail::from(std::nullopt), torch::stable::detail::from(std::nullopt)};
  TORCH_ERROR_CODE_CHECK(
      torch_call_dispatcher("aten::empty_like", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<Tensor>(stack[0]);
}

// Whether the same flat position means the same element in both; sizes are equal.
inline bool same_layout(const Tensor& left, const Tensor& right) {
  const auto sizes = left.sizes(), a = left.strides(), b = right.strides();
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] > 1 && a[axis] != b[axis]) return false;
  }
  return true;
}
