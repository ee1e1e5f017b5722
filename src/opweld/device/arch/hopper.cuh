// Hopper's own instructions, one function each (PTX ISA 8.x, sm_90a): barriers in shared memory
// that count bytes, tile copies by the tensor memory accelerator, warpgroup matrix products.

// @tensor_map_header deps:
#include <algorithm>
#include <cuda.h>
#include <cudaTypedefs.h>

namespace op {

// @shared_address deps:
// the 32-bit address that PTX takes for a pointer into shared memory
[[maybe_unused]] OPWELD_FN uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// @Barrier deps: shared_address
// A barrier in shared memory: a phase ends when all arrivals and all announced bytes are there.
struct Barrier {
    uint64_t word;

    __device__ __forceinline__ uint32_t at() const { return shared_address(&word); }

    __device__ __forceinline__ void init(int arrivals) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at()), "r"(arrivals));
    }

    // one arrival, which announces `bytes` that copies will write
    __device__ __forceinline__ void expect(uint32_t bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at()),
                     "r"(bytes)
                     : "memory");
    }

    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at()) : "memory");
    }

    // One arrival at the same barrier of another block of the cluster. It orders nothing but what
    // the tensor cores have read: a release for the cluster would wait for all memory of the chip.
    __device__ __forceinline__ void arrive_at(uint32_t block) {
        asm volatile(
            "{\n"
            ".reg .b32 remote;\n"
            "mapa.shared::cluster.u32 remote, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
            "}" ::"r"(at()),
            "r"(block)
            : "memory");
    }

    // until the phase of this parity has ended
    __device__ __forceinline__ void wait(uint32_t parity) const {
        asm volatile(
            "{\n"
            ".reg .pred done;\n"
            "again:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra again;\n"
            "}" ::"r"(at()),
            "r"(parity)
            : "memory");
    }
};

// @tile_memory deps: shared_address
// All dynamic shared memory of a block as a Memory, which begins where tiles may, at a multiple of
// 1024: swizzled rows and their descriptors ask for that, and a launch promises 16. So it asks for
// kTileMemoryBytes.
template <typename Memory>
constexpr int kTileMemoryBytes = int(sizeof(Memory)) + 1024;

template <typename Memory>
OPWELD_FN Memory& tile_memory() {
    static_assert(kTileMemoryBytes<Memory> <= 227 * 1024,
                  "more shared memory than a block can have");
    extern __shared__ unsigned char opweld_shared[];
    const uint32_t misfit = shared_address(opweld_shared) & 1023;
    return *reinterpret_cast<Memory*>(opweld_shared + (misfit ? 1024 - misfit : 0));
}

// @Ring deps:
// The position in a ring of kStages buffers, and the parity of the phase it is in.
template <int kStages>
struct Ring {
    int stage = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == kStages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// @cluster deps:
OPWELD_FN uint32_t rank_in_cluster() {
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

OPWELD_FN uint32_t cluster_index() {
    uint32_t index;
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
    return index;
}

OPWELD_FN uint32_t num_clusters() {
    uint32_t count;
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
    return count;
}

OPWELD_FN void publish_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// @sync_cluster deps:
OPWELD_FN void sync_cluster() {
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
}

// @mapa deps:
// What stands in the place of a shared variable in block `rank` of this cluster.
template <typename T>
OPWELD_FN T mapa(const T& mine, int rank) {
    uint64_t address;
    asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(&mine), "r"(rank));
    return *reinterpret_cast<const T*>(address);
}

// @copy_tile deps: Barrier, tensor_map_header
// One box of a tensor into shared memory, at the same place of every block whose bit is in
// `blocks`; elements outside the tensor are written as zero. `barrier` gets the bytes, in each of
// them.
template <bool kMulticast>
OPWELD_FN void copy_tile(void* to, const CUtensorMap* map, const Barrier& barrier, int x, int row,
                         int batch, uint16_t blocks) {
    if constexpr (kMulticast) {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
            "l"(map), "r"(barrier.at()), "r"(x), "r"(row), "r"(batch), "h"(blocks)
            : "memory");
    } else {
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
            " [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
            "l"(map), "r"(barrier.at()), "r"(x), "r"(row), "r"(batch)
            : "memory");
    }
}

