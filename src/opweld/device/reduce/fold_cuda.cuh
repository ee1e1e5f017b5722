// Rows read by threads together. What a pass folds is a struct `Folds` of the group:
//     static Folds nothing()             the folds of no elements
//     void merge(const Folds& other)     takes in the folds of others
//     static constexpr int kChain        merges one after another, of elements and of such chains
// Every order is fixed by the shape of the launch, so that results are the same in every run.

namespace op {

// @NoFolds deps:
// What a pass folds that only stores.
struct NoFolds {
    static constexpr int kChain = 1 << 30;
    static constexpr bool kChunks = false;
    OPWELD_FN NoFolds nothing() { return {}; }
    __device__ __forceinline__ void merge(const NoFolds&) {}
};

// @kLeastBlocks deps:
// Blocks that a multiprocessor must hold: 1024 threads with 64 registers each, fewer with wide
// indices. Told nothing, ptxas spills to make room for 2048 threads.
template <int kThreads, typename Index, int kResident = 1024>
constexpr int kLeastBlocks =
    kThreads == 1024 ? 1 : (sizeof(Index) > 4 ? 512 : kResident) / kThreads;

// @Team deps: kLeastBlocks
// The shape of a launch whose rows have kTeam threads each.
template <int kTeam>
constexpr int kTeamThreads = kTeam <= 32 ? 256 : kTeam;
template <int kTeam, typename Index>
constexpr int kTeamBlocks = kLeastBlocks<kTeamThreads<kTeam>, Index>;

// @Strips deps: kLeastBlocks
// The shape of a launch whose columns are read by kStrips threads each.
template <int kStrips>
constexpr int kStripsThreads = kStrips < 32 ? 256 : 1024;
template <int kStrips, typename Index>
constexpr int kStripsBlocks = kLeastBlocks<kStripsThreads<kStrips>, Index>;

// @CutStrips deps: kLeastBlocks
// The shape of a launch whose columns are cut, so that more of them in a block leave blocks enough:
// where rows are odd, neighbouring warps read lines that they share.
template <int kStrips>
constexpr int kCutStripsThreads = kStrips < 8 ? 256 : 512;
template <int kStrips, typename Index>
constexpr int kCutStripsBlocks = kLeastBlocks<kCutStripsThreads<kStrips>, Index>;

// @NoPacket deps:
// What is kept of a packet of which nothing is needed by two passes.
struct NoPacket {};

// @kAtOnce deps: NoFolds
// Packets that are loaded before the first of them is folded: of single elements as many as a chain
// has, and twice as many where folds ask for no chains; no more where registers are short. (Places
// of the largest over a middle axis of odd width: 94 % of a copy's speed by 8, 99 by 16; H200,
// 2026-11-23, CUDA 13.0.)
template <typename Folds, typename Packet, int kUnroll>
constexpr int kAtOnce = sizeof(Packet) > 16 || sizeof(Folds) > 16    ? kUnroll
                        : Folds::kChain == NoFolds::kChain           ? sizeof(Packet) > 4 ? 8 : 16
                        : Folds::kChain == 16 && sizeof(Packet) == 4 ? 16
                                                                     : kUnroll;
template <typename Packet, int kUnroll>
constexpr int kAtOnce<NoFolds, Packet, kUnroll> = kUnroll;

// @Walks deps: kAtOnce
// The packets of a row that one thread handles: those at begin, begin + kStep, ... before end. With
// kItems > 0 there are at most so many, and what is loaded of them once stays in registers. With
// kItems == 0 every pass loads again.
template <int kStep, int kLanes, int kItems, typename Packet, typename Index>
struct Walks {
    static constexpr int kUnroll = kLanes == 1 ? 8 : 4;  // packets in flight
    Index begin, end;
    Packet held[kItems ? kItems : 1];

    __device__ __forceinline__ Walks(Index begin, Index end) : begin(begin), end(end) {}

    template <typename Load>
    __device__ __forceinline__ void hold(Load load) {
#pragma unroll
        for (int item = 0; item < kItems; ++item) {
            const Index at = begin + item * kStep;
            if (at < end) held[item] = load(at);
        }
    }

