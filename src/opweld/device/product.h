
namespace host {
namespace {

// An axis of an operand: positions along it, and elements from one to the next (0: broadcast).
struct Axis {
  int64_t size, stride;
};

template <size_t kAxes>
using Axes = std::array<Axis, kAxes>;

// What the kernels of a matrix product are told of it: as op::Product of the CUDA text.
struct Operand {
  const void* data;
  int64_t batch, row, inner;  // strides in elements
};
struct Product {
  Operand a, b;
  int64_t batches, m, n, k;
};

// An operand of a matrix product, by strides in elements. `tensor` keeps the memory.
struct Matrix {
  Tensor tensor;
  int64_t batch, row, inner;
  bool copied;

  const void* data() const { return tensor.const_data_ptr(); }
  Operand operand() const { return {data(), batch, row, inner}; }
};

// Whether several axes, outermost first, are as one of evenly spaced positions; its stride.
template <size_t kAxes>
bool fold(const Axes<kAxes>& axes, int64_t& stride) {
  stride = 0;
  int64_t next = -1;
  for (size_t axis = kAxes; axis-- > 0;) {
    const auto [size, step] = axes[axis];
    if (size == 1) continue;
    if (next < 0) {
      stride = step;
    } else if (step != next) {
      return false;
    }
    next = step * size;
  }
  return true;
}

template <size_t kAxes>
int64_t extent(const Axes<kAxes>& axes) {
  int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

// A row-major copy of a tensor, or of a view of its memory.
template <size_t kRank>
Tensor copied(const Tensor& tensor, const std::array<int64_t, kRank>& sizes) {
  const Tensor copy = row_major(tensor, tensor.scalar_type(), sizes);
  done(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

// The operand as it lies where each of its three extents is evenly spaced, else a copy. Batches
// that share everything stay one.
template <size_t kBatch, size_t kRows, size_t kInner>
Matrix matrix(const Tensor& tensor, const Axes<kBatch>& batch,
              const Axes<kRows>& rows, const Axes<kInner>& inner) {
  int64_t of_batch, of_row, of_inner;
  const bool shared = fold(batch, of_batch) && of_batch == 0;
  if (fold(batch, of_batch) && fold(rows, of_row) && fold(inner, of_inner)) {
    return {tensor, of_batch, of_row, of_inner, false};
  }
  constexpr size_t kAxes = kBatch + kRows + kInner;
  std::array<int64_t, kAxes> sizes{}, strides{};
  size_t axis = 0;
  const auto add = [&](Axis each) { sizes[axis] = each.size, strides[axis++] = each.stride; };
  for (const Axis& each : batch) add(shared ? Axis{1, 0} : each);
  for (const Axis& each : rows) add(each);
  for (const Axis& each : inner) add(each);
  AtenTensorHandle view;
  done(aoti_torch__reinterpret_tensor(tensor.get(), kAxes, sizes.data(), strides.data(), 0, &view));
  const int64_t row = extent(inner);
  return {copied(Tensor(view), sizes), shared ? 0 : extent(rows) * row, row, 1, true};
}

// The tensor itself where it has no gaps, else a row-major copy.
template <size_t kRank>
Tensor without_gaps(const Tensor& tensor, const std::array<int64_t, kRank>& shape) {
  return tensor.is_contiguous() ? tensor : copied(tensor, shape);
}

}  // namespace
}  // namespace host
