#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A tensor: the number of its torch.dtype, sizes and strides in elements.
struct TensorView {
  void* data;
  int type, rank;
  const int64_t *sizes, *strides;
};

namespace host {

using Kernel = int(const TensorView* operands, void* stream);

inline void require(bool holds, const char* name, const std::string& why) {
  if (!holds) throw std::runtime_error(name + why);
}

// A new tensor, contiguous, on the device of x. Callers look for these words, to go on with less.
template <typename Sizes>
Tensor in_rows(const Tensor& x, ScalarType dtype, const Sizes& sizes) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t a = sizes.size(); a-- > 1;)
    strides[a - 1] = strides[a] * std::max<int64_t>(sizes[a], 1);
  int32_t device = 0;
  AtenTensorHandle made = nullptr;
  aoti_torch_get_device_type(x.get(), &device);
  aoti_torch_empty_strided(sizes.size(), sizes.data(), strides.data(), int32_t(dtype), device,
                           x.get_device_index(), &made);
  require(made != nullptr, "CUDA out of memory", ". Tried to allocate a tensor.");
  return Tensor(made);
}

// A new tensor in the layout that PyTorch gives to an elementwise result of x.
inline Tensor like(const Tensor& x, ScalarType dtype) {
  using torch::stable::detail::from;
  if (x.is_contiguous()) return in_rows(x, dtype, x.sizes());
  std::array<StableIValue, 6> stack{from(x), from(std::make_optional(dtype))};
  std::fill(stack.begin() + 2, stack.end(), from(std::nullopt));
  const int failed = torch_call_dispatcher("aten::empty_like", "", stack.data(), TORCH_ABI_VERSION);
  require(!failed, "CUDA out of memory", ". Tried to allocate a tensor.");
  return torch::stable::detail::to<Tensor>(stack[0]);
}

inline TensorView operand(const Tensor& x, const void* data) {
  return {const_cast<void*>(data), int(x.scalar_type()), int(x.dim()), x.sizes().data(),
          x.strides().data()};
}

// Runs a kernel, which checks its operands, on the current stream of their device.
template <size_t n, typename... Inputs>
auto run(const char* name, Kernel* kernel, const std::array<Tensor, n>& results,
         const Inputs&... inputs) {
  const auto device = results[0].get_device_index();
  const torch::stable::accelerator::DeviceGuard device_guard(device);
  std::array<TensorView, n + sizeof...(inputs)> operands;
  TensorView* next = operands.data();
  const auto add = [&](const auto& x, const void* data) {
    require(x.get_device_index() == device, name, ": operands are elsewhere");
    *next++ = operand(x, data);
  };
  (add(inputs, inputs.const_data_ptr()), ...);
  for (const Tensor& x : results) add(x, x.mutable_data_ptr());
  void* stream = nullptr;
  int error = aoti_torch_get_current_cuda_stream(device, &stream);
  if (error == 0) error = kernel(operands.data(), stream);
  require(error >= 0, name, ": operand " + std::to_string(-error) + " does not fit");
  require(error == 0, name, ": CUDA error " + std::to_string(error));
  if constexpr (n == 1) return results[0];
  else return std::tuple_cat(results);
}

}  // namespace host