// @copy_bulk deps: Barrier
// `bytes`, a multiple of 16, from global into shared memory; `barrier` gets them.
OPWELD_FN void copy_bulk(void* to, const void* from, int bytes, const Barrier& barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(shared_address(to)),
        "l"(from), "r"(bytes), "r"(barrier.at())
        : "memory");
}

// @prefetch_map deps: tensor_map_header
OPWELD_FN void prefetch_map(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// @setmaxnreg deps:
// Registers a thread from here on; all warps of a warpgroup say the same number.
template <int kRegisters, bool kMore>
OPWELD_FN void setmaxnreg() {
    if constexpr (kMore) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
    }
}

// @sync_threads deps:
// A barrier of kThreads threads of a block, whole warps; 0 is that of __syncthreads.
template <int kThreads>
OPWELD_FN void sync_threads(int barrier) {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}
// One arrival of this thread there, without waiting.
template <int kThreads>
OPWELD_FN void arrive_at_threads(int barrier) {
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// @start_dependents deps:
// Programmatic dependent launch: the next kernel may be started, and waits before it reads. Devices
// before sm_90 start it when this one has ended.
[[maybe_unused]] OPWELD_FN void start_dependents() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// @dependents deps: start_dependents
// Waits for all kernels ahead.
OPWELD_FN void griddepcontrol_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// @starts_early deps:
// Whether the device can start a kernel before the one ahead of it has ended: from sm_90 on.
[[maybe_unused]] static bool starts_early() {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    return major >= 9;
}

// @fence_proxy deps:
// What this thread has done in shared memory comes before what the async proxy does there after a
// barrier: the tensor cores read what it has stored, and bulk copies do not overwrite what its
// loads are still under way to.
OPWELD_FN void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// @tf32_word deps:
// x rounded, half away from zero, to the 11 bits that the tensor cores read of a float32 value;
// they leave the others out.
OPWELD_FN uint32_t tf32_word(float x) {
    const uint32_t word = __float_as_uint(x);
    return fabsf(x) <= 3.40282347e38f ? word + 0x1000u : word;
}

// @tile_descriptor deps: shared_address
// What wgmma takes for an operand in shared memory: rows of 128, 64 or 32 bytes, swizzled by as
// many, groups of eight rows one after the other, or so many bytes apart. Rows are counted from a
// multiple of 1024 bytes on; adding n moves by 16 n bytes along the row, or to other rows.
template <int kRowBytes = 128>
OPWELD_FN uint64_t tile_descriptor(const void* tile, int group_bytes = 8 * kRowBytes) {
    constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
    const uint64_t at = (shared_address(tile) & 0x3FFFF) >> 4;
    return at | uint64_t(1) << 16 | uint64_t(group_bytes >> 4) << 32 | kSwizzle << 62;
}

// @wgmma_order deps:
OPWELD_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
OPWELD_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int kPending>
OPWELD_FN void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// The compiler must not move what touches these registers across the asynchronous products.
template <int kCount>
OPWELD_FN void pin(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// @Type deps:
// A type as a value.
template <typename T>
struct Type {};

// @wgmma_operands deps:
#define OPWELD_8(d, i)                                                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define OPWELD_32(d, i) OPWELD_8(d, i), OPWELD_8(d, i + 8), OPWELD_8(d, i + 16), OPWELD_8(d, i + 24)

// @wgmma_sums_64 deps:
// a thread's registers of 64 columns
#define OPWELD_SUMS_64                         \
    "{%0, %1, %2, %3, %4, %5, %6, %7, "        \
    "%8, %9, %10, %11, %12, %13, %14, %15, "   \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31}, "

// @wgmma_text_64 deps: wgmma_sums_64
#define OPWELD_WGMMA_64 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " OPWELD_SUMS_64

// @wgmma_half_64 deps: wgmma_operands, wgmma_text_64
// sums[64, 64] += a[64, 16] b[64, 16]^T over one warpgroup, b in shared memory; where `add` is 0
// the sums begin anew. They lie as those of 128 columns do. words[i] of a thread has row 16 warp +
// lane / 4 + 8 (i % 2), columns 2 (lane % 4) + 8 (i / 2) and the next of a.
[[maybe_unused]] OPWELD_FN void wgmma(float (&sums)[32], const uint32_t (&a)[4], uint64_t b,
                                      int add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %37, 0;\n" OPWELD_WGMMA_64
        "{%32, %33, %34, %35}, %36, add, 1, 1, 0;\n"
        "}"
        : OPWELD_32(sums, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// @wgmma_half_64_shared deps: wgmma_operands, wgmma_text_64
// sums[64, 64] += a[64, 16] b[64, 16]^T over one warpgroup, both in shared memory; where `add` is 0
// the sums begin anew.
[[maybe_unused]] OPWELD_FN void wgmma(float (&sums)[32], uint64_t a, uint64_t b, int add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %34, 0;\n" OPWELD_WGMMA_64
        "%32, %33, add, 1, 1, 0, 0;\n"
        "}"
        : OPWELD_32(sums, 0)
        : "l"(a), "l"(b), "r"(add));
}

// @wgmma_half_64_typed deps: half, Type, wgmma_half_64_shared
[[maybe_unused]] OPWELD_FN void wgmma(Type<half>, float (&sums)[32], uint64_t a, uint64_t b,
                                      int add) {
    wgmma(sums, a, b, add);
}

// @wgmma_tf32_64 deps: Type, wgmma_operands, wgmma_sums_64
#define OPWELD_WGMMA_TF32_64 "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 " OPWELD_SUMS_64
// sums[64, 64] += a[64, 8] b[64, 8]^T over one warpgroup, of float32 values rounded to 11 bits, b
// in shared memory; where `add` is 0 the sums begin anew. They lie as those of halves do. words[i]
// of a thread has row 16 warp + lane / 4 + 8 (i % 2), column lane % 4 + 4 (i / 2) of a.
[[maybe_unused]] OPWELD_FN void wgmma_tf32(Type<float>, float (&sums)[32], const uint32_t (&a)[4],
                                           uint64_t b, int add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %37, 0;\n" OPWELD_WGMMA_TF32_64
        "{%32, %33, %34, %35}, %36, add, 1, 1;\n"
        "}"
        : OPWELD_32(sums, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// @wgmma_sums_128 deps:
#define OPWELD_SUMS_128                        \
    "{%0, %1, %2, %3, %4, %5, %6, %7, "        \
    "%8, %9, %10, %11, %12, %13, %14, %15, "   \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63}, "

// @wgmma_tf32_128 deps: Type, wgmma_operands, wgmma_sums_128
#define OPWELD_WGMMA_TF32_128 \
    "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 " OPWELD_SUMS_128
// sums[64, 128] += a[64, 8] b[128, 8]^T over one warpgroup in TF32, b in shared memory; where `add`
// is 0 the sums begin anew.
[[maybe_unused]] OPWELD_FN void wgmma_tf32(Type<float>, float (&sums)[64], const uint32_t (&a)[4],
                                           uint64_t b, int add) {
    asm volatile(
        "{\n"
        ".reg .pred add;\n"
        "setp.ne.b32 add, %69, 0;\n" OPWELD_WGMMA_TF32_128
        "{%64, %65, %66, %67}, %68, add, 1, 1;\n"
        "}"
        : OPWELD_32(sums, 0), OPWELD_32(sums, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// @wgmma_text_128 deps: wgmma_sums_128
#define OPWELD_WGMMA_128(type)                                                       \
    "{\n"                                                                            \
    ".reg .pred add;\n"                                                              \
    "setp.ne.b32 add, %66, 0;\n"                                                     \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " " OPWELD_SUMS_128 \
    "%64, %65, add, 1, 1, 0, 0;\n"                                                   \
    "}"

// @wgmma_text_256 deps:
#define OPWELD_WGMMA_256(type)                                   \
    "{\n"                                                        \
    ".reg .pred add;\n"                                          \
    "setp.ne.b32 add, %130, 0;\n"                                \
    "wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type \
    " {"                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, "                           \
    "%8, %9, %10, %11, %12, %13, %14, %15, "                     \
    "%16, %17, %18, %19, %20, %21, %22, %23, "                   \
    "%24, %25, %26, %27, %28, %29, %30, %31, "                   \
    "%32, %33, %34, %35, %36, %37, %38, %39, "                   \
    "%40, %41, %42, %43, %44, %45, %46, %47, "                   \
    "%48, %49, %50, %51, %52, %53, %54, %55, "                   \
    "%56, %57, %58, %59, %60, %61, %62, %63, "                   \
    "%64, %65, %66, %67, %68, %69, %70, %71, "                   \
    "%72, %73, %74, %75, %76, %77, %78, %79, "                   \
    "%80, %81, %82, %83, %84, %85, %86, %87, "                   \
    "%88, %89, %90, %91, %92, %93, %94, %95, "                   \
    "%96, %97, %98, %99, %100, %101, %102, %103, "               \
    "%104, %105, %106, %107, %108, %109, %110, %111, "           \
    "%112, %113, %114, %115, %116, %117, %118, %119, "           \
    "%120, %121, %122, %123, %124, %125, %126, %127}, "          \
    "%128, %129, add, 1, 1, 0, 0;\n"                             \
    "}"

// @wgmma_half_128 deps: half, Type, wgmma_operands, wgmma_text_128
// sums[64, 128] += a[64, 16] b[128, 16]^T over one warpgroup, both in shared memory; where `add` is
// 0 the sums begin anew. A thread's sums[4 i + 2 j + c] is row 16 warp + lane / 4 + 8 j, column 8 i
// + 2 (lane % 4) + c.
[[maybe_unused]] OPWELD_FN void wgmma(Type<half>, float (&sums)[64], uint64_t a, uint64_t b,
                                      int add) {
    asm volatile(OPWELD_WGMMA_128("f16")
                 : OPWELD_32(sums, 0), OPWELD_32(sums, 32)
                 : "l"(a), "l"(b), "r"(add));
}

// @wgmma_half_256 deps: half, Type, wgmma_operands, wgmma_text_256
// sums[64, 256] += a[64, 16] b[256, 16]^T over one warpgroup, both in shared memory; where `add` is
// 0 the sums begin anew. A thread's sums[4 i + 2 j + c] is row 16 warp + lane / 4 + 8 j, column 8 i
// + 2 (lane % 4) + c.
[[maybe_unused]] OPWELD_FN void wgmma(Type<half>, float (&sums)[128], uint64_t a, uint64_t b,
                                      int add) {
    asm volatile(OPWELD_WGMMA_256("f16")
                 : OPWELD_32(sums, 0), OPWELD_32(sums, 32), OPWELD_32(sums, 64), OPWELD_32(sums, 96)
                 : "l"(a), "l"(b), "r"(add));
}

// @wgmma_bfloat16_128 deps: bfloat16, Type, wgmma_operands, wgmma_text_128
[[maybe_unused]] OPWELD_FN void wgmma(Type<bfloat16>, float (&sums)[64], uint64_t a, uint64_t b,
                                      int add) {
    asm volatile(OPWELD_WGMMA_128("bf16")
                 : OPWELD_32(sums, 0), OPWELD_32(sums, 32)
                 : "l"(a), "l"(b), "r"(add));
}

// @wgmma_bfloat16_256 deps: bfloat16, Type, wgmma_operands, wgmma_text_256
// sums[64, 256] += a[64, 16] b[256, 16]^T over one warpgroup, both in shared memory; where `add` is
// 0 the sums begin anew. A thread's sums[4 i + 2 j + c] is row 16 warp + lane / 4 + 8 j, column 8 i
// + 2 (lane % 4) + c.
[[maybe_unused]] OPWELD_FN void wgmma(Type<bfloat16>, float (&sums)[128], uint64_t a, uint64_t b,
                                      int add) {
    asm volatile(OPWELD_WGMMA_256("bf16")
                 : OPWELD_32(sums, 0), OPWELD_32(sums, 32), OPWELD_32(sums, 64), OPWELD_32(sums, 96)
                 : "l"(a), "l"(b), "r"(add));
}

}  // namespace op
