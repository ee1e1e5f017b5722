#include <vector>

namespace host {
namespace {

// An axis of an operand: positions along it, and elements from one to the next (0: broadcast).
struct Axis {
  int64_t size, stride;
};
using Axes = std::initializer_list<Axis>;  // outermost first

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

// Whether several axes are as one of evenly spaced positions; its stride.
inline bool fold(Axes axes, int64_t& stride) {
  stride = 0;
  int64_t next = -1;
  for (const Axis* axis = axes.end(); axis-- != axes.begin();) {
    if (axis->size == 1) continue;
    if (next < 0) {
      stride = axis->stride;
    } else if (axis->stride != next) {
      return false;
    }
    next = axis->stride * axis->size;
  }
  return true;
}

inline int64_t extent(Axes axes) {
  int64_t product = 1;
  for (const Axis& axis : axes) product *= axis.size;
  return product;
}

// A row-major copy of a tensor, or of a view of its memory.
inline Tensor copied(const Tensor& tensor, const std::vector<int64_t>& sizes) {
  const Tensor copy = row_major(tensor, tensor.scalar_type(), sizes);
  done(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

// The operand as it lies where each of its three extents is evenly spaced, else a copy. Batches
// that share everything stay one.
inline Matrix matrix(const Tensor& tensor, Axes batch, Axes rows, Axes inner) {
  int64_t of_batch, of_row, of_inner;
  const bool shared = fold(batch, of_batch) && of_batch == 0;
  if (fold(batch, of_batch) && fold(rows, of_row) && fold(inner, of_inner)) {
    return {tensor, of_batch, of_row, of_inner, false};
  }
  std::vector<int64_t> sizes, strides;
  for (const Axes& axes : {shared ? Axes{} : batch, rows, inner}) {
    for (const Axis& axis : axes) {
      sizes.push_back(axis.size);
      strides.push_back(axis.stride);
    }
  }
  AtenTensorHandle view;
  done(aoti_torch__reinterpret_tensor(tensor.get(), sizes.size(), sizes.data(), strides.data(), 0,
                                      &view));
  const int64_t row = extent(inner);
  return {copied(Tensor(view), sizes), shared ? 0 : extent(rows) * row, row, 1, true};
}

// The tensor itself where it has no gaps, else a row-major copy.
inline Tensor without_gaps(const Tensor& tensor, std::initializer_list<int64_t> shape) {
  return tensor.is_contiguous() ? tensor : copied(tensor, shape);
}

}  // namespace
}  // namespace host
