// Matrix products with everything after them, c[batch, m, n] = sum over k of
// a[batch, m, k] * b[batch, n, k]: what they take, and which kernel makes which.

namespace op {

// @Operand deps:
// One operand of a product: strides in elements, 0 along an axis that is broadcast.
struct Operand {
    const void* data;
    int64_t batch, row, inner;
};

// @Product deps: Operand
// The rows of `a` are those of the result, the rows of `b` its columns.
struct Product {
    Operand a, b;
    int64_t batches, m, n, k;
};

// @Memory deps:
// Device memory of one call: `workspace` is its own; `held`, null or of held_bytes, keeps b as the
// kernels want it from call to call and is made anew where b has `changed`.
struct Memory {
    void* workspace;
    void* held;
    int changed;
};

// @Faithful deps:
// float32 operands; errors no larger than those of a float32 sum.
struct Faithful {
    using Storage = float;
};

// @Tf32 deps:
// float32 operands; errors no larger than those of operands rounded to 11 bits.
struct Tf32 {
    using Storage = float;
};

// @Half deps: half
// half operands, float32 sums.
struct Half {
    using Storage = half;
};

// @Bfloat16 deps: bfloat16
// bfloat16 operands, float32 sums.
struct Bfloat16 {
    using Storage = bfloat16;
};

// @workspace_bytes deps: Product
// The bytes of workspace that a product takes, whose extents alone are read; `held`: b is held.
template <typename Mode>
static int64_t workspace_bytes(const Product&, bool) {
    return 0;
}

// @held_bytes deps:
// The bytes that hold b[batches, n, k] as the kernels want it.
template <typename Mode>
static int64_t held_bytes(int64_t, int64_t, int64_t) {
    return 0;
}

// @contract deps: Memory, Product, held_bytes, launch_fma_product, workspace_bytes
// Makes a product and hands its values, float32, to `epilogue(at, values)` with `at` the flat
// position (batch * m + row) * n + column of the first of 1 to Epilogue::kLanes neighbours in one
// row. `narrow`: positions fit 32 bits; `aligned`: the epilogue's pointers allow kLanes at once.
// Returns a CUDA error code.
template <typename Mode, typename Epilogue>
static int contract(const Product& product, const Memory&, const Epilogue& epilogue, bool narrow,
                    bool aligned, void* stream) {
    return launch_fma_product<typename Mode::Storage>(product, epilogue, nullptr, narrow, aligned,
                                                      static_cast<cudaStream_t>(stream));
}

}  // namespace op
