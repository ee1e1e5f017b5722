// Matrix products on the CUDA cores: any strides, any extents, operands widened to float32. Fused
// multiply-adds, summed in slices and levels: Inf and NaN come out where SGEMM has them, and
// nothing is out of range that is in range for float32. One launch and no copies of operands: the
// fastest way for small products, too.

namespace op {

// @FmaTile deps:
// A block makes a square of the result. Warps with the same 32x32 of it share the terms of every
// stage, and so do the halves of a warp (sliced K): few small squares keep a multiprocessor busy.
template <int side>
struct FmaTile {
    static constexpr int kThreads = 256, kSide = side;  // rows and columns of a block
    static constexpr int kPart = 32;                    // of a warp
    static constexpr int kOwn = 8;                      // of a lane
    static constexpr int kParts = kSide / kPart;        // in a row of the block
    static constexpr int kSlices = kThreads / 32 / (kParts * kParts);
    // Stages are many and short: what is on its way covers the latency of memory.
    static constexpr int kStages = 4, kDepth = kSide == 32 ? 32 : 16;  // k of a stage
    static constexpr int kTerms = kDepth / kSlices;                    // of them, those of a warp
    static constexpr int kChunks = kTerms / 4;                         // read at once
    static constexpr bool kHasLevels = kSlices < 8;  // else a lane's sums are short enough
    static constexpr int kLoads = kSide * kDepth / kThreads;
    // Floats between rows: they stay aligned to 16 bytes, and those that are read at once lie in
    // different banks.
    static constexpr int kPitch = kDepth + 4, kSumPitch = kSide + 4;
    using Stage = float[kSide][kPitch];
    using Sums = float[kSide][kSumPitch];
    using Own = float[kOwn][kOwn];

    static __host__ __device__ int64_t count(int64_t extent) {
        return (extent + kSide - 1) / kSide;
    }
};

// @FmaMemory deps: FmaTile
// Of a block: stages of both operands, or the sums of every slice.
template <typename Tile>
union FmaMemory {
    typename Tile::Stage stages[Tile::kStages][2];
    typename Tile::Sums sums[Tile::kSlices];
};

// @FmaLoads deps: FmaTile, Operand
// What one thread loads of every stage of any operand, and stores after others are multiplied.
// Neighbouring threads take neighbours along the axis of the smaller stride.
template <typename Tile, typename Source>
struct FmaLoads {
    static constexpr int kUnrolled = 1;                          // stages: registers are short
    static constexpr int kDown = Tile::kThreads / Tile::kDepth;  // rows from one load to the next
    static constexpr int kDeep = Tile::kThreads / Tile::kSide;   // or k
    Source source;
    int64_t at;      // its first value of the next stage
    int64_t step;    // elements between its values
    int64_t deeper;  // elements between stages
    int64_t depth;   // k from the next stage on
    int row, rows, k;
    bool along;  // threads are neighbours along k
    float values[Tile::kLoads];

    OPWELD_FN FmaLoads over(const Source& source, const Operand& operand, int64_t batch,
                            int64_t first, int64_t end, int64_t depth) {
        const int thread = int(threadIdx.x);
        FmaLoads loads{source};
        loads.along = operand.inner <= operand.row;
        loads.row = loads.along ? thread / Tile::kDepth : thread % Tile::kSide;
        loads.k = loads.along ? thread % Tile::kDepth : thread / Tile::kSide;
        loads.step = loads.along ? kDown * operand.row : kDeep * operand.inner;
        loads.rows = int(end - first < Tile::kSide ? end - first : Tile::kSide);
        loads.depth = depth, loads.deeper = Tile::kDepth * operand.inner;
        loads.at =
            batch * operand.batch + (first + loads.row) * operand.row + loads.k * operand.inner;
        return loads;
    }
    // Starts to bring the next stage; zeros stand beyond the edges.
    __device__ __forceinline__ void fetch(typename Tile::Stage&) {
#pragma unroll
        for (int i = 0; i < Tile::kLoads; ++i) {
            const bool exists = row_of(i) < rows && k_of(i) < depth;
            values[i] = exists ? source.one(at + i * step) : 0.0f;
        }
        at += deeper, depth -= Tile::kDepth;
    }
    // What was fetched last goes to the stage.
    __device__ __forceinline__ void keep(typename Tile::Stage& stage) const {
#pragma unroll
        for (int i = 0; i < Tile::kLoads; ++i) stage[row_of(i)][k_of(i)] = values[i];
    }
    __device__ __forceinline__ int row_of(int i) const { return row + (along ? i * kDown : 0); }
    __device__ __forceinline__ int k_of(int i) const { return k + (along ? 0 : i * kDeep); }
};

// @FmaLane deps: FmaMemory, load_vector
// What a lane makes: every fourth row and column of its warp's square, each half of the warp of two
// terms in four.
template <typename Tile>
struct FmaLane {
    static constexpr int kApart = Tile::kPart / Tile::kOwn;  // its rows, and its columns
    int slice, half, row, column;