    // visit(packet, at, folds) for every packet at position `at`; each lane has folds of its own.
    template <typename Folds, typename Load, typename Visit>
    __device__ __forceinline__ void walk(Folds (&folds)[kLanes], Load load, Visit visit) const {
        clear(folds);
        if constexpr (kStep == 1 && kItems > Folds::kChain) {  // a whole column is one thread's
#pragma unroll
            for (int first = 0; first < kItems; first += Folds::kChain) {
                Folds part[kLanes];
                clear(part);
#pragma unroll
                for (int item = first; item < first + Folds::kChain && item < kItems; ++item) {
                    if (begin + item < end) visit(held[item], begin + item, part);
                }
#pragma unroll
                for (int lane = 0; lane < kLanes; ++lane) folds[lane].merge(part[lane]);
            }
        } else if constexpr (kItems > 0) {
            Index first = begin;
            // Positions of many are found anew: kept from the loads on, they would spill.
            if constexpr (kItems > 16 && sizeof(Index) == 4) asm volatile("" : "+r"(first));
#pragma unroll
            for (int item = 0; item < kItems; ++item) {
                const Index at = first + item * kStep;
                if (at < end) visit(held[item], at, folds);
            }
        } else if constexpr (Folds::kChain == NoFolds::kChain) {
            chain(begin, end, folds, load, visit);
        } else {
            constexpr int kDeep = 3;
            cascade<kDeep>(begin, end, folds, [&](Index at, Index until, Folds(&part)[kLanes]) {
                chain(at, until, part, load, visit);
            });
        }
    }

    template <typename Folds, int kFolds>
    OPWELD_FN void clear(Folds (&folds)[kFolds]) {
#pragma unroll
        for (int fold = 0; fold < kFolds; ++fold) folds[fold] = Folds::nothing();
    }

    // Packets by chains, each folded by itself: chain(at, until, folds) takes kChain of them. What
    // these give is merged in chains of as many again, kDeep of them one in the other.
    template <int kDeep, typename Folds, int kFolds, typename Chain>
    OPWELD_FN void cascade(Index at, Index until, Folds (&folds)[kFolds], Chain chain) {
        if constexpr (kDeep == 0) {
            chain(at, until, folds);
        } else {
            constexpr Index kReach = reach<Folds::kChain, kDeep>();
            for (; at < until; at += kReach) {
                Folds part[kFolds];
                clear(part);
                cascade<kDeep - 1>(at, until - at > kReach ? at + kReach : until, part, chain);
#pragma unroll
                for (int fold = 0; fold < kFolds; ++fold) folds[fold].merge(part[fold]);
            }
        }
    }

    template <int kChain, int kDeep>
    OPWELD_FN constexpr Index reach() {
        Index packets = kStep;
        for (int deep = 0; deep < kDeep; ++deep) packets *= kChain;
        return packets;
    }

    template <typename Folds, typename Load, typename Visit>
    OPWELD_FN void chain(Index at, Index end, Folds (&folds)[kLanes], Load load, Visit visit) {
        constexpr int kCount = kAtOnce<Folds, Packet, kUnroll>;
        for (; at + (kCount - 1) * kStep < end; at += kCount * kStep) {
            batch<true>(at, end, folds, load, visit);
        }
        if (at < end) batch<false>(at, end, folds, load, visit);
    }

    // Packets that are all loaded before any is visited, or as many as there are left.
    template <bool kFull, typename Folds, typename Load, typename Visit>
    OPWELD_FN void batch(Index at, Index end, Folds (&folds)[kLanes], Load load, Visit visit) {
        constexpr int kCount = kAtOnce<Folds, Packet, kUnroll>;
        Packet packets[kCount];
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            if (kFull || at + k * kStep < end) packets[k] = load(at + k * kStep);
        }
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            if (kFull || at + k * kStep < end) visit(packets[k], at + k * kStep, folds);
        }
    }
};

// @SharedWalks deps: Walks
// There are kShared packets more, which stay in the block's shared memory, where each thread has
// places of its own.
template <int kStep, int kLanes, int kItems, typename Packet, typename Index, int kShared>
struct SharedWalks : Walks<kStep, kLanes, kItems, Packet, Index> {
    using Base = Walks<kStep, kLanes, kItems, Packet, Index>;
    using Base::Base, Base::begin, Base::end;
    // Wide ones leave registers for the loads of what is held there (a cosine similarity: 92 and
    // 101 % of a copy's speed; H200, 2026-11-23, CUDA 13.0).
    static constexpr int kPassing = sizeof(Packet) > 16 ? 2 : Base::kUnroll;

    OPWELD_FN Packet& shared(int item) {
        extern __shared__ __align__(16) unsigned char opweld_shared[];
        return reinterpret_cast<Packet*>(opweld_shared)[item * blockDim.x + threadIdx.x];
    }

