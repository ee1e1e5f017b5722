#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

namespace host {

constexpr auto* add_tensors = aoti_torch_cpu_add_Tensor;

}  // namespace host