    OPWELD_FN FmaLane own() {
        const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
        const int part = warp / Tile::kSlices;
        return {warp % Tile::kSlices, lane / 16,
                part / Tile::kParts * Tile::kPart + lane % 16 / kApart,
                part % Tile::kParts * Tile::kPart + lane % kApart};
    }
    // Two terms of all its sums.
    struct Terms {
        Vector<float, 2> down[Tile::kOwn], across[Tile::kOwn];
    };
    // Chunk 0 <= i < kChunks of its terms of a stage.
    __device__ __forceinline__ Terms of(const typename Tile::Stage (&stage)[2], int chunk) const {
        const int at = slice * Tile::kTerms + 4 * chunk + 2 * half;
        Terms terms;
#pragma unroll
        for (int i = 0; i < Tile::kOwn; ++i) {
            terms.down[i] = load_vector<2>(&stage[0][row + i * kApart][at]);
            terms.across[i] = load_vector<2>(&stage[1][column + i * kApart][at]);
        }
        return terms;
    }
    static __device__ __forceinline__ void add(const Terms& terms, typename Tile::Own& sums) {
#pragma unroll
        for (int k = 0; k < 2; ++k)
#pragma unroll
            for (int i = 0; i < Tile::kOwn; ++i)
#pragma unroll
                for (int j = 0; j < Tile::kOwn; ++j)
                    sums[i][j] = fmaf(terms.down[i].lane[k], terms.across[j].lane[k], sums[i][j]);
    }
    // `sums` go to `all` and begin anew.
    static __device__ __forceinline__ void move(typename Tile::Own& all, typename Tile::Own& sums) {
#pragma unroll
        for (int i = 0; i < Tile::kOwn; ++i)
#pragma unroll
            for (int j = 0; j < Tile::kOwn; ++j) all[i][j] += sums[i][j], sums[i][j] = 0.0f;
    }
    // The sums of both halves, each of which stores some rows.
    __device__ __forceinline__ void keep(FmaMemory<Tile>& memory, typename Tile::Own& all) const {
        constexpr int kEach = Tile::kOwn / 2;
#pragma unroll
        for (int i = 0; i < Tile::kOwn; ++i)
#pragma unroll
            for (int j = 0; j < Tile::kOwn; ++j) all[i][j] += __shfl_xor_sync(~0u, all[i][j], 16);
#pragma unroll
        for (int i = 0; i < kEach; ++i)
#pragma unroll
            for (int j = 0; j < Tile::kOwn; ++j)
                memory.sums[slice][row + (i + half * kEach) * kApart][column + j * kApart] =
                    half ? all[i + kEach][j] : all[i][j];
    }
};

// @add_slices deps: FmaMemory
// The sums of all slices to the first one's; each thread has elements of its own.
template <typename Tile>
OPWELD_FN void add_slices(FmaMemory<Tile>& memory) {
#pragma unroll
    for (int i = int(threadIdx.x); i < Tile::kSide * Tile::kSide; i += Tile::kThreads) {
        const int row = i / Tile::kSide, column = i % Tile::kSide;
        float sum = 0.0f;
#pragma unroll
        for (int slice = 0; slice < Tile::kSlices; ++slice) sum += memory.sums[slice][row][column];
        memory.sums[0][row][column] = sum;
    }
}

// @fma_product_kernel deps: FmaLane, InMemory, Product, add_slices, copy_groups, dependents, give_tile
// The whole product, tile by tile, the values of a from `source` and those of b, of type T, brought
// as A and B do. Where `needed` is given and zero, another kernel has made it.
// Long sums lose less in levels: those of some stages are added up apart, as many as the square
// root of all that a lane adds, and slices at last.
template <typename Tile, typename A, typename B, typename T, typename Source, typename Epilogue>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    fma_product_kernel(Product product, Source source, EpilogueStore<Epilogue> sink,
                       const int* needed) {
    constexpr int kStages = Tile::kStages, kSide = Tile::kSide;
    constexpr int kLanes = 2 * Tile::kSlices;  // with the same sums
    constexpr int kLeast = 2;                  // times all stages
    __shared__ __align__(16) FmaMemory<Tile> memory;
    griddepcontrol_wait();
    if (needed && *needed == 0) return;
    const auto lane = FmaLane<Tile>::own();
    const int64_t down = Tile::count(product.m), across = Tile::count(product.n);
    const int apart =
        max(kLeast, int(sqrtf(float(product.k) / kLanes)) * kLanes / (kStages * Tile::kDepth));
    for (int64_t tile = blockIdx.x; tile < product.batches * down * across; tile += gridDim.x) {
        const int64_t batch = tile / (down * across), in_batch = tile % (down * across);
        const int64_t m = in_batch / across * kSide, n = in_batch % across * kSide;
        const InMemory<T> of_b{static_cast<const T*>(product.b.data)};
        auto a = A::over(source, product.a, batch, m, product.m, product.k);
        auto b = B::over(of_b, product.b, batch, n, product.n, product.k);
        typename Tile::Own sums = {}, all = {};
        __syncthreads();  // all have given the tile before
#pragma unroll 1
        for (int i = 0; i < kStages - 1; ++i) {
            a.fetch(memory.stages[i][0]);
            b.fetch(memory.stages[i][1]);
            commit_copies();
            a.keep(memory.stages[i][0]);
            b.keep(memory.stages[i][1]);
        }
        await_copies<kStages - 2>();
        __syncthreads();
        auto terms = lane.of(memory.stages[0], 0);
        int left = apart;
#pragma unroll 1
        for (int64_t depth = product.k; depth > 0;) {
#pragma unroll A::kUnrolled
            for (int slot = 0; slot < kStages; ++slot, depth -= Tile::kDepth) {
                if (depth <= 0) break;
                auto& filled = memory.stages[(slot + kStages - 1) % kStages];
                a.fetch(filled[0]);
                b.fetch(filled[1]);
                commit_copies();
#pragma unroll
                for (int chunk = 1; chunk <= Tile::kChunks; ++chunk) {
                    const bool is_last = chunk == Tile::kChunks;
                    if (is_last) {
                        await_copies<kStages - 2>();
                        __syncthreads();  // the next stage is there, and all have read this one
                    }
                    const auto ahead =
                        lane.of(memory.stages[(slot + is_last) % kStages], is_last ? 0 : chunk);
                    lane.add(terms, sums);
                    terms = ahead;
                }
                a.keep(filled[0]);
                b.keep(filled[1]);
            }
            if (Tile::kHasLevels && --left == 0) {
                lane.move(all, sums);
                left = apart;
            }
        }
        if (Tile::kHasLevels) lane.move(all, sums);
        await_copies<0>();
        __syncthreads();
        lane.keep(memory, Tile::kHasLevels ? all : sums);
        __syncthreads();
        add_slices(memory);
        __syncthreads();
        const int64_t rows = product.m - m < kSide ? product.m - m : kSide;
        give_tile<Tile::kThreads, kSide, Tile::kSumPitch>(
            sink, 0, &memory.sums[0][0][0], rows, product.n - n,
            (batch * product.m + m) * product.n + n, product.n);
    }
}

// @launch_fma deps: Launch, fma_product_kernel, num_multiprocessors, starts_early
// Few blocks, each with many tiles: to start and end one for each tile takes longer than memory
// where there is nothing to do.
template <typename Tile, typename A, typename B, typename T, typename Source, typename Epilogue>
static int launch_fma(const Product& product, const Source& source,
                      const EpilogueStore<Epilogue>& sink, const int* needed, cudaStream_t stream) {
    const int64_t tiles = product.batches * Tile::count(product.m) * Tile::count(product.n);
    const int64_t most = 2 * num_multiprocessors();
    Launch launch(tiles < most ? tiles : most, Tile::kThreads, 0, stream);
    if (starts_early()) launch.start_early();
    return launch.run(fma_product_kernel<Tile, A, B, T, Source, Epilogue>, product, source, sink,
                      needed);
}

// @launch_fma_product deps: FmaLoads, InMemory, launch_fma
// The product of operands of type T by the CUDA cores, and its epilogue; the values of a come from
// `source`. `needed`: null, or where the device says whether the kernel has anything to do.
template <typename T, int side = 64, typename Source, typename Epilogue>
static int launch_fma_product(const Product& product, const Source& source,
                              const EpilogueStore<Epilogue>& sink, const int* needed,
                              cudaStream_t stream) {
    using Tile = FmaTile<side>;
    return launch_fma<Tile, FmaLoads<Tile, Source>, FmaLoads<Tile, InMemory<T>>, T>(
        product, source, sink, needed, stream);
}

// @FmaCopies deps: FmaTile, InMemory, Operand, copy_async, shared_address
// What one thread copies of every stage of an operand: four floats along k, while others are
// multiplied.
template <typename Tile>
struct FmaCopies {
    static constexpr int kUnrolled = Tile::kStages, kAcross = Tile::kDepth / 4;
    static_assert(Tile::kLoads == 4, "a thread has one copy of a stage");
    const float* from;  // its values of the next stage
    int left;           // k from them on
    unsigned to;        // a stage's place of them, from the stage on

