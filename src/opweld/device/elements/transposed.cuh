// Functors of which some operands are contiguous along another axis than others. A block computes a
// tile of both axes: its threads run along the one along which most bytes are contiguous, and what
// is contiguous along the other one comes and goes through shared memory.

namespace op {

// @pointwise_transposed deps: pointwise, load_words
// A call by tiles: its axes are those of a tile, the threads' own first, and all others.
template <typename F, int kCount>
struct TileLayout : ElementLayout<F::kRank, kCount> {
    Divisor tile[2], tiles[F::kRank + 1];  // sizes of a tile, and how many there are along an axis
    int pitches[kCount] = {}, begins[kCount] = {};  // of an operand's tile in shared memory
    bool through[kCount], wide = true;  // it has one; neighbours in all can be moved at once
    int64_t num, bytes = 0;  // tiles, none where they gain nothing; the memory that one takes

    TileLayout(const ElementLayout<F::kRank, kCount>& all, const int (&item_bytes)[kCount])
        : ElementLayout<F::kRank, kCount>(all) {
        auto& sizes = this->sizes;
        auto& strides = this->strides;
        const auto contiguous = [&](int a, int other) {
            int sum = 0;
            for (int i = 0; i < kCount; ++i) {
                if (strides[a][i] == 1 && strides[other][i] > 1) sum += item_bytes[i];
            }
            return sum;
        };
        int second = 0;
        for (int a = 1, most = 0; a < this->num_axes; ++a) {
            if (contiguous(a, 0) > most) most = contiguous(second = a, 0);
        }
        num = second > 0 && sizes[0].by * sizes[second].by >= F::kThreads;
        if (num == 0) return;
        std::swap(sizes[1], sizes[second]), std::swap(strides[1], strides[second]);
        // Operands that are the same along the other axis, where a thread stays at its place.
        const auto kept = [&](int a) {
            int num = 0;
            for (int i = 0; i < kCount; ++i) num += strides[1 - a][i] == 0 && strides[a][i] != 0;
            return sizes[a].by % 64 == 0 || 64 % sizes[a].by == 0 ? num : 0;
        };
        const int more = contiguous(1, 0) - contiguous(0, 1);
        if (more > 0 || (more == 0 && kept(1) > kept(0))) {
            std::swap(sizes[0], sizes[1]), std::swap(strides[0], strides[1]);
        }
        cut();
        for (int i = 0; i < kCount; ++i) place(i, item_bytes[i]);
        if (num >= 1ll << 31 || bytes > 48 * 1024) num = 0;
    }
    // Four packets for each thread. An axis that is short, or that no packet ends with, is whole:
    // of the second kind there are two, which take longer to find their places. Others are cut
    // evenly, for a tile that is not full has no packets; what a tile has of one beside a short one
    // is whole cache lines.
    void cut() {
        constexpr int kWidth = F::kWidth, kMost = 4 * F::kThreads * kWidth;
        constexpr int kRows = kWidth < 8 ? 32 : 64;
        int64_t most[] = {kMost / kRows, kRows};
        for (int a : {1, 0}) {
            const int64_t size = this->sizes[a].by;
            const bool odd = size % kWidth != 0, whole = size <= (odd ? 256 : most[a]);
            if (!whole) continue;
            const int64_t rest = kMost / (odd ? 2 : 1) / size;
            const bool lines = rest >= kRows && rest < this->sizes[1 - a].by;
            most[a] = size, most[1 - a] = lines ? rest / kRows * kRows : rest;
        }
        for (int a = 0; a < this->num_axes; ++a) {
            const int64_t size = this->sizes[a].by;
            int64_t each = a < 2 ? size : 1;
            if (a < 2 && size > most[a]) {
                const int64_t parts = (size - 1) / (most[a] / kWidth * kWidth) + 1;
                each = ((size - 1) / parts / kWidth + 1) * kWidth;
            }
            if (a < 2) tile[a] = each;
            tiles[a] = (size - 1) / each + 1;
            num *= tiles[a].by;
        }
    }
    void place(int i, int item_bytes) {
        constexpr int kWidth = F::kWidth;
        const auto& strides = this->strides;
        through[i] = strides[1][i] == 1 && strides[0][i] > 1;
        const int own = through[i], other = 1 - own, items = std::max(1, 4 / item_bytes);
        const int64_t row = tile[own].by, step = strides[other][i];
        const uintptr_t address = reinterpret_cast<uintptr_t>(this->data[i]);
        const bool dense = step == row && row == this->sizes[own].by;  // one row after the other
        bool packed = address % std::min(16, kWidth * item_bytes) == 0 && strides[own][i] == 1 &&
                      (dense || (row % kWidth == 0 && step % kWidth == 0));
        for (int a = 2; a < this->num_axes; ++a) packed &= strides[a][i] % kWidth == 0;
        this->packed[i] = packed;
        wide &= packed || strides[0][i] == 0 || strides[1][i] == 0;
        if (!through[i]) return;
        pitches[i] = ((row - 1) / items + 1 | 1) * items, begins[i] = bytes;  // odd: of all banks
        bytes += (tile[0].by * pitches[i] * item_bytes + 15) / 16 * 16;
    }
};
// An operand's elements of a tile, in its own memory or in shared memory.
template <typename T, typename Step>
struct TilePart {
    T* data;
    Step steps[2];
    bool packed;
};
// n neighbours in a tile: along axis kAlong, and from its end on along the next row.
template <int n, int kAlong>
struct TilePlaces {
    int size, at[2], left[2];  // of the axis; elements beyond those left are none
    bool whole, in_row;

