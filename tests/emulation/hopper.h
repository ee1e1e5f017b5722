// The instructions of hopper.cuh: barriers in shared memory, bulk copies, warpgroup products;
// copies by tensor maps stand in tensor_map.h. What is asynchronous there happens as late as it may
// here: copies land when no thread can go on without them, products are made where they are waited
// for.
#pragma once

namespace emulation {

// In the place of an mbarrier's word: arrivals of a phase, those still missing, bytes still
// missing.
struct PhaseBarrier {
    unsigned expected : 12, missing : 12, parity : 1;
    int bytes : 30;
};
static_assert(sizeof(PhaseBarrier) == 8, "it takes the place of 64 bits");

void arrive(unsigned barrier, int bytes);
void arrive_at_block(unsigned barrier, unsigned block);
void wait_for_phase(unsigned barrier, uint32_t parity, int line);
void start_bulk_copy(unsigned to, const void* from, int bytes, unsigned barrier, int line);
void sync_threads(int barrier, int count, bool waits, int line);

// Two rows of operand a in registers, as a thread's own sums take them.
struct RowPair {
    float value[2][16];
};
void start_product(float* sums, int columns, const RowPair* rows, uint64_t a, uint64_t b, bool add,
                   bool tf32 = false);
void commit_products();
size_t block_in_cluster();
unsigned blocks_of_cluster();
void await_products(int open);

struct Words {
    uint32_t word[4];
};
// Those of the four lanes that have this lane's two rows.
inline const Words* words_of_rows(const Words& own) {
    return gathered(own) + thread_number() % 32 / 4 * 4;
}
inline RowPair row_pair(const Words& own) {
    const Words* lanes = words_of_rows(own);
    RowPair rows;
    for (int j = 0; j < 2; ++j)
        for (int k = 0; k < 16; ++k) {
            uint32_t word = lanes[k % 8 / 2].word[k / 8 * 2 + j];
            rows.value[j][k] = float(bits<_Float16>(uint16_t(word >> k % 2 * 16)));
        }
    return rows;
}
// The same of 8 float32 values, whose last 13 bits the tensor cores do not read.
inline float tf32_of(uint32_t word) { return bits<float>(word & ~0x1fffu); }
inline RowPair row_pair_tf32(const Words& own) {
    const Words* lanes = words_of_rows(own);
    RowPair rows{};
    for (int j = 0; j < 2; ++j)
        for (int k = 0; k < 8; ++k) rows.value[j][k] = tf32_of(lanes[k % 4].word[k / 4 * 2 + j]);
    return rows;
}

}  // namespace emulation

#define OPWELD_HERE int line = __builtin_LINE()
inline void mbarrier_init_shared_cta_b64(unsigned barrier, int arrivals) {
    unsigned count = unsigned(arrivals);
    *reinterpret_cast<emulation::PhaseBarrier*>(emulation::shared_pointer(barrier, 8)) = {
        count, count, 0, 0};
}
inline void mbarrier_arrive_expect_tx_shared_cta_b64(unsigned barrier, uint32_t bytes) {
    emulation::arrive(barrier, int(bytes));
}
inline void mbarrier_arrive_shared_cta_b64(unsigned barrier) { emulation::arrive(barrier, 0); }
inline void mbarrier_try_wait_parity_shared_cta_b64(unsigned barrier, uint32_t parity,
                                                    OPWELD_HERE) {
    emulation::wait_for_phase(barrier, parity, line);
}
// What mbarrier.arrive begins with, at another block.
inline void mapa_shared_cluster_u32(unsigned barrier, uint32_t block) {
    emulation::arrive_at_block(barrier, block);
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(
    unsigned to, const void* from, int bytes, unsigned barrier, OPWELD_HERE) {
    emulation::start_bulk_copy(to, from, bytes, barrier, line);
}
inline void bar_sync(int barrier, int count, OPWELD_HERE) {
    emulation::sync_threads(barrier, count, true, line);
}
inline void bar_arrive(int barrier, int count, OPWELD_HERE) {
    emulation::sync_threads(barrier, count, false, line);
}
#undef OPWELD_HERE
inline void fence_proxy_async_shared_cta() {}
inline void fence_mbarrier_init_release_cluster() {}
inline uint32_t cluster_ctarank() { return uint32_t(emulation::block_in_cluster()); }
inline uint32_t clusterid_x() { return blockIdx.x / emulation::blocks_of_cluster(); }
inline uint32_t nclusterid_x() { return gridDim.x / emulation::blocks_of_cluster(); }
inline void setmaxnreg_inc_sync_aligned_u32(int) {}
inline void setmaxnreg_dec_sync_aligned_u32(int) {}
inline void wgmma_fence_sync_aligned() {}
inline void wgmma_commit_group_sync_aligned() { emulation::commit_products(); }
inline void wgmma_wait_group_sync_aligned(int open) { emulation::await_products(open); }
inline void wgmma_mma_async_sync_aligned_m64n64k16_f32_f16_f16(float* sums, int, uint64_t a,
                                                               uint64_t b, int add) {
    emulation::start_product(sums, 64, nullptr, a, b, add != 0);
}
inline void wgmma_mma_async_sync_aligned_m64n64k16_f32_f16_f16(float* sums, int, uint32_t a0,
                                                               uint32_t a1, uint32_t a2,
                                                               uint32_t a3, uint64_t b, int add) {
    const emulation::RowPair rows = emulation::row_pair({{a0, a1, a2, a3}});
    emulation::start_product(sums, 64, &rows, 0, b, add != 0);
}
// The registers of 128 columns come as two halves of one array.
inline void wgmma_mma_async_sync_aligned_m64n128k16_f32_f16_f16(float* sums, int, float*, int,
                                                                uint64_t a, uint64_t b, int add) {
    emulation::start_product(sums, 128, nullptr, a, b, add != 0);
}
inline void wgmma_mma_async_sync_aligned_m64n64k8_f32_tf32_tf32(float* sums, int, uint32_t a0,
                                                                uint32_t a1, uint32_t a2,
                                                                uint32_t a3, uint64_t b, int add) {
    const emulation::RowPair rows = emulation::row_pair_tf32({{a0, a1, a2, a3}});
    emulation::start_product(sums, 64, &rows, 0, b, add != 0, true);
}
inline void wgmma_mma_async_sync_aligned_m64n128k8_f32_tf32_tf32(float* sums, int, float*, int,
                                                                 uint32_t a0, uint32_t a1,
                                                                 uint32_t a2, uint32_t a3,
                                                                 uint64_t b, int add) {
    const emulation::RowPair rows = emulation::row_pair_tf32({{a0, a1, a2, a3}});
    emulation::start_product(sums, 128, &rows, 0, b, add != 0, true);
}