    // Those for shared memory pass through registers: these first, while there are many free.
    template <typename Load>
    __device__ __forceinline__ void hold(Load load) {
#pragma unroll
        for (int first = 0; first < kShared; first += kPassing) {
            Packet packets[kPassing];
#pragma unroll
            for (int k = 0; k < kPassing; ++k) {
                const Index at = begin + (kItems + first + k) * kStep;
                if (first + k < kShared && at < end) packets[k] = load(at);
            }
#pragma unroll
            for (int k = 0; k < kPassing; ++k) {
                const Index at = begin + (kItems + first + k) * kStep;
                if (first + k < kShared && at < end) shared(first + k) = packets[k];
            }
        }
        Base::hold(load);
    }

    template <typename Folds, typename Load, typename Visit>
    __device__ __forceinline__ void walk(Folds (&folds)[kLanes], Load load, Visit visit) const {
        Base::walk(folds, load, visit);
#pragma unroll
        for (int item = 0; item < kShared; ++item) {
            const Index at = begin + (kItems + item) * kStep;
            if (at < end) visit(shared(item), at, folds);
        }
    }
};

// @merged deps:
// The folds of all lanes as one.
template <int kLanes, typename Folds>
OPWELD_FN Folds merged(Folds (&folds)[kLanes]) {
#pragma unroll
    for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma unroll
        for (int lane = 0; lane < half; ++lane) folds[lane].merge(folds[lane + half]);
    }
    return folds[0];
}

// @shuffled deps:
// The value that the thread has whose number in the warp differs in the bits `lanes`.
template <typename T>
OPWELD_FN T shuffled(unsigned mask, const T& value, int lanes) {
    T other = value;
#pragma unroll
    for (int at = 0; at < int(sizeof(T)); at += 4) {
        const int bytes = int(sizeof(T)) - at < 4 ? int(sizeof(T)) - at : 4;
        unsigned word = 0;
        memcpy(&word, reinterpret_cast<const char*>(&value) + at, bytes);
        word = __shfl_xor_sync(mask, word, lanes);
        memcpy(reinterpret_cast<char*>(&other) + at, &word, bytes);
    }
    return other;
}

// @in_warp deps: shuffled
// The folds of kThreads neighbours in a warp, for each of them.
template <int kThreads, typename Folds>
OPWELD_FN Folds in_warp(Folds mine) {
    const unsigned first = threadIdx.x % 32 / kThreads * kThreads;
    const unsigned mask = (0xffffffffu >> (32 - kThreads)) << first;
#pragma unroll
    for (int lanes = kThreads / 2; lanes > 0; lanes /= 2) mine.merge(shuffled(mask, mine, lanes));
    return mine;
}

// @in_team deps: in_warp
// The folds of a team of kTeam threads, for each of them: up to a warp, or a whole block.
template <int kTeam, typename Folds>
OPWELD_FN Folds in_team(Folds mine) {
    if constexpr (kTeam <= 32) {
        return in_warp<kTeam>(mine);
    } else {
        constexpr int kWarps = kTeam / 32;
        __shared__ Folds of_warp[kWarps];
        mine = in_warp<32>(mine);
        __syncthreads();  // what stood here before has been read
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = mine;
        __syncthreads();
        return in_warp<kWarps>(of_warp[threadIdx.x % kWarps]);
    }
}

// @OneBlock deps: in_team
// A row that kBlocks blocks of kTeam threads pass over.
template <int kTeam, int kBlocks>
struct RowOfBlocks;
template <int kTeam>
struct RowOfBlocks<kTeam, 1> {
    static constexpr int kThreads = kTeam;

    OPWELD_FN int rank() { return threadIdx.x % kTeam; }
    template <typename Folds>
    OPWELD_FN Folds folded(Folds mine) {
        return in_team<kTeam>(mine);
    }
    OPWELD_FN void end() {}
};

// @RowOfBlocks deps: OneBlock, sync_cluster, mapa
// The blocks are a cluster: each reads what the others have folded in their shared memory.
template <int kTeam, int kBlocks>
struct RowOfBlocks {
    static constexpr int kThreads = kTeam * kBlocks;

    OPWELD_FN int rank() { return blockIdx.x % kBlocks * kTeam + threadIdx.x % kTeam; }

    // The folds of all threads of the row, for each of them, in the order of the blocks. Every pass
    // of a kernel has a type of its own for them, and so a place of its own.
    template <typename Folds>
    OPWELD_FN Folds folded(Folds mine) {
        __shared__ Folds of_block;
        mine = in_team<kTeam>(mine);
        if (threadIdx.x == 0) of_block = mine;
        sync_cluster();
        mine = mapa(of_block, 0);
#pragma unroll
        for (int block = 1; block < kBlocks; ++block) mine.merge(mapa(of_block, block));
        return mine;
    }

    // Before it ends: others may still read its shared memory.
    OPWELD_FN void end() { sync_cluster(); }
};

