// Matrix products with everything after them, c[batch, m, n] = sum over k of
// a[batch, m, k] * b[batch, n, k]: what they take, and which form makes which.

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
// A mode says what operands are stored as; on the tensor cores, of how many 16-bit parts a value
// is, and whether these are to be scaled. Here float32 operands; errors no larger than those of a
// float32 sum.
struct Faithful {
    using Storage = float;
    static constexpr int kParts = 2;
    static constexpr bool kScaled = true;
};

// @Tf32 deps:
// float32 operands; errors no larger than those of operands rounded to 11 bits.
struct Tf32 {
    using Storage = float;
    static constexpr int kParts = 1;
    static constexpr bool kScaled = true;
};

// @Half deps: half
// half operands, float32 sums.
struct Half {
    using Storage = half;
    static constexpr int kParts = 1;
    static constexpr bool kScaled = false;
};

// @Bfloat16 deps: bfloat16, bfloat16_is
// bfloat16 operands, float32 sums.
struct Bfloat16 {
    using Storage = bfloat16;
    static constexpr int kParts = 1;
    static constexpr bool kScaled = false;
};

// @Form deps: Memory, Product
// A way to make products. Each hides what it does otherwise, and has
//   launch(product, memory, source, sink, stream)   a CUDA error code; a's values are `source`'s
struct Form {
    static bool takes(const Product&) { return true; }
    static int64_t workspace_bytes(const Product&, bool) { return 0; }  // true: b is held
    static int64_t held_bytes(const Product&) { return 0; }             // 0: b is taken as it is
};

// @Forms deps: Form, EpilogueStore
// A product is made by the first form that takes it; the last one makes all others.
template <typename First, typename... Others>
struct Forms {
    // what `use` gives for that form
    template <typename Use>
    static auto choose(const Product& p, const Use& use) {
        if constexpr (sizeof...(Others) > 0) {
            if (!First::takes(p)) return Forms<Others...>::choose(p, use);
        }
        return use(First());
    }
};

// @contract_from deps: Forms
// Makes a product of `source`'s values and hands its own, float32, to `epilogue(at, values)` with
// `at` the flat position (batch * m + row) * n + column of the first of 1, 2 or 4 neighbours in one
// row, at most Epilogue::kLanes. `max_offset`: the largest that the epilogue reaches; `aligned`:
// its pointers allow kLanes at once. Returns a CUDA error code.
template <typename Ways, typename Source, typename Epilogue>
static int contract_from(const Product& product, const Memory& memory, const Source& source,
                         const Epilogue& epilogue, int64_t max_offset, bool aligned, void* stream) {
    constexpr int64_t kFar = 1ll << 31;  // from here on 32-bit positions would wrap round
    const int64_t extent = product.batches * product.m * product.n;
    const bool narrow = extent < kFar && max_offset < kFar;
    const auto sink = EpilogueStore<Epilogue>::of(epilogue, narrow, aligned, extent);
    if (extent == 0) return 0;
    return Ways::choose(product, [&](auto form) {
        return form.launch(product, memory, source, sink, static_cast<cudaStream_t>(stream));
    });
}

// @contract deps: InMemory, contract_from
// As contract_from, of an operand a that is stored, as values of type T; `product` is a Product.
template <typename Ways, typename T, typename Epilogue>
static int contract(const void* product, const Memory& memory, const Epilogue& epilogue,
                    int64_t max_offset, bool aligned, void* stream) {
    const auto& p = *static_cast<const Product*>(product);
    const InMemory<T> source{static_cast<const T*>(p.a.data)};
    return contract_from<Ways>(p, memory, source, epilogue, max_offset, aligned, stream);
}

// @product_bytes deps: Forms
// What a Product takes: of a call's workspace, and of b as it is held.
template <typename Ways>
static int64_t workspace_bytes(const void* product, bool held) {
    const auto& p = *static_cast<const Product*>(product);
    return Ways::choose(p, [&](auto form) { return form.workspace_bytes(p, held); });
}
template <typename Ways>
static int64_t held_bytes(const void* product) {
    const auto& p = *static_cast<const Product*>(product);
    return Ways::choose(p, [&](auto form) { return form.held_bytes(p); });
}

// @suits_tensor_cores deps: Product
// Products with some work a value, of extents that grids take. Short sums of float32 are more exact
// on the CUDA cores.
template <typename Mode>
static bool suits_tensor_cores(const Product& p) {
    constexpr int64_t kMostBlocks = 65535, kShort = sizeof(typename Mode::Storage) == 4 ? 32 : 0;
    return p.k > kShort && p.batches <= kMostBlocks && (p.m > p.n ? p.m : p.n) <= 32 * kMostBlocks;
}

}  // namespace op
