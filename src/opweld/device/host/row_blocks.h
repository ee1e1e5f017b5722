#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <vector>

namespace host {
namespace {

// A view of the tensor's memory as a matrix, from its element `offset` on.
Tensor matrix_at(const Tensor& tensor, int64_t offset, std::array<int64_t, 2> sizes,
                 std::array<int64_t, 2> strides) {
  AtenTensorHandle handle;
  done(aoti_torch__reinterpret_tensor(tensor.get(), 2, sizes.data(), strides.data(), offset,
                                      &handle));
  return Tensor(handle);
}

// A row-major copy.
Tensor in_order(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  std::vector<int64_t> shape(sizes.begin(), sizes.end()), strides(shape.size());
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) strides[axis] = stride;
  AtenTensorHandle handle;
  done(aoti_torch_empty_strided(shape.size(), shape.data(), strides.data(),
                                int32_t(tensor.scalar_type()), aoti_torch_device_type_cpu(), -1,
                                &handle));
  const Tensor copy(handle);
  done(aoti_torch_copy_(handle, tensor.get(), 0));
  return copy;
}

// The tensor as a matrix whose columns are its last axis: as it lies where its rows are evenly
// spaced, else a copy.
Tensor as_rows(const Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const size_t last = sizes.size() - 1;
  int64_t rows = 1, step = sizes[last], next = -1;
  for (size_t axis = last; axis-- > 0; rows *= sizes[axis]) {
    if (sizes[axis] == 1) continue;
    if (next >= 0 && strides[axis] != next) return as_rows(in_order(tensor));
    if (next < 0) step = strides[axis];
    next = strides[axis] * sizes[axis];
  }
  return matrix_at(tensor, 0, {rows, sizes[last]}, {step, strides[last]});
}

// The matrix [inner, columns], given so or turned; a copy where neither axis is dense, of which
// the library would make one for every block.
Tensor as_columns(const Tensor& given, bool turned) {
  const bool dense = given.stride(0) == 1 || given.stride(1) == 1;
  const Tensor tensor = dense ? given : in_order(given);
  const int64_t inner = turned, columns = !turned;
  return matrix_at(tensor, 0, {tensor.size(inner), tensor.size(columns)},
                   {tensor.stride(inner), tensor.stride(columns)});
}

// c = alpha * (a b) + beta * added, by the library, for some rows of a and c.
struct RowsProduct {
  Tensor a, b;
  const Tensor* added;
  double beta, alpha;
  Tensor c;

  void operator()(int64_t first, int64_t last) const {
    const Tensor from = rows_of(a, first, last), to = rows_of(c, first, last);
    if (added) {
      done(aoti_torch_cpu_addmm_out(to.get(), added->get(), from.get(), b.get(), beta, alpha));
    } else {
      done(aoti_torch_cpu_mm_out(to.get(), from.get(), b.get()));
    }
  }

  static Tensor rows_of(const Tensor& matrix, int64_t first, int64_t last) {
    return matrix_at(matrix, first * matrix.stride(0), {last - first, matrix.size(1)},
                     {matrix.stride(0), matrix.stride(1)});
  }
};

// With fewer rows a thread its own product is slower than one that all threads share.
constexpr int64_t kLeastRows = 256;

// The product, and `tail` over all positions of its result. Each thread has rows of its own, of
// which at most kRows are multiplied before the tail reads what is still in the thread's cache.
template <int64_t kRows, typename Tail>
void row_blocks(const RowsProduct& product, const Tail& tail) {
  const int64_t num_rows = product.c.size(0), num_columns = product.c.size(1);
  if (num_rows * num_columns == 0) return;
  if (num_rows < kLeastRows * int64_t(torch::stable::get_num_threads())) {
    product(0, num_rows);
    torch::stable::parallel_for(0, num_rows * num_columns, kGrain, tail);
    return;
  }
  torch::stable::parallel_for(0, num_rows, kLeastRows, [&](int64_t begin, int64_t end) {
    const int64_t num_blocks = (end - begin + kRows - 1) / kRows;
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t first = begin + (end - begin) * block / num_blocks;
      const int64_t last = begin + (end - begin) * (block + 1) / num_blocks;
      product(first, last);
      tail(first * num_columns, last * num_columns);
    }
  });
}

}  // namespace
}  // namespace host
