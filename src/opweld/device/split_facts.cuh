// What has to be known of b before it can be split: the largest of each column, then that of each row.
// b is read straight along memory, many packets at a time; what is found is the same in any order.

namespace op {

// @Lines deps: lies_across
// b as it lies in memory: `count` lines of `length` neighbours, a line one row or, where b lies
// across, one k of all rows. A warp reads kPlaces neighbours of kLines lines at once, the eight of a
// block kLinesOfBlock lines, `steps` times: along the lines or from line to line.
[[maybe_unused]] constexpr int kLines = 4, kPlaces = 128, kLinesOfBlock = 8 * kLines;

struct Lines {
    Operand from;  // from line to line its rows
    int64_t batches, count, length;
    int steps;
    bool across, packets;

    static Lines of(const Operand& b, int64_t batches, int64_t rows, int64_t k, bool packets) {
        constexpr int64_t kBlocks = 8 * 132, kMostSteps = 8;  // blocks that keep the memory busy
        const bool across = lies_across(b);
        Lines lines{across ? turned(b) : b, batches, across ? k : rows, across ? rows : k, 1,
                    across, packets};
        const int64_t steps = lines.blocks(true) / kBlocks;
        lines.steps = int(steps < 1 ? 1 : steps < kMostSteps ? steps : kMostSteps);
        return lines;
    }
    // of one block, by the direction of its steps
    __host__ __device__ int64_t high(bool along) const {
        return kLinesOfBlock * int64_t(along ? 1 : steps);
    }
    __host__ __device__ int64_t wide(bool along) const {
        return kPlaces * int64_t(along ? steps : 1);
    }
    __host__ __device__ int64_t blocks(bool along) const {
        return batches * ((count + high(along) - 1) / high(along)) *
               ((length + wide(along) - 1) / wide(along));
    }
};

// The part of a block: neighbouring blocks lie side by side in a line.
struct LinesAt {
    int64_t batch, line, place;  // the first
    bool whole;                  // all of it is there, and may be read in packets

    __device__ __forceinline__ LinesAt(const Lines& b, int64_t index, bool along) {
        const int64_t wide = b.wide(along), high = b.high(along);
        const int64_t across = (b.length + wide - 1) / wide, down = (b.count + high - 1) / high;
        place = index % across * wide;
        line = index / across % down * high;
        batch = index / across / down;
        whole = b.packets && line + high <= b.count && place + wide <= b.length;
    }
};

// @Largest deps: CallState
// The bits of the largest absolute value of a column, or of a row, equilibrated.
template <bool kColumns>
struct Largest {
    static constexpr bool kOfColumns = kColumns;
    uint32_t most;

    __device__ __forceinline__ void add(float size) { most = max(most, __float_as_uint(size)); }
    __device__ __forceinline__ void join(const Largest& other) { most = max(most, other.most); }
    __device__ __forceinline__ Largest of_lane(int step) const {
        return {__shfl_xor_sync(~0u, most, step)};
    }
    __device__ __forceinline__ void give(const CallState& call, int64_t place) const {
        atomicMax((kColumns ? call.column_max : call.row_max) + place, most);
    }
};

// @read_lines deps: Lines, ReadFour
// Four neighbours of each of kLines lines; `left` exist of a line, `lines` of the lines.
template <typename T, bool kWhole>
OPWELD_FN void read_lines(Four (&v)[kLines], const Lines& b, const T* p, int64_t left,
                          int64_t lines) {
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
        v[i] = read_values<T, kWhole>(p + i * b.from.row, b.from.inner, i < lines ? left : 0,
                                      b.packets);
    }
}

template <typename T>
OPWELD_FN const T* line_at(const Lines& b, int64_t batch, int64_t line, int64_t place) {
    return static_cast<const T*>(b.from.data) + batch * b.from.batch + line * b.from.row +
           place * b.from.inner;
}

