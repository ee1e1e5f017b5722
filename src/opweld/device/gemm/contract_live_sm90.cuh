// Products of two new operands on Hopper: two warpgroups split what they copy to shared memory,
// into lots in the form that wgmma reads, and two multiply them (contract_live.cuh has the same by
// mma.sync).

namespace op {

// @LiveLots deps: Barrier, LiveTile, Staging
// `split` has lines of a, then of b, in swizzled rows of 128 bytes; `full` gets an arrival of each
// thread that splits, `empty` of each warp that multiplies.
struct LiveLots {
    static constexpr int kSplits = 3, kFloats = 3, kSplitters = 256, kThreads = 512;
    struct Lot {
        alignas(1024) unsigned char lines[LiveTile::kLines * MmaTile::kRowBytes];
    };
    Lot split[kSplits];
    alignas(16) unsigned char floats[kFloats][LiveTile::kFloatBytes];
    alignas(16) float scale[kSplits][LiveTile::kLines];
    Staging staging;
    Barrier full[kSplits], empty[kSplits];
};

// @split_lots deps: LiveFeed, LiveLots, Ring, copy_groups, fence_proxy
// What each of the threads that split does: it copies a share of every lot, and splits a line of
// it.
OPWELD_FN void sync_splitters() {
    asm volatile("bar.sync 1, %0;" ::"n"(LiveLots::kSplitters) : "memory");
}

OPWELD_FN void split_lots(LiveLots& memory, const LiveProduct& p, int64_t tasks, int64_t each,
                          CallHead* call) {
    constexpr int kFloats = LiveLots::kFloats;
    const int thread = int(threadIdx.x);
    int needs_fallback = 0;
    Ring<LiveLots::kSplits> ring;
    ring.parity = 1;  // the ring is empty: the phase before the first counts as ended
    for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
        const LiveTask task(p, number, each);
        LiveFeed feed(p, task, memory.floats[0], kFloats);
        sync_splitters();  // what the task before left has been read
#pragma unroll 1
        for (int i = 0; i < kFloats - 1; ++i) feed.start();
#pragma unroll 1
        for (int block = 0; block < task.count; ++block) {
            await_copies<kFloats - 2>();
            sync_splitters();  // the lot is there for all, and all have read the one before
            feed.start();
            float values[LiveTile::kDepth];
            feed.read(values);
            memory.empty[ring.stage].wait(ring.parity);
            memory.scale[ring.stage][thread] =
                split_line(memory.split[ring.stage].lines, thread, values, needs_fallback);
            fence_proxy();
            memory.full[ring.stage].arrive();
            ring.advance();
        }
        await_copies<0>();
    }
    if (needs_fallback) call->again = 1;
}

// @multiply_lots deps: LiveLots, LiveTask, Ring, exponents, give_sums, multiply_split, own_thread, wgmma_order
// What the threads that multiply do. Sums of 32 k are promoted under the scales of their row and
// column.
template <typename Epilogue>
OPWELD_FN void multiply_lots(LiveLots& memory, const LiveProduct& p, int64_t tasks, int64_t each,
                             const EpilogueStore<Epilogue>& sink, CallHead* call) {
    constexpr int kRowBytes = MmaTile::kRowBytes;
    const int warp = int(threadIdx.x) / 32 - 8, lane = int(threadIdx.x) % 32, group = warp / 4;
    bool odd = false;
    Ring<LiveLots::kSplits> ring;
    for (int64_t number = blockIdx.x; number < tasks; number += gridDim.x) {
        const LiveTask task(p, number, each);
        Sums<MmaTile::kN, MmaTile::kN> sums;
        sums.clear();
        auto& value = sums.value[0];
#pragma unroll 1
        for (int block = 0; block < task.count; ++block) {
            memory.full[ring.stage].wait(ring.parity);
            const unsigned char* lines = memory.split[ring.stage].lines;
            const float* scale = memory.scale[ring.stage];
            float scratch[MmaTile::kN / 2];
            pin(scratch);
            wgmma_fence();
            multiply_split<2, LiveTile::kDepth / 16>(scratch, lines + group * 64 * kRowBytes,
                                                     lines + MmaTile::kM * kRowBytes, 0, 0);
            const float upper = scale[warp * 16 + lane / 4],
                        lower = scale[warp * 16 + lane / 4 + 8];
            wgmma_wait<0>();
            pin(scratch);
#pragma unroll
            for (int i = 0; i < MmaTile::kN / 2; i += 4) {
                const auto column =
                    *reinterpret_cast<const float2*>(scale + MmaTile::kM + i * 2 + lane % 4 * 2);
                value[i] = fmaf(scratch[i], upper * column.x, value[i]);
                value[i + 1] = fmaf(scratch[i + 1], upper * column.y, value[i + 1]);
                value[i + 2] = fmaf(scratch[i + 2], lower * column.x, value[i + 2]);
                value[i + 3] = fmaf(scratch[i + 3], lower * column.y, value[i + 3]);
            }
            __syncwarp();
            if (lane == 0) memory.empty[ring.stage].arrive();
            ring.advance();
        }
#pragma unroll
        for (int i = 0; i < MmaTile::kN / 2; ++i) odd |= exponent_of(value[i]) == 128;
        const int64_t result = task.at.split * p.batches + task.at.batch;
        const RowsAt to{result * p.m, int(task.at.m) + (own_thread() / 32 - 8) * 16, int(p.m),
                        int(p.n)};
        give_sums<false>(sums, sink, memory.staging.warp[own_thread() / 32 - 8], to,
                         int(task.at.n));
    }
    if (odd) call->again = 1;
}

// @LiveSm90 deps: Launch, LiveTiles, cluster, multiply_lots, num_multiprocessors, setmaxnreg, split_lots, tile_memory
template <typename Epilogue>
static __global__ void __launch_bounds__(LiveLots::kThreads, 1)
    live_sm90_kernel(const LiveProduct p, const int64_t tasks, const int64_t each,
                     const EpilogueStore<Epilogue> sink, CallHead* call) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    auto& memory = tile_memory<LiveLots>();
    if (threadIdx.x == 0) {
        for (int i = 0; i < LiveLots::kSplits; ++i) {
            memory.full[i].init(LiveLots::kSplitters);
            memory.empty[i].init(8);
        }
        publish_barriers();
    }
    __syncthreads();
    if (threadIdx.x < LiveLots::kSplitters) {
        setmaxnreg<96, false>();
        split_lots(memory, p, tasks, each, call);
    } else {
        setmaxnreg<160, true>();
        multiply_lots(memory, p, tasks, each, sink, call);
    }
#endif
}

struct LiveSm90 {
    static bool fits() { return true; }
    template <typename Epilogue>
    static int launch(const LiveProduct& p, const SplitK& plan, const EpilogueStore<Epilogue>& sink,
                      CallHead* head, cudaStream_t stream) {
        const int64_t tasks = MmaTask::count(p, plan.splits), most = num_multiprocessors();
        return Launch(tasks < most ? tasks : most, LiveLots::kThreads, kTileMemoryBytes<LiveLots>,
                      stream)
            .run(live_sm90_kernel<Epilogue>, p, tasks, plan.each, sink, head);
    }
};

}  // namespace op
