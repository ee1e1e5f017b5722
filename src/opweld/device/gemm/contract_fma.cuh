// Matrix products on the CUDA cores: any strides, any extents, operands widened to float32. Fused
// multiply-adds in the order of k, summed in three levels: Inf and NaN come out where SGEMM has
// them, and nothing is out of range that is in range for float32.

namespace op {

// @FmaTile deps:
// A block makes a square of the result; each thread a square of it.
struct FmaTile {
    static constexpr int kThreads = 256, kSide = 64;  // rows and columns of a block
    static constexpr int kOwn = 4;                    // rows and columns of a thread
    static constexpr int kAcross = kSide / kOwn;      // threads in a row of the block
    static constexpr int kDepth = 16;                 // k of a stage
    static constexpr int kPitch = kSide + 4;          // floats: rows stay aligned to 16 bytes
    static constexpr int kLoads = kSide * kDepth / kThreads;
    using Stage = float[kDepth][kPitch];

    static __host__ __device__ int64_t count(int64_t extent) {
        return (extent + kSide - 1) / kSide;
    }
};

// @FmaLoads deps: FmaTile, InMemory, Operand
// What one thread brings of every stage of an operand. Neighbouring threads take neighbours along
// the axis of the smaller stride.
template <typename Source>
struct FmaLoads {
    Source source;
    int64_t at;      // its first value of the next stage
    int64_t step;    // elements between its values
    int64_t deeper;  // elements between stages
    int row, row_step, rows, k, k_step;

    OPWELD_FN FmaLoads over(const Source& source, const Operand& operand, int64_t batch,
                            int64_t first, int64_t end) {
        constexpr int kDown = FmaTile::kThreads / FmaTile::kDepth;
        constexpr int kDeep = FmaTile::kThreads / FmaTile::kSide;
        const int thread = int(threadIdx.x);
        FmaLoads loads{source};
        if (operand.inner <= operand.row) {
            loads.row = thread / FmaTile::kDepth, loads.k = thread % FmaTile::kDepth;
            loads.row_step = kDown, loads.k_step = 0, loads.step = kDown * operand.row;
        } else {
            loads.row = thread % FmaTile::kSide, loads.k = thread / FmaTile::kSide;
            loads.row_step = 0, loads.k_step = kDeep, loads.step = kDeep * operand.inner;
        }
        loads.rows = int(end - first < FmaTile::kSide ? end - first : FmaTile::kSide);
        loads.deeper = FmaTile::kDepth * operand.inner;
        loads.at =
            batch * operand.batch + (first + loads.row) * operand.row + loads.k * operand.inner;
        return loads;
    }

    // The values of the next stage, of which `depth` k exist; zeros stand beyond the edges.
    __device__ __forceinline__ void bring(float (&values)[FmaTile::kLoads], int64_t depth) {
#pragma unroll
        for (int i = 0; i < FmaTile::kLoads; ++i) {
            const bool inside = row + i * row_step < rows && k + i * k_step < depth;
            values[i] = inside ? source.one(at + i * step) : 0.0f;
        }
        at += deeper;
    }

