#include <torch/csrc/inductor/aoti_torch/generated/c_shim_OPWELD_KEY.h>

namespace host {

constexpr auto* add_tensors = aoti_torch_OPWELD_KEY_add_Tensor;

}  // namespace host