// @facts_along deps: read_lines, equilibrated
// Facts of lines: each warp has lines of its own.
template <typename Fact, typename T, bool kWhole>
OPWELD_FN void facts_along(const Lines& b, const LinesAt& at, const CallState& call) {
    const int64_t line = at.line + threadIdx.x / 32 * kLines;
    int64_t place = at.place + threadIdx.x % 32 * 4;
    const T* p = line_at<T>(b, at.batch, line, place);
    Fact facts[kLines] = {};
#pragma unroll 1
    for (int step = 0; step < b.steps; ++step, place += kPlaces, p += kPlaces * b.from.inner) {
        Four v[kLines];
        read_lines<T, kWhole>(v, b, p, b.length - place, b.count - line);
        Four factors{{1.0f, 1.0f, 1.0f, 1.0f}};
        if (!Fact::kOfColumns) {
            factors = column_factors<kWhole>(call.column_max, place, b.length, -1);
        }
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) facts[i].add(fabsf(v[i].x[j]) * factors.x[j]);
        }
    }
#pragma unroll
    for (int i = 0; i < kLines; ++i) {
#pragma unroll
        for (int step = 16; step; step /= 2) facts[i].join(facts[i].of_lane(step));
        if (threadIdx.x % 32 || line + i >= b.count) continue;
        facts[i].give(call, Fact::kOfColumns ? line + i : at.batch * b.count + line + i);
    }
}

// @facts_from_line_to_line deps: read_lines, equilibrated
// Facts of places: each thread has four in all lines of its warp, whose facts the block joins.
template <typename Fact>
using Joint = Fact[8][kPlaces];

template <typename Fact, typename T, bool kWhole>
OPWELD_FN void facts_from_line_to_line(const Lines& b, const LinesAt& at, const CallState& call,
                                       Joint<Fact>& joint) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t left = b.length - at.place - lane * 4;
    int64_t line = at.line + warp * kLines;
    const T* p = line_at<T>(b, at.batch, line, at.place + lane * 4);
    Fact facts[4] = {};
#pragma unroll 1
    for (int step = 0; step < b.steps;
         ++step, line += kLinesOfBlock, p += kLinesOfBlock * b.from.row) {
        Four v[kLines];
        read_lines<T, kWhole>(v, b, p, left, b.count - line);
        Four factors{{1.0f, 1.0f, 1.0f, 1.0f}};
        if (!Fact::kOfColumns) {
            factors = column_factors<kWhole>(call.column_max, line, b.count, -1);
        }
#pragma unroll
        for (int i = 0; i < kLines; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) facts[j].add(fabsf(v[i].x[j]) * factors.x[i]);
        }
    }
    __syncthreads();  // what the block joined before has been read
#pragma unroll
    for (int j = 0; j < 4; ++j) joint[warp][lane * 4 + j] = facts[j];
    __syncthreads();
    const int64_t place = at.place + threadIdx.x;
    if (threadIdx.x >= kPlaces || place >= b.length) return;
    Fact all = joint[0][threadIdx.x];
#pragma unroll
    for (int i = 1; i < 8; ++i) all.join(joint[i][threadIdx.x]);
    all.give(call, Fact::kOfColumns ? place : at.batch * b.length + place);
}

// @facts_of deps: facts_along, facts_from_line_to_line
// The facts of one block's part of b.
template <typename Fact, typename T>
OPWELD_FN void facts_of(const Lines& b, int64_t index, const CallState& call, Joint<Fact>& joint) {
    const bool along = b.across == Fact::kOfColumns;
    const LinesAt at(b, index, along);
    if (along) {
        at.whole ? facts_along<Fact, T, true>(b, at, call)
                 : facts_along<Fact, T, false>(b, at, call);
    } else {
        at.whole ? facts_from_line_to_line<Fact, T, true>(b, at, call, joint)
                 : facts_from_line_to_line<Fact, T, false>(b, at, call, joint);
    }
}

// @facts_kernel deps: Largest, facts_of
template <typename Fact, typename T>
static __global__ void __launch_bounds__(256, 4)
    facts_kernel(const Lines b, const CallState call) {
    __shared__ Joint<Fact> joint;
    facts_of<Fact, T>(b, blockIdx.x, call, joint);
}

}  // namespace op
