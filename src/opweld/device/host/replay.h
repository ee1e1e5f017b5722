#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace host {

// An operator as PyTorch calls it: takes its arguments from a stack, and leaves its results there.
using Boxed = void(StableIValue* stack, uint64_t num_arguments, uint64_t num_results);

// The operators of this library by their names.
inline std::map<std::string, Boxed*>& operators() {
  static std::map<std::string, Boxed*> all;
  return all;
}

inline int64_t address_of(std::string name) {
  return reinterpret_cast<int64_t>(operators().at(name));
}

// Calls that a forward made. Its values have numbers: what is given, the module's own tensors, and
// the results of the calls in their order. `code` has of each call
//   the address of its function, or 0 and the index of its name, which is PyTorch's;
//   the number of its results, below 0 where they are one list;
//   the number of its arguments, and of each its kind and what belongs to it;
//   how many values nobody reads any more, and their numbers;
// and behind the last call the numbers of what is returned.
struct Program {
  std::vector<Tensor> own;
  std::vector<int64_t> code;
  std::vector<std::string> names;
  int64_t num_calls, num_returned;
};

enum class ArgumentKind { kTensor, kBits, kNone, kSome, kList, kUndefined };

// An argument for a stack; what is there is the callee's.
inline StableIValue argument(const int64_t*& code, const std::vector<Tensor>& values) {
  using torch::stable::detail::from;
  switch (ArgumentKind(*code++)) {
    case ArgumentKind::kTensor:
      return from(values[*code++]);
    case ArgumentKind::kBits:
      return StableIValue(*code++);  // of an int, a float or a bool
    case ArgumentKind::kSome:        // an optional one that is there, whatever it is
      return from(std::make_optional(int64_t(argument(code, values))));
    case ArgumentKind::kUndefined: {  // None where a schema has a tensor
      AtenTensorHandle none = nullptr;
      require(aoti_torch_new_uninitialized_tensor(&none) == 0, "opweld_replay",
              ": no tensor could be made");
      return from(Tensor(none));
    }
    case ArgumentKind::kNone:
      return from(std::nullopt);
    case ArgumentKind::kList:
      break;
  }
  const int64_t size = *code++;
  StableListHandle list = nullptr;
  torch_new_list_reserve_size(size, &list);
  for (int64_t i = 0; i < size; ++i) torch_list_push_back(list, argument(code, values));
  return torch::stable::detail::from<StableListHandle>(list);
}

// Makes the call that stands at `code`, and puts its results behind the values.
inline void call(const Program& program, const int64_t*& code, std::vector<Tensor>& values) {
  using torch::stable::detail::to;
  auto* function = reinterpret_cast<Boxed*>(*code++);
  const int64_t name_index = function == nullptr ? *code++ : 0;
  const int64_t num_results = *code++, num_arguments = *code++;
  std::vector<StableIValue> stack(std::max({num_arguments, num_results, int64_t(1)}));
  for (int64_t i = 0; i < num_arguments; ++i) stack[i] = argument(code, values);
  if (function != nullptr) {
    function(stack.data(), num_arguments, num_results);
  } else {
    const std::string& name = program.names[name_index];
    const char* overload = program.names[name_index + 1].c_str();
    const int failed =
        torch_call_dispatcher(name.c_str(), overload, stack.data(), TORCH_ABI_VERSION);
    require(!failed, name.c_str(), " failed");
  }
  for (int64_t i = 0; i < num_results; ++i) values.push_back(to<Tensor>(stack[i]));
  if (num_results < 0) {
    for (const Tensor& each : to<std::vector<Tensor>>(stack[0])) values.push_back(each);
  }
  static const Tensor& none = *new Tensor;  // never destroyed, as what Programs keep
  for (int64_t ended = *code++; ended > 0; --ended) values[*code++] = none;
}

// What is kept by numbers, which are given once.
template <typename T>
class Numbered {
public:
  int64_t add(T value) {
    const std::lock_guard guard(lock);
    all[next] = std::make_shared<const T>(std::move(value));
    return next++;
  }
  std::shared_ptr<const T> at(int64_t number) {
    const std::lock_guard guard(lock);
    return all.at(number);
  }
  void remove(int64_t number) {
    const std::lock_guard guard(lock);
    all.erase(number);
  }

private:
  std::mutex lock;
  std::map<int64_t, std::shared_ptr<const T>> all;
  int64_t next = 0;
};

// Never destroyed: what it keeps are PyTorch's, which may be gone before this library is.
inline Numbered<Program>& programs() {
  static auto& all = *new Numbered<Program>;
  return all;
}

// A new program; `names` has each of PyTorch's operators and its overload, each with a blank
// behind.
inline int64_t prepare(std::vector<Tensor> own, std::vector<int64_t> code, std::string names,
                       int64_t num_calls, int64_t num_returned) {
  std::vector<std::string> each;
  for (size_t at = 0, blank; (blank = names.find(' ', at)) != std::string::npos; at = blank + 1) {
    each.push_back(names.substr(at, blank - at));
  }
  return programs().add(
      {std::move(own), std::move(code), std::move(each), num_calls, num_returned});
}

inline std::vector<Tensor> replay(std::vector<Tensor> values, int64_t number) {
  const auto program = programs().at(number);
  values.insert(values.end(), program->own.begin(), program->own.end());
  values.reserve(values.size() + program->code.size() / 4);
  const int64_t* code = program->code.data();
  for (int64_t i = 0; i < program->num_calls; ++i) call(*program, code, values);
  std::vector<Tensor> returned;
  for (int64_t i = 0; i < program->num_returned; ++i) returned.push_back(values[*code++]);
  return returned;
}

inline void forget(int64_t number) { programs().remove(number); }

}  // namespace host
