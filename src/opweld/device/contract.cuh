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

// Modes: what operands are stored as; on the tensor cores, of how many 16-bit parts a value is, and
// whether these are to be scaled.

// @Faithful deps:
// float32 operands; errors no larger than those of a float32 sum.
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

// @is_skinny deps: Skinny, TensorCores
// Few rows on one side: such a product is bound by reading the other operand. Where TF32 is allowed
// the tensor cores read half of it for more than four rows or, where b is not held and they would
// have to split it first, for more than eight.
template <typename Mode>
static bool is_skinny(const Product& product, bool held) {
    const int64_t few = product.m < product.n ? product.m : product.n;
    const bool halved = sizeof(typename Mode::Storage) == 4 && Mode::kParts == 1;
    return few <= (halved && TensorCores<Mode>::take(product) ? (held ? 4 : 8) : Skinny::kMostFew);
}

// @TensorCores deps: Product, Memory
// The tensor cores' share of the products of a mode. Each family of kernels defines it: which
// products it takes, by their extents; the memory it wants for them; the launch.
template <typename Mode>
struct TensorCores;

// @LiveProducts deps: Product, Memory, Sink
// What kernels that split operands themselves take of a mode's products: nothing, but see
// contract_live.cuh.
template <typename Mode>
struct LiveProducts {
    static bool takes(const Product&, bool) { return false; }
    static int64_t workspace_bytes(const Product&) { return 0; }
    template <typename Epilogue>
    static int launch(const Product&, const Memory&, const Sink<Epilogue>&, cudaStream_t) {
        return -1;
    }
};

// @sums_are_short deps: Product, ShortSums
// Short sums of float32 are more exact, and bound by storing them, on the CUDA cores.
template <typename Mode>
static bool sums_are_short(const Product& p) {
    return sizeof(typename Mode::Storage) == 4 && p.k <= ShortSums::kMost;
}

// @suits_tensor_cores deps: Product, sums_are_short
// Products with some work a value, of extents that grids take.
template <typename Mode>
static bool suits_tensor_cores(const Product& p) {
    constexpr int64_t kMostBlocks = 65535;
    return p.k > 0 && !sums_are_short<Mode>(p) && p.batches <= kMostBlocks &&
           (p.m > p.n ? p.m : p.n) <= 32 * kMostBlocks;
}

// @workspace_bytes deps: is_skinny, skinny_bytes, TensorCores
// The bytes of workspace that a product takes, whose extents alone are read; `held`: b is held.
template <typename Mode>
static int64_t workspace_bytes(const Product& product, bool held) {
    if (is_skinny<Mode>(product, held)) return skinny_bytes<typename Mode::Storage>(product);
    using Family = TensorCores<Mode>;
    return Family::take(product) ? Family::workspace_bytes(product, held) : 0;
}

// @held_bytes deps: is_skinny, TensorCores
// The bytes that hold b[batches, n, k] as the kernels want it; 0 where they want it as it is.
template <typename Mode>
static int64_t held_bytes(const Product& product) {
    using Family = TensorCores<Mode>;
    if (is_skinny<Mode>(product, true) || !Family::take(product)) return 0;
    return Family::held_bytes(product.batches, product.n, product.k);
}

// @contract deps: InMemory, Memory, TensorCores, held_bytes, launch_fma_product, launch_short_sums, launch_skinny, sums_are_short, workspace_bytes
// Makes a product and hands its values, float32, to `epilogue(at, values)` with `at` the flat
// position (batch * m + row) * n + column of the first of 1, 2 or 4 neighbours in one row, at most
// Epilogue::kLanes. `narrow`: positions fit 32 bits; `aligned`: its pointers allow kLanes at once.
// kMaybeSkinny: not known to have many rows on both sides. Returns a CUDA error code.
template <typename Mode, bool kMaybeSkinny = true, typename Epilogue>
static int contract(const Product& product, const Memory& memory, const Epilogue& epilogue,
                    bool narrow, bool aligned, void* stream) {
    using T = typename Mode::Storage;
    const auto queue = static_cast<cudaStream_t>(stream);
    const auto sink = Sink<Epilogue>::of(epilogue, narrow, aligned,
                                         product.batches * product.m * product.n);
    const InMemory<T> a{static_cast<const T*>(product.a.data)};
    const bool skinny = kMaybeSkinny && is_skinny<Mode>(product, memory.held != nullptr);
    if constexpr (kMaybeSkinny) {
        // A warp's lanes would stand idle on dot products of a few k.
        constexpr int64_t kLeastAlong = 32;
        if (skinny &&
            (product.k >= kLeastAlong || Skinny::of(product).lies_across()))
            return launch_skinny<T>(product, sink, static_cast<float*>(memory.workspace), queue);
    }
    if constexpr (sizeof(T) == 4) {
        if (!skinny && sums_are_short<Mode>(product))
            return launch_short_sums<T>(product, sink, queue);
    }
    if (!skinny && TensorCores<Mode>::take(product))
        return TensorCores<Mode>::launch(product, memory, a, sink, queue);
    return launch_fma_product<T>(product, a, sink, nullptr, queue);
}

// @tensor_cores_none deps: TensorCores, Sink
// For devices whose tensor cores no kernel here uses.
template <typename Mode>
struct TensorCores {
    static bool take(const Product&) { return false; }
    static int64_t workspace_bytes(const Product&, bool) { return 0; }
    static int64_t held_bytes(int64_t, int64_t, int64_t) { return 0; }
    template <typename Source, typename Epilogue>
    static int launch(const Product&, const Memory&, const Source&, const Sink<Epilogue>&,
                      cudaStream_t) {
        return -1;
    }
};

}  // namespace op