    template <typename Layout>
    __device__ __forceinline__ TilePlaces(const Layout& all, const int (&left)[2], uint32_t number)
        : size(all.tile[kAlong].by), left{left[0], left[1]} {
        const int row = all.tile[kAlong].quotient(number), last = number + n - 1 - row * size;
        at[kAlong] = number - row * size, at[1 - kAlong] = row;
        in_row = last < left[kAlong];
        const int further = last < size ? 0 : all.tile[kAlong].quotient(uint32_t(last));
        whole = (in_row || last >= size) && row + further < left[1 - kAlong];
    }
    // Calls visit(i, its element of x) for all that are there.
    template <typename T, typename Step, typename Visit>
    __device__ __forceinline__ void each(const TilePart<T, Step>& x, Visit visit) const {
        const Step step = x.steps[kAlong], back = x.steps[1 - kAlong] - size * step;
        T* element = begin(x);
        if (whole && in_row) {
#pragma unroll
            for (int i = 0; i < n; ++i) visit(i, element + i * step);
            return;
        }
        int own = at[kAlong], row = at[1 - kAlong];
#pragma unroll
        for (int i = 0; i < n; ++i, element += step) {
            if (own < left[kAlong] && row < left[1 - kAlong]) visit(i, element);
            if (++own == size) own = 0, ++row, element += back;
        }
    }
    template <typename T, typename Step>
    __device__ __forceinline__ T* begin(const TilePart<T, Step>& x) const {
        return x.data + (at[0] * x.steps[0] + at[1] * x.steps[1]);
    }
};
template <typename T, typename Step, int n, int kAlong>
OPWELD_FN Pack<T, n> packet(const TilePart<T, Step>& x, const TilePlaces<n, kAlong>& places) {
    return load_words(reinterpret_cast<const Pack<T, n>*>(places.begin(x)),
                      [](const auto* word) { return *word; });
}
template <typename T, typename Step, int n, int kAlong>
OPWELD_FN Pack<T, n> get(const TilePart<T, Step>& x, const TilePlaces<n, kAlong>& places) {
    if (n > 1 && x.packed && places.whole) return packet(x, places);
    Pack<T, n> found{};
    if (n > 1 && x.steps[kAlong] == 0 && places.whole && places.in_row) {
        const T value = *places.begin(x);
        for (auto& each : found.value) each = value;
        return found;
    }
    places.each(x, [&](int i, const T* from) { found.value[i] = *from; });
    return found;
}
template <typename T, typename Step, int n, int kAlong>
OPWELD_FN void put(const TilePart<T, Step>& x, const TilePlaces<n, kAlong>& places,
                   const Pack<T, n>& values) {
    if (n > 1 && x.packed && places.whole)
        return store_words(reinterpret_cast<Pack<T, n>*>(places.begin(x)), values,
                           [](auto* to, auto word) { __stwb(to, word); });
    places.each(x, [&](int i, T* to) { *to = values.value[i]; });
}
// Moves a tile along its second axis: as packets where that can be.
template <typename F, int n, typename Layout, typename From, typename To>
OPWELD_FN void move_tile(const Layout& all, const int (&left)[2], const From& from, const To& to) {
    constexpr int kBatch = n > 1 ? 4 : 8, kStep = F::kThreads * n;
    const bool full = left[0] == all.tile[0].by && left[1] == all.tile[1].by;
    const int num = all.tile[0].by * all.tile[1].by;
    const auto places = [&](int at) { return TilePlaces<n, 1>(all, left, at); };
    int first = threadIdx.x * n;
    if (n > 1 && !(full && from.packed)) {
#pragma unroll 1
        for (; first < num; first += kStep) put(to, places(first), get(from, places(first)));
        return;
    }
#pragma unroll 1
    for (; first < num; first += kBatch * kStep) {
        decltype(get(from, places(first))) values[kBatch];
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {  // all loads come before what takes packets apart
            const int at = first + k * kStep;
            if (at >= num) break;
            values[k] = n > 1 ? packet(from, places(at)) : get(from, places(at));
        }
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
            const int at = first + k * kStep;
            if (at >= num) break;
            put(to, places(at), values[k]);
        }
    }
}
template <typename X>
struct TileOperand {
    using T = std::remove_const_t<typename X::T>;
    static constexpr bool kIsResult = !std::is_const_v<typename X::T>;
    TilePart<T, int64_t> own;
    TilePart<T, int> shared;  // that threads compute with where it comes `through` shared memory
    bool through;

