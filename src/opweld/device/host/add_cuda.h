#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h>

namespace host {

constexpr auto* add_tensors = aoti_torch_cuda_add_Tensor;

}  // namespace host
