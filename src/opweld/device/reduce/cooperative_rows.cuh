// Rows that are too long for a few multiprocessors, and that all of them keep together, so that a
// row is read once between its passes. A launch has a block on each multiprocessor.

namespace op {

// @DeviceRows deps: Told, copy_async, copy_groups, in_warp, shared_address, sync_threads
// Each block has a share of every row: packets that stand kTeam side by side, those of all blocks
// one after another, kItems of them for each of kTeam threads. A thread copies what it passes over
// ahead, kSlots packets of 16 bytes in shared memory. It folds its share of a row, moves the row
// before to registers, and stores the one kLag rows back, of which all is known by then: warps of
// their own tell the other blocks what this one has folded, and ask for what they have.
template <int kTeam, int kItems, int kSlots, int kLag, int kKept, typename Packet, typename Kept,
          typename Folds, typename Known, typename Index>
struct DeviceRows {
    static constexpr int kTurns = kLag + 1;
    // Threads that fold together what they read.
    static constexpr int kTogether = 4, kParts = kTeam / kTogether;
    static constexpr int kThreads = kTeam + 32 + 32 * kTurns;
    static constexpr unsigned kPause = 64;  // ns between looks
    // Barriers of those who fold and store and of the warps that tell and collect; 0 is that of the
    // block.
    static constexpr int kFolded = 1, kKnown = kFolded + kTurns;
    static constexpr int kLoads = 4;  // packets whose loads are under way together
    static_assert(sizeof(Packet) == 16 && kSlots >= kLag * kItems && kKnown + kTurns <= 16);
    struct Shared {
        Folds parts[kTurns][kParts];
        Known known[kTurns];
    };
    Index num_rows, packets;  // of a row
    Told<Folds>* told;        // [rows, blocks]
    Shared& shared;

    __device__ __forceinline__ DeviceRows(Index num_rows, Index packets, void* told)
        : num_rows(num_rows),
          packets(packets),
          told(static_cast<Told<Folds>*>(told)),
          shared(of_block()) {}

    OPWELD_FN Shared& of_block() {
        __shared__ Shared shared;
        return shared;
    }
    OPWELD_HOST_FN int64_t shared_bytes() { return kTeam * (kSlots * 16 + kKept * sizeof(Kept)); }

    // from(row, packet) is where a packet is in memory, keep(packet) what the store reads of it for
    // all rows alike, fold(row, count, packet, place) folds `count` packets, which `packet` gives
    // and of which `place` says which they are in the row, tell(row, stores, folds, known) says
    // what is known of a row, and store(row, place, packet, kept, known) is called for each packet.
    template <typename From, typename Keep, typename Fold, typename Tell, typename Store>
    __device__ __forceinline__ void walk(From from, Keep keep, Fold fold, Tell tell,
                                         Store store) const {
        if (threadIdx.x < kTeam) {
            walk_share(from, keep, fold, store);
        } else if (threadIdx.x < kTeam + 32) {
            tell_others();
        } else {
            collect(tell);
        }
    }

    OPWELD_FN Index place(Index item) {
        return (item * gridDim.x + blockIdx.x) * kTeam + threadIdx.x;
    }
    OPWELD_FN uint4& slot(int number) {
        extern __shared__ __align__(16) unsigned char opweld_shared[];
        return reinterpret_cast<uint4*>(opweld_shared)[number * kTeam + threadIdx.x];
    }
    OPWELD_FN Kept& kept(int item) {
        return reinterpret_cast<Kept*>(&slot(kSlots) - threadIdx.x)[item * kTeam + threadIdx.x];
    }
    OPWELD_FN int after(int slot, int items) {
        return slot + items < kSlots ? slot + items : slot + items - kSlots;
    }
    OPWELD_FN Packet packet_in(int number) {
        const uint4 word = slot(number);
        Packet packet;
        memcpy(&packet, &word, sizeof packet);
        return packet;
    }