    template <typename Layout>
    __device__ __forceinline__ TileOperand(const Layout& all, int i, int64_t start, char* memory)
        : own{static_cast<T*>(all.data[i]) + start,
              {all.strides[0][i], all.strides[1][i]},
              all.packed[i]},
          shared{reinterpret_cast<T*>(memory + all.begins[i]), {all.pitches[i], 1}, false},
          through(all.through[i]) {}
    // What is the same in all rows is only read where a thread has `moved` along its own axis.
    template <int n>
    __device__ __forceinline__ void load(const TilePlaces<n, 0>& places, bool moved,
                                         Pack<T, n>& values) const {
        if (kIsResult || (own.steps[1] == 0 && !moved)) return;
        values = through ? get(shared, places) : get(own, places);
    }
    template <typename Places, typename Values>
    __device__ __forceinline__ void store(const Places& places, const Values& values) const {
        if (kIsResult && through) put(shared, places, values);
        else if (kIsResult) put(own, places, values);
    }
};
template <typename F, int n, typename Layout, typename... X>
OPWELD_FN void compute_tile(const Layout& all, const int (&left)[2], const TileOperand<X>&... x) {
    const auto read = [&](const auto& x) {
        if (!x.kIsResult && x.through) move_tile<F, n>(all, left, x.own, x.shared);
    };
    const auto write = [&](const auto& x) {
        if (x.kIsResult && x.through) move_tile<F, n>(all, left, x.shared, x.own);
    };
    const int num = all.tile[0].by * all.tile[1].by;
    (read(x), ...);
    __syncthreads();
    [&](auto... values) {
        int before = -1;
#pragma unroll 1
        for (int first = threadIdx.x * n; first < num; first += F::kThreads * n) {
            const TilePlaces<n, 0> places(all, left, first);
            (x.load(places, places.at[0] != before, values), ...);
            before = places.at[0];
            bool there[n] = {};
            places.each(TilePart<char, int>{}, [&](int i, char*) { there[i] = true; });
#pragma unroll
            for (int i = 0; i < n; ++i) {
                if (there[i]) F::of(values.value[i]...);
            }
            (x.store(places, values), ...);
        }
    }(Pack<typename TileOperand<X>::T, n>{}...);
    __syncthreads();
    (write(x), ...);
}
template <typename F, int n, typename... X, size_t... k>
OPWELD_FN void tile(const TileLayout<F, sizeof...(X)>& all, char* shared, Types<X...>,
                    std::index_sequence<k...>) {
    int64_t starts[sizeof...(X)] = {};
    int left[2] = {};
    uint32_t rest = blockIdx.x;
#pragma unroll
    for (int a = 0; a < F::kRank; ++a) {
        if (a >= all.num_axes) break;
        const uint32_t next = all.tiles[a].quotient(rest);
        int64_t along = rest - next * uint32_t(all.tiles[a].by);
        if (a < 2) {
            along *= all.tile[a].by;
            left[a] = min(all.tile[a].by, all.sizes[a].by - along);
        }
        ((starts[k] += along * all.strides[a][k]), ...);
        rest = next;
    }
    compute_tile<F, n>(all, left, TileOperand<X>(all, k, starts[k], shared)...);
}
template <typename F, int n, int kCount>
__global__ void __launch_bounds__(F::kThreads)
    tiles(const __grid_constant__ TileLayout<F, kCount> all) {
    extern __shared__ __align__(16) char tile_memory[];
    tile<F, n>(all, tile_memory, typename F::Operands(), std::make_index_sequence<kCount>());
}
// Returns a cudaError_t, or what does not fit.
template <typename F, typename... X>
int pointwise_transposed(const TensorView* x, void* stream, Types<X...> operands) {
    ElementLayout<F::kRank, sizeof...(X)> all;
    const Call call = laid_out<F>(x, all, operands);
    if (call.misfit != 0 || call.num == 0) return call.misfit;
    const TileLayout<F, sizeof...(X)> tiled(all, {int(sizeof(typename X::T))...});
    if (tiled.num == 0) return pointwise<F>(x, stream, operands);
    const auto run = [&](auto width) {
        tiles<F, width>
            <<<tiled.num, F::kThreads, tiled.bytes, static_cast<cudaStream_t>(stream)>>>(tiled);
    };
    if (tiled.wide) run(Int<F::kWidth>());
    else run(Int<1>());
    return cudaGetLastError();
}

}  // namespace op
