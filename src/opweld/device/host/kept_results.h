#include <vector>

namespace host {

constexpr int64_t kKeptHeadBytes = 16 + 4 * 2048;  // op::KeptHead of the CUDA text

// Bytes of a tensor without gaps, as whole accesses.
inline int64_t kept_bytes(const Tensor& x) { return (x.numel() * 4 + 15) / 16 * 16; }

// The functions of a group: its kernels, the bytes that they take, whether what is kept is stale,
// and what copies it.
struct KeptCalls {
  Kernel* launch;
  int64_t (*bytes)(const TensorView*);
  int (*check)(const void*, int64_t, const void*, void*, int, void*);
  int (*give)(const void*, int64_t, void*, const void*, const void*, void*, int64_t, void*);
};

// Runs a reduction of one weight, of 4 bytes an element, whose results are kept from call to call:
// what is kept is copied where the device finds the weight as it was, and made anew elsewhere.
template <size_t n>
auto run_kept(const char* name, const KeptCalls& calls, Held& forms,
              const std::array<Tensor, n>& results, const Tensor& weight) {
  const auto device = weight.get_device_index();
  const torch::stable::accelerator::DeviceGuard device_guard(device);
  void* const stream = current_stream(weight);
  int64_t size = kKeptHeadBytes;
  for (const Tensor& x : results) size += kept_bytes(x);
  const bool keeps = weight.is_contiguous() && weight.numel() >= 2048;
  const int64_t words = weight.numel();
  const HeldKey key{int64_t(weight.const_data_ptr()), words, 0, 0, 0, 0, 0, device};
  with_form(forms, key, weight, keeps ? size : 0, stream, [&](void* block, int changed) {
    std::vector<TensorView> operands{operand(weight, weight.const_data_ptr())};
    char* next = static_cast<char*>(block) + kKeptHeadBytes;
    for (const Tensor& x : results) {
      operands.push_back(operand(x, block ? next : x.mutable_data_ptr()));
      next += kept_bytes(x);
    }
    const Tensor call = bytes_beside(weight, calls.bytes(operands.data()));
    void* const stale = call.mutable_data_ptr();
    operands.push_back(operand(call, stale));
    const void* const data = weight.const_data_ptr();
    check_launch(name, calls.check(data, words, block, stale, changed, stream));
    const int error = calls.launch(operands.data(), stream);
    require(error >= 0, name, ": operand " + std::to_string(-error) + " does not fit");
    check_launch(name, error);
    if (block == nullptr) return;
    for (size_t i = 0; i < n; ++i) {
      check_launch(name, calls.give(data, words, block, stale, operands[i + 1].data,
                                    results[i].mutable_data_ptr(), results[i].numel(), stream));
    }
  });
  if constexpr (n == 1) return results[0];
  else return std::tuple_cat(results);
}

}  // namespace host