// @in_columns deps:
// Threads stand in kGroups rows of kColumns: what all of a column folded, for each of its threads.
// Half of the groups merge what the other half has, then half of these; all lanes at once where
// they take kMostBytes of shared memory, of which each State has its own.
template <int kGroups, int kColumns, int kMostBytes, int kLanes, typename State>
OPWELD_FN void in_columns(State (&states)[kLanes]) {
    if constexpr (kGroups > 1) {
        static_assert((kGroups & (kGroups - 1)) == 0, "groups are halved");
        constexpr int kHalf = kGroups / 2 * kColumns;
        constexpr int kTogether = kLanes * kHalf * sizeof(State) <= kMostBytes ? kLanes : 1;
        __shared__ State of_others[kTogether][kHalf];
#pragma unroll
        for (int first = 0; first < kLanes; first += kTogether) {
            const auto exchange = [&](bool gives, int to, bool takes, int from, auto take) {
                __syncthreads();  // what stood here before has been read
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    if (gives) of_others[i][to] = states[first + i];
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < kTogether; ++i) {
                    if (takes) take(states[first + i], of_others[i][from]);
                }
            };
            const int thread = threadIdx.x;
            for (int half = kHalf; half >= kColumns; half /= 2) {
                exchange(thread >= half && thread < 2 * half, thread - half, thread < half, thread,
                         [](State& mine, const State& other) { mine.merge(other); });
            }
            exchange(thread < kColumns, thread, true, thread % kColumns,
                     [](State& mine, const State& other) { mine = other; });
        }
    }
}

// @piece_of deps:
// Elements of each of the pieces of a row: whole packets.
static int64_t piece_of(int64_t length, int64_t pieces, int64_t lanes) {
    return ((length + pieces - 1) / pieces + lanes - 1) / lanes * lanes;
}

// @pieces_for deps: num_multiprocessors
// In how many pieces rows that take `blocks` blocks are cut so that the device is busy, a piece
// being `least` elements or more: eight blocks a multiprocessor, up to `most_each` where they have
// work enough, so that those that end last are short, or as many if that is fewer. (Sums of all
// of 8.6 GB: 97 % of a copy's speed by 8, 102 by 64; H200, 2026-11-23, CUDA 13.0.)
static int64_t pieces_for(int64_t blocks, int64_t num_rows, int64_t length, int64_t least,
                          int64_t most_each) {
    constexpr int64_t kLeastEach = 8, kEnough = 65536, kMost = 65535;  // the limit of grid.y
    if (blocks < 1) return 1;
    const int64_t multiprocessors = num_multiprocessors();
    const int64_t worth = num_rows * length / (multiprocessors * kEnough);
    const int64_t usual = worth < kLeastEach ? kLeastEach : worth;
    const int64_t each = usual < most_each ? usual : most_each;
    const int64_t wanted = multiprocessors * each / blocks;
    const int64_t possible = length / least;
    const int64_t pieces = wanted < possible ? wanted : possible;
    return pieces < 1 ? 1 : pieces > kMost ? kMost : pieces;
}

// @merged_columns deps:
// Rows whose pieces a block of kThreads merges, a power of two: neighbours in a warp, and fewer
// where there are few, or where a thread would have many pieces.
template <int kThreads>
static int merged_columns(int64_t num_rows, int64_t pieces) {
    constexpr int kFew = 4;
    int columns = 32;
    while (columns > 1 && (columns / 2 >= num_rows || pieces * columns > kThreads * kFew))
        columns /= 2;
    return columns;
}

// @in_strips deps:
// Threads stand in rows of `columns`: the folds of each column, for the thread in the first row.
template <int kThreads, typename Folds>
OPWELD_FN Folds in_strips(Folds mine, int columns) {
    __shared__ Folds of_thread[kThreads];
    of_thread[threadIdx.x] = mine;
    for (int half = kThreads / 2; half >= columns; half /= 2) {
        __syncthreads();
        if (int(threadIdx.x) < half) {
            mine.merge(of_thread[threadIdx.x + half]);
            of_thread[threadIdx.x] = mine;
        }
    }
    return mine;
}

// @launch_early deps: starts_early
// A launch while the kernel ahead is about to end, for whose results the kernel itself waits
// (griddepcontrol_wait). Blocks keep `shared` bytes each and stand in clusters of kCluster.
template <int kCluster = 1, typename... Parameters, typename... Given>
static void launch_early(void (*kernel)(Parameters...), dim3 blocks, int threads, int64_t shared,
                         cudaStream_t stream, Given... given) {
    if (shared) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    }
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = starts_early();
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {kCluster, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks.x * kCluster, blocks.y);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = kCluster > 1 ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, given...);
}

}  // namespace op
