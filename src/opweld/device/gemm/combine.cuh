// How the kernels of a product give its values to the epilogue: at once, or, where a sum over k is
// made in parts by several blocks, as parts in memory that a second kernel adds in their order.
// The epilogue's code may be long: each kernel calls it from one place, in a loop.

namespace op {

// @EpilogueStore deps:
// Takes the values of a product, or with several parts of each sum those of one part: into `parts`
// [split][flat position].
template <typename Epilogue>
struct EpilogueStore {
    Epilogue epilogue;
    bool narrow;     // flat positions fit 32 bits
    bool paired;     // the epilogue takes two at even positions
    float* parts;    // null: straight to the epilogue
    int64_t extent;  // flat positions of the result

    static EpilogueStore of(const Epilogue& epilogue, bool narrow, bool aligned, int64_t extent) {
        return {epilogue, narrow, aligned && Epilogue::kLanes > 1, nullptr, extent};
    }
    template <int kCount>
    __device__ __forceinline__ void take(int64_t split, int64_t at,
                                         const float (&values)[kCount]) const {
        if (parts) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) parts[split * extent + at + i] = values[i];
        } else if (narrow) {
            epilogue(uint32_t(at), values);
        } else {
            epilogue(uint64_t(at), values);
        }
    }
};

// @give_tile deps: EpilogueStore
// A block gives what it has in shared memory: `rows` by `columns` of a tile of kColumns columns
// and kPitch floats a row, whose corner is flat position `at` of a result of n columns.
template <int kLanes, int kThreads, int kColumns, int kPitch, typename Epilogue>
OPWELD_FN void give_lanes(const EpilogueStore<Epilogue>& sink, int64_t split, const float* tile,
                          int rows, int columns, int64_t at, int64_t n) {
#pragma unroll 1
    for (int i = kLanes * int(threadIdx.x); i < rows * kColumns; i += kLanes * kThreads) {
        const int row = i / kColumns, column = i % kColumns;
        float values[kLanes];
#pragma unroll
        for (int j = 0; j < kLanes; ++j) values[j] = tile[row * kPitch + column + j];
        if (column < columns) sink.take(split, at + row * n + column, values);
    }
}
template <int kThreads, int kColumns, int kPitch, typename Epilogue>
OPWELD_FN void give_tile(const EpilogueStore<Epilogue>& sink, int64_t split, const float* tile,
                         int64_t rows, int64_t columns, int64_t at, int64_t n) {
    const int down = int(rows), across = int(columns < kColumns ? columns : kColumns);
    if constexpr (Epilogue::kLanes > 1) {
        if (sink.paired && at % 2 == 0 && n % 2 == 0) {
            give_lanes<2, kThreads, kColumns, kPitch>(sink, split, tile, down, across, at, n);
            return;
        }
    }
    give_lanes<1, kThreads, kColumns, kPitch>(sink, split, tile, down, across, at, n);
}

// @sum_of_parts deps:
// The parts of one sum, which lie `extent` apart: in their order, eight at a time, for long sums
// lose digits.
OPWELD_FN float sum_of_parts(const float* parts, int splits, int64_t extent) {
    constexpr int kTogether = 8;
    float total = 0.0f;
    for (int first = 0; first < splits; first += kTogether) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            if (first + i < splits) sum += parts[(first + i) * extent];
        }
        total += sum;
    }
    return total;
}

// @combine_parts deps: EpilogueStore, sum_of_parts
// Adds the parts of each sum and gives the epilogue the sums. Where `again` is given and not zero,
// another kernel makes the product.
template <int kLanes, typename Epilogue>
OPWELD_FN void combine_lanes(const EpilogueStore<Epilogue>& sink, const float* parts, int splits) {
    const int64_t step = int64_t(gridDim.x) * 256, thread = int64_t(blockIdx.x) * 256 + threadIdx.x;
    for (int64_t at = kLanes * thread; at < sink.extent; at += kLanes * step) {
        float sums[kLanes];
#pragma unroll
        for (int j = 0; j < kLanes; ++j)
            sums[j] = sum_of_parts(parts + at + j, splits, sink.extent);
        sink.take(0, at, sums);
    }
}
template <typename Epilogue>
__global__ void __launch_bounds__(256, 2)
    combine_parts_kernel(EpilogueStore<Epilogue> sink, int splits, const int* again) {
    if (again && *again != 0) return;
    const float* parts = sink.parts;
    sink.parts = nullptr;
    if constexpr (Epilogue::kLanes > 1) {
        if (sink.paired) {
            combine_lanes<2>(sink, parts, splits);
            return;
        }
    }
    combine_lanes<1>(sink, parts, splits);
}

// @in_parts deps: Launch, combine_parts
// Has `make` make a product, with `splits` > 1 as parts in memory, which are then added up.
template <typename Epilogue, typename Make>
static int in_parts(EpilogueStore<Epilogue> sink, int splits, float* parts, const int* again,
                    cudaStream_t stream, const Make& make) {
    constexpr int64_t kMostBlocks = 1 << 20;
    if (splits == 1) return make(sink);
    sink.parts = parts;
    const int error = make(sink);
    const int64_t blocks = (sink.extent + 255) / 256;
    if (error) return error;
    return Launch(blocks < kMostBlocks ? blocks : kMostBlocks, 256, 0, stream)
        .run(combine_parts_kernel<Epilogue>, sink, splits, again);
}

}  // namespace op
