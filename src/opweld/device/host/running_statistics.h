#include <vector>

namespace host {

using MoveStatistics = int(const TensorView* running, const TensorView* towards, int num,
                           const TensorView* counts, int num_counts, double momentum, void* stream);

// Moves running statistics and counts calls; false, and nothing, where they are not as the kernel
// has them.
inline bool track(const char* name, MoveStatistics* move, const std::vector<Tensor>& running,
                  const std::vector<Tensor>& towards, const std::vector<Tensor>& counts,
                  double momentum) {
  const auto device = running.at(0).get_device_index();
  const torch::stable::accelerator::DeviceGuard device_guard(device);
  bool here = running.size() == towards.size();
  const auto views = [&](const std::vector<Tensor>& tensors, bool written) {
    std::vector<TensorView> found;
    for (const Tensor& x : tensors) {
      here = here && x.get_device_index() == device;
      found.push_back(operand(x, written ? x.mutable_data_ptr() : x.const_data_ptr()));
    }
    return found;
  };
  const auto own = views(running, true), calls = views(counts, true);
  const auto of_batch = views(towards, false);
  void* stream = nullptr;
  if (!here) return false;
  int error = aoti_torch_get_current_cuda_stream(device, &stream);
  if (error == 0)
    error = move(own.data(), of_batch.data(), int(own.size()), calls.data(), int(calls.size()),
                 momentum, stream);
  require(error <= 0, name, ": CUDA error " + std::to_string(error));
  return error == 0;
}

}  // namespace host