    template <typename From, typename Keep, typename Fold, typename Store>
    __device__ __forceinline__ void walk_share(From from, Keep keep, Fold fold, Store store) const {
        Index count = 0;
#pragma unroll
        for (int item = 0; item < kItems; ++item) count += place(item) < packets;
        const auto start = [&](Index row, int item, int number) {
            if (row < num_rows && item < count) {
                copy_async(shared_address(&slot(number)), from(row, place(item)), 16);
            }
            commit_copies();
        };
        for (int number = 0; number < kSlots; ++number) {
            start(number / kItems, number % kItems, number);
        }
#pragma unroll
        for (int item = 0; item < kKept; ++item) {
            if (item < count) kept(item) = keep(place(item));
        }
        Packet held[kItems];
        int first = 0, moved = 0;  // slots of the row that is folded, and of the one that is moved
        for (Index row = 0; row < num_rows + kLag; ++row) {
            if (row < num_rows) {
                await_copies<kSlots - kLag * kItems>();
                const auto packet = [&](Index item) { return packet_in(after(first, item)); };
                const Folds mine = in_warp<kTogether>(
                    fold(row, count, packet, [](Index item) { return place(item); }));
                const int turn = row % kTurns;
                if (threadIdx.x % kTogether == 0) {
                    shared.parts[turn][threadIdx.x / kTogether] = mine;
                }
                __syncwarp();
                arrive_at_threads<kTeam + 64>(kFolded + turn);
                first = after(first, kItems);
            }
            if (row + 1 < kLag) continue;
            const Index next = row + 1 - kLag, stored = next - 1;
            Known known;
            if (row >= kLag) {
                sync_threads<kTeam + 32>(kKnown + stored % kTurns);
                known = shared.known[stored % kTurns];
            }
#pragma unroll
            for (int begin = 0; begin < kItems; begin += kLoads) {
                Kept now[kLoads];
#pragma unroll
                for (int item = begin; item < begin + kLoads && item < kItems; ++item) {
                    if (row < kLag || item >= count) continue;
                    now[item - begin] = item < kKept ? kept(item) : keep(place(item));
                }
#pragma unroll
                for (int item = begin; item < begin + kLoads && item < kItems; ++item) {
                    if (row < kLag || item >= count) continue;
                    store(stored, place(item), held[item], now[item - begin], known);
                }
#pragma unroll
                for (int item = begin; item < begin + kLoads && item < kItems; ++item) {
                    if (next >= num_rows) continue;
                    const int number = after(moved, item);
                    held[item] = packet_in(number);
                    start(next + (item + kSlots) / kItems, (item + kSlots) % kItems, number);
                }
            }
            moved = after(moved, kItems);
        }
    }

    // A warp that tells the others what this block has folded of each row.
    __device__ __forceinline__ void tell_others() const {
        const int lane = threadIdx.x % 32;
        for (Index row = 0; row < num_rows; ++row) {
            const int turn = row % kTurns;
            sync_threads<kTeam + 64>(kFolded + turn);
            Folds mine = Folds::nothing();
            for (int part = lane; part < kParts; part += 32) mine.merge(shared.parts[turn][part]);
            mine = in_warp<32>(mine);
            if (lane == 0) Told<Folds>::tell(told + row * gridDim.x + blockIdx.x, mine);
            __syncwarp();
        }
    }

    // Warps that take turns in asking what all blocks have folded of a row: when this one has
    // folded the next, so that they seldom wait.
    template <typename Tell>
    __device__ __forceinline__ void collect(Tell tell) const {
        constexpr int kLater = kLag - 1;
        const int lane = threadIdx.x % 32, turn = threadIdx.x / 32 - kTeam / 32 - 1;
        // The barriers of the first rows, too, count a warp that collects.
        if (turn >= 2 && turn - 2 < num_rows) sync_threads<kTeam + 64>(kFolded + turn - 2);
        for (Index row = turn; row < num_rows; row += kTurns) {
            if (row + kLater < num_rows)
                sync_threads<kTeam + 64>(kFolded + (row + kLater) % kTurns);
            Known known;
            tell(row, lane == 0 && blockIdx.x == 0, of_all(told + row * gridDim.x), known);
            if (lane == 0) shared.known[turn] = known;
            __syncwarp();
            arrive_at_threads<kTeam + 32>(kKnown + turn);
        }
    }

    // The folds of all blocks of a row, for each thread of the warp, always in the same order.
    OPWELD_FN Folds of_all(const Told<Folds>* of_row) {
        constexpr int kAtOnce = 5;  // looks: of 160 blocks
        Folds all = Folds::nothing();
        for (unsigned first = threadIdx.x % 32; first < gridDim.x; first += 32 * kAtOnce) {
            Folds of_block[kAtOnce];
            bool there[kAtOnce], waits = false;
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                const unsigned block = first + 32 * k;
                there[k] = block >= gridDim.x || Told<Folds>::look(of_row + block, of_block[k]);
                waits = waits || !there[k];
            }
            while (waits) {
                __nanosleep(kPause);
                waits = false;
#pragma unroll
                for (int k = 0; k < kAtOnce; ++k) {
                    if (there[k]) continue;
                    there[k] = Told<Folds>::look(of_row + first + 32 * k, of_block[k]);
                    waits = waits || !there[k];
                }
            }
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                if (first + 32 * k < gridDim.x) all.merge(of_block[k]);
            }
        }
        __syncwarp();
        return in_warp<32>(all);
    }
};

// @blocks_together deps: num_multiprocessors, starts_early
// The blocks of a launch whose blocks wait for each other: one on each multiprocessor.
static int64_t blocks_together() { return starts_early() ? num_multiprocessors() : 1; }

// @launch_together deps:
// Launches blocks that wait for each other, and says whether the device holds them all at once.
template <typename... Parameters, typename... Given>
static bool launch_together(void (*kernel)(Parameters...), unsigned blocks, int threads,
                            int64_t shared, cudaStream_t stream, Given... given) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, given...) == cudaSuccess;
}

}  // namespace op