    static bool takes(const Operand& operand, int64_t depth) {
        return operand.inner == 1 && operand.row > 0 && depth < (1ll << 31) &&
               (operand.batch | operand.row | depth) % 4 == 0 &&
               reinterpret_cast<uintptr_t>(operand.data) % 16 == 0;
    }
    OPWELD_FN FmaCopies over(const InMemory<float>& source, const Operand& operand, int64_t batch,
                             int64_t first, int64_t end, int64_t depth) {
        const int row = int(threadIdx.x) / kAcross, k = int(threadIdx.x) % kAcross * 4;
        // Rows beyond the edge give results that nobody takes: any row is as good.
        const int64_t from = first + (row < end - first ? row : 0);
        return {source.data + batch * operand.batch + from * operand.row + k, int(depth) - k,
                unsigned(sizeof(float)) * (row * Tile::kPitch + k)};
    }
    // Starts to bring the next stage; zeros stand beyond the last k.
    __device__ __forceinline__ void fetch(typename Tile::Stage& stage) {
        copy_async(shared_address(&stage) + to, from, left > 0 ? 16 : 0);
        from += Tile::kDepth, left -= Tile::kDepth;
    }
    __device__ __forceinline__ void keep(typename Tile::Stage&) const {}
};

// @FmaTiles deps: FmaCopies, Form, launch_fma_product
// Products on the CUDA cores, a square of `side` rows and columns, 32 or 64, at a time: all, or
// those of up to `most` squares.
template <typename T, int side = 64, int64_t most = 0>
struct FmaTiles : Form {
    using Tile = FmaTile<side>;
    static bool takes(const Product& p) {
        return most == 0 || p.batches * Tile::count(p.m) * Tile::count(p.n) <= most;
    }
    template <typename Source, typename Epilogue>
    static int launch(const Product& p, const Memory&, const Source& source,
                      const EpilogueStore<Epilogue>& sink, cudaStream_t stream) {
        if constexpr (std::is_same_v<Source, InMemory<float>> && std::is_same_v<T, float>) {
            using Copies = FmaCopies<Tile>;
            if (Copies::takes(p.a, p.k) && Copies::takes(p.b, p.k))
                return launch_fma<Tile, Copies, Copies, T>(p, source, sink, nullptr, stream);
        }
        return launch_fma_product<T, side>(p, source, sink, nullptr, stream);
    }
};

}  // namespace op
