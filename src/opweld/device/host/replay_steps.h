#include <vector>

namespace host {

// What forwards leave for their backwards.
inline Numbered<std::vector<Tensor>>& left_behind() {
  static auto& all = *new Numbered<std::vector<Tensor>>;
  return all;
}

// Replays a forward: its results, and the number of what it leaves behind them.
inline std::tuple<std::vector<Tensor>, int64_t> replay_forward(std::vector<Tensor> values,
                                                               int64_t number,
                                                               int64_t num_results) {
  std::vector<Tensor> results = replay(std::move(values), number);
  std::vector<Tensor> left(results.begin() + num_results, results.end());
  results.erase(results.begin() + num_results, results.end());
  return {std::move(results), left_behind().add(std::move(left))};
}

// Replays a backward on `values` and on what its forward left, which is freed as soon as it has
// been read, but where it is to `keep`.
inline std::vector<Tensor> replay_backward(std::vector<Tensor> values, int64_t number, int64_t left,
                                           bool keep) {
  {
    const auto kept = left_behind().at(left);
    values.insert(values.end(), kept->begin(), kept->end());
  }
  if (!keep) left_behind().remove(left);
  return replay(std::move(values), number);
}

inline void forget_left(int64_t number) { left_behind().remove(number); }

// What two gradients of one tensor add up to.
inline Tensor add(Tensor left, Tensor right) {
  AtenTensorHandle sum = nullptr;
  const auto failed = add_tensors(left.get(), right.get(), 1.0, &sum);
  require(failed == 0, "opweld_add", ": two gradients could not be added");
  return Tensor(sum);
}

}  // namespace host
