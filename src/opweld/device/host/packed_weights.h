
#include <mutex>
#include <vector>

extern "C" int stream_is_capturing(void* stream, int* capturing);
extern "C" int mark_event(void** event, void* stream);
extern "C" int wait_for_event(void* event, void* stream);
extern "C" int end_event(void* event);

namespace host {
namespace {

// How often the tensor was changed in place, as PyTorch counts; inference tensors have no count.
inline int64_t version_of(const Tensor& tensor) {
  std::array<StableIValue, 1> stack{torch::stable::detail::from(tensor)};
  done(torch_call_dispatcher("aten::is_inference", "", stack.data(), TORCH_ABI_VERSION));
  if (torch::stable::detail::to<bool>(stack[0])) return 0;
  stack[0] = torch::stable::detail::from(tensor);
  done(torch_call_dispatcher("aten::_version", "", stack.data(), TORCH_ABI_VERSION));
  return torch::stable::detail::to<int64_t>(stack[0]);
}

// Which memory a kept form was made from: address, strides, extents, device.
using HeldKey = std::array<int64_t, 8>;

// A weight as the kernels want it. `event` marks its last use, in `stream`.
struct HeldForm {
  HeldKey key;
  Tensor bytes;
  void* stream;
  uint64_t used;
  int64_t version = -1;
  void* event = nullptr;
  bool in_graph = false;  // its address stands in a CUDA graph
};

// The forms that one operator keeps on the device from call to call. Whether a form still is that
// of its weight is found out on the device, by every call: no host code runs when a CUDA graph
// does, and not every change of a weight is counted. A counted one is told to the kernels besides.
struct Held {
  static constexpr size_t kMostForms = 4;  // of each site of the forward that calls the operator
  const size_t sites;
  std::mutex mutex;
  std::vector<HeldForm> forms;
  uint64_t uses = 0;

  explicit Held(size_t all_sites = 1) : sites(all_sites) {}

  HeldForm* find(const HeldKey& key, const Tensor& weight, int64_t num_bytes, void* stream,
                 bool capturing) {
    ++uses;
    for (HeldForm& form : forms) {
      if (form.key != key) continue;
      form.used = uses;
      return &form;
    }
    if (capturing) return nullptr;  // nothing runs now that could fill a new one
    make_room();
    const Tensor bytes = bytes_beside(weight, num_bytes);
    done(aoti_torch_zero_(bytes.get()));
    forms.push_back({key, bytes, stream, uses});
    return &forms.back();
  }

  // Drops the form that was not used for longest, except those of graphs.
  void make_room() {
    size_t count = 0, oldest = 0;
    for (size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].in_graph) continue;
      if (count++ == 0 || forms[i].used < forms[oldest].used) oldest = i;
    }
    if (count < kMostForms * sites) return;
    end_event(forms[oldest].event);
    forms.erase(forms.begin() + oldest);
  }
};

// Calls `use(form, changed)`, with null where none is kept, which 0 bytes ask for; until it ends no
// other call of the operator begins. `changed`: the weight was, by PyTorch's count, since the form
// was made.
template <typename Use>
void with_form(Held& held, const HeldKey& key, const Tensor& weight, int64_t num_bytes,
               void* stream, const Use& use) {
  const std::lock_guard<std::mutex> lock(held.mutex);
  if (num_bytes == 0) return use(nullptr, 0);
  int capturing = 0;
  check_launch("the weight's form", stream_is_capturing(stream, &capturing));
  HeldForm* const form = held.find(key, weight, num_bytes, stream, capturing);
  if (form == nullptr) return use(nullptr, 0);
  const int64_t version = version_of(weight);
  // A graph being captured runs nothing: what has changed is still to be seen to by the next call.
  if (capturing) form->in_graph = true;
  if (!capturing && form->stream != stream) {
    check_launch("the weight's form", wait_for_event(form->event, stream));
  }
  use(form->bytes.mutable_data_ptr(), form->version != version);
  if (capturing) return;
  form->version = version;
  form->stream = stream;
  check_launch("the weight's form", mark_event(&form->event, stream));
}

// As with_form, of the weight of a product.
template <typename Use>
void with_held(Held& held, const Matrix& weight, const Product& product, int64_t num_bytes,
               void* stream, const Use& use) {
  const HeldKey key{
      int64_t(weight.data()), weight.batch, weight.row, weight.inner,
      product.batches,        product.n,    product.k,  weight.tensor.get_device_index()};
  with_form(held, key, weight.tensor, weight.copied ? 0 : num_bytes, stream, use);
}

}  // namespace
}  // namespace host
