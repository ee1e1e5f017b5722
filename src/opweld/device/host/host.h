#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <tuple>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

namespace host {

inline std::string text(const char* part) { return part; }
inline std::string text(int64_t part) { return std::to_string(part); }

// Stops with a sentence where something does not hold. Without a stream: a toolchain that links its
// own C++ library into this file ends the process where a number is written to one.
template <typename... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) throw std::runtime_error((std::string() + ... + text(parts)));
}

// Stops where a call of PyTorch's failed; it has printed why.
inline void done(AOTITorchError status) { require(status == 0, "PyTorch could not do its part"); }

// Stops with the operand's name when it is not what the kernel was made for.
inline void expect(const char* name, const Tensor& tensor, const Tensor& first, ScalarType dtype,
                   std::initializer_list<int64_t> shape) {
  require(tensor.scalar_type() == dtype, name, " has another dtype than its kernel");
  require(tensor.dim() == int64_t(shape.size()), name, " has ", tensor.dim(), " axes, not ",
          int64_t(shape.size()));
  require(tensor.get_device_index() == first.get_device_index(), name, " is elsewhere");
  const auto sizes = tensor.sizes();
  int64_t axis = 0;
  for (int64_t size : shape) {
    require(sizes[axis] == size, name, " has size ", sizes[axis], " along axis ", axis, ", not ",
            size);
    ++axis;
  }
}

// Stops where a tensor was not made: in PyTorch's words, which callers look for to go on with less.
template <typename Sizes>
void expect_made(bool made, const Tensor& beside, const Sizes& shape) {
  if (made) return;
  int32_t device_type;
  done(aoti_torch_get_device_type(beside.get(), &device_type));
  const char* device = device_type == aoti_torch_device_type_cuda() ? "CUDA " : "";
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  require(false, device, "out of memory. Tried to allocate a tensor of ", elements, " elements.");
}

// A new tensor, contiguous, on the device of `beside`.
template <typename Sizes>
Tensor row_major(const Tensor& beside, ScalarType dtype, const Sizes& shape) {
  Sizes strides = shape;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis] > 1 ? shape[axis] : 1) {
    strides[axis] = stride;
  }
  int32_t device_type;
  done(aoti_torch_get_device_type(beside.get(), &device_type));
  AtenTensorHandle handle = nullptr;
  const auto failed =
      aoti_torch_empty_strided(shape.size(), shape.data(), strides.data(), int32_t(dtype),
                               device_type, beside.get_device_index(), &handle);
  expect_made(failed == 0, beside, shape);
  return Tensor(handle);
}

// A new tensor in the layout that PyTorch gives to an elementwise result of `like`.
template <size_t kRank>
Tensor laid_out_like(const Tensor& like, ScalarType dtype,
                     const std::array<int64_t, kRank>& shape) {
  if (like.is_contiguous()) return row_major(like, dtype, shape);
  std::array<StableIValue, 6> stack{torch::stable::detail::from(like),
                                    torch::stable::detail::from(std::make_optional(dtype)),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt),
                                    torch::stable::detail::from(std::nullopt)};
  const auto failed =
      torch_call_dispatcher("aten::empty_like", "", stack.data(), TORCH_ABI_VERSION);
  expect_made(failed == 0, like, shape);
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