    __device__ __forceinline__ void keep(FmaTile::Stage& stage,
                                         const float (&values)[FmaTile::kLoads]) const {
#pragma unroll
        for (int i = 0; i < FmaTile::kLoads; ++i)
            stage[k + i * k_step][row + i * row_step] = values[i];
    }
};

// @fma_stage deps: FmaTile, load_vector
// adds the products of one stage to a thread's sums
OPWELD_FN void fma_stage(const FmaTile::Stage& a, const FmaTile::Stage& b, int row, int column,
                         float (&sums)[FmaTile::kOwn][FmaTile::kOwn]) {
#pragma unroll
    for (int k = 0; k < FmaTile::kDepth; ++k) {
        const auto down = load_vector<FmaTile::kOwn>(&a[k][row]);
        const auto across = load_vector<FmaTile::kOwn>(&b[k][column]);
#pragma unroll
        for (int i = 0; i < FmaTile::kOwn; ++i)
#pragma unroll
            for (int j = 0; j < FmaTile::kOwn; ++j)
                sums[i][j] = fmaf(down.lane[i], across.lane[j], sums[i][j]);
    }
}

// @add_sums deps: FmaTile
// `sums` go to `all` and begin anew
OPWELD_FN void add_sums(float (&all)[FmaTile::kOwn][FmaTile::kOwn],
                        float (&sums)[FmaTile::kOwn][FmaTile::kOwn]) {
#pragma unroll
    for (int i = 0; i < FmaTile::kOwn; ++i)
#pragma unroll
        for (int j = 0; j < FmaTile::kOwn; ++j) all[i][j] += sums[i][j], sums[i][j] = 0.0f;
}

// @fma_product_kernel deps: add_sums, FmaLoads, Product, dependents, fma_stage, give_tile
// The whole product, tile by tile, the values of a from `source` and those of b, of type T, as they
// lie. Where `needed` is given and zero, another kernel has made it.
// Long sums lose less in levels: those of some stages are added up apart, and so are as many of
// these as the square root of their number.
template <typename T, typename Source, typename Epilogue>
__global__ void __launch_bounds__(FmaTile::kThreads, 1)
    fma_product_kernel(Product product, Source source, EpilogueStore<Epilogue> sink,
                       const int* needed) {
    constexpr int kSide = FmaTile::kSide, kOwn = FmaTile::kOwn, kPitch = FmaTile::kPitch;
    __shared__ __align__(16) float memory[kSide][kPitch];  // two stages, at the end the tile
    griddepcontrol_wait();
    if (needed && *needed == 0) return;
    auto& a_stage = *reinterpret_cast<FmaTile::Stage*>(&memory[0]);
    auto& b_stage = *reinterpret_cast<FmaTile::Stage*>(&memory[FmaTile::kDepth]);
    const int row = int(threadIdx.x) / FmaTile::kAcross * kOwn;
    const int column = int(threadIdx.x) % FmaTile::kAcross * kOwn;
    const int64_t down = FmaTile::count(product.m), across = FmaTile::count(product.n);
    const int near = max(1, int(cbrtf(float(product.k))) / FmaTile::kDepth);  // stages
    const int apart = max(2, int(sqrtf(float(product.k) / float(near * FmaTile::kDepth))));
    for (int64_t tile = blockIdx.x; tile < product.batches * down * across; tile += gridDim.x) {
        const int64_t batch = tile / (down * across), in_batch = tile % (down * across);
        const int64_t m = in_batch / across * kSide, n = in_batch % across * kSide;
        const InMemory<T> of_b{static_cast<const T*>(product.b.data)};
        auto a = FmaLoads<Source>::over(source, product.a, batch, m, product.m);
        auto b = FmaLoads<InMemory<T>>::over(of_b, product.b, batch, n, product.n);
        float sums[kOwn][kOwn] = {}, some[kOwn][kOwn] = {}, all[kOwn][kOwn] = {};
        float a_next[FmaTile::kLoads], b_next[FmaTile::kLoads];
        int left = near, left_apart = apart;
        a.bring(a_next, product.k);
        b.bring(b_next, product.k);
        for (int64_t depth = product.k; depth > 0; depth -= FmaTile::kDepth) {
            __syncthreads();  // all have read the previous stage, or tile
            a.keep(a_stage, a_next);
            b.keep(b_stage, b_next);
            __syncthreads();
            a.bring(a_next, depth - FmaTile::kDepth);  // on its way during the arithmetic
            b.bring(b_next, depth - FmaTile::kDepth);
            fma_stage(a_stage, b_stage, row, column, sums);
            if (--left == 0) {
                add_sums(some, sums);
                left = near;
                if (--left_apart == 0) {
                    add_sums(all, some);
                    left_apart = apart;
                }
            }
        }
        add_sums(some, sums);
        add_sums(all, some);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            *reinterpret_cast<float4*>(&memory[row + i][column]) =
                make_float4(all[i][0], all[i][1], all[i][2], all[i][3]);
        }
        __syncthreads();
        const int64_t rows = product.m - m < kSide ? product.m - m : kSide;
        give_tile<FmaTile::kThreads, kSide, kPitch>(sink, 0, &memory[0][0], rows, product.n - n,
                                                    (batch * product.m + m) * product.n + n,
                                                    product.n);
    }
}

// @launch_fma_product deps: Launch, fma_product_kernel, num_multiprocessors, starts_early
// The product of operands of type T by the CUDA cores, and its epilogue; the values of a come from
// `source`. `needed`: null, or where the device says whether the kernel has anything to do. Few
// blocks, each with many tiles: to start and end one for each tile takes longer than memory where
// there is nothing to do.
template <typename T, typename Source, typename Epilogue>
static int launch_fma_product(const Product& product, const Source& source,
                              const EpilogueStore<Epilogue>& sink, const int* needed,
                              cudaStream_t stream) {
    const int64_t tiles = product.batches * FmaTile::count(product.m) * FmaTile::count(product.n);
    const int64_t most = 2 * num_multiprocessors();
    Launch launch(tiles < most ? tiles : most, FmaTile::kThreads, 0, stream);
    if (needed && starts_early()) launch.start_early();
    return launch.run(fma_product_kernel<T, Source, Epilogue>, product, source, sink, needed);
}

// @FmaTiles deps: Form, launch_fma_product
// All products, on the CUDA cores.
template <typename T>
struct FmaTiles : Form {
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory&, const Source& source,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        return launch_fma_product<T>(p, source, sink, nullptr, stream);
    }
};

}  // namespace op
