// CUDA as plain C++17 for tests: the qualifiers, built-in variables, barriers, warp functions,
// atomics, vector and half types that kernels use. emulate.py rewrites `<<<...>>>` and
// `__shared__`, compiles a text against this header and links it with runtime.cpp, which runs
// blocks, or clusters of them, one after another and their threads as fibers.
#pragma once

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __CUDACC__ 1
#define OPWELD_EMULATION 1
#define __CUDA_ARCH__ 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __grid_constant__
#define CUDART_INF_F __builtin_huge_valf()
#define CUDART_INF __builtin_huge_val()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")

#include "vector_types.h"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

typedef int cudaError_t;
typedef void* cudaStream_t;
constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
constexpr int cudaFuncAttributePreferredSharedMemoryCarveout = 9;

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int attribute, int value);
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t = nullptr) {
    memset(p, value, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, cudaStream_t) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
constexpr int cudaMemcpyDeviceToDevice = 3;

namespace emulation {

enum class Exchange { kNone, kIdx, kUp, kDown, kXor, kBallot, kAll, kAny, kMax };
enum class Count { kNone, kSum, kAnd, kOr };

void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
              void (*body)(const void*), const void* closure, unsigned cluster = 1);
void cluster_barrier(int line);
void let_others_run(int line);
size_t pick(size_t count);  // one of as many, by the order of threads
const void* peer_place(const void* mine, unsigned block);
int block_barrier(Count count, int predicate, int line);
uint64_t warp_exchange(Exchange kind, unsigned mask, uint64_t value, int operand, int width,
                       int line);
unsigned active_lanes();
void* shared_variable(const void* key, const char* name, size_t bytes, size_t alignment);
void* dynamic_shared();
void allow_dynamic_shared(int bytes);
[[noreturn]] void fail(const char* format, ...);

template <typename Body>
void launch(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, const void*,
            const Body& body, unsigned cluster = 1) {
    run_grid(
        kernel, grid, block, shared_bytes,
        [](const void* closure) { (*static_cast<const Body*>(closure))(); }, &body, cluster);
}

// What stands between <<< and >>>: the last two may be missing.
struct Geometry {
    dim3 grid, block;
    size_t shared_bytes;
    const void* stream;
    Geometry(dim3 g, dim3 b, size_t s = 0, const void* q = nullptr)
        : grid(g), block(b), shared_bytes(s), stream(q) {}
};
template <typename Body>
void launch(const char* kernel, const Geometry& g, const Body& body) {
    launch(kernel, g.grid, g.block, g.shared_bytes, g.stream, body);
}

template <typename T>
T& shared(const void* key, const char* name) {
    return *static_cast<T*>(shared_variable(key, name, sizeof(T), alignof(T)));
}

template <typename T>
T exchange(Exchange kind, unsigned mask, T value, int operand, int width, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    bits = warp_exchange(kind, mask, bits, operand, width, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}

// One launcher of the text, callable with arguments that the command line gave.
struct Argument {
    char kind;  // p(ointer), i(nteger), f(loating)
    void* pointer;
    long long integer;
    double floating;
    size_t bytes;
};
void protect(const Argument& argument);

template <typename P>
struct Convert {
    static P from(const Argument& a, const char* name, int index) {
        if (a.kind == 'f' && P(1.5) == P(1))
            fail("%s: argument %d must be an integer, a float was given", name, index);
        if (a.kind == 'p')
            fail("%s: argument %d must be a number, an array was given", name, index);
        return a.kind == 'f' ? P(a.floating) : P(a.integer);
    }
};
template <typename P>
struct Convert<P*> {
    static P* from(const Argument& a, const char* name, int index) {
        if (a.kind != 'p')
            fail("%s: argument %d must be an array, a number was given", name, index);
        return static_cast<P*>(a.pointer);
    }
};
template <typename P>
struct Convert<const P*> {
    static const P* from(const Argument& a, const char* name, int index) {
        P* pointer = Convert<P*>::from(a, name, index);
        protect(a);
        return pointer;
    }
};
template <int... I>
struct Indices {};
template <int N, int... I>
struct MakeIndices : MakeIndices<N - 1, N - 1, I...> {};
template <int... I>
struct MakeIndices<0, I...> {
    using type = Indices<I...>;
};
template <typename R, typename... P, int... I>
R call_with(R (*f)(P...), const Argument* a, const char* name, Indices<I...>) {
    return f(Convert<P>::from(a[I], name, I)...);
}
template <typename R, typename... P>
int call(R (*f)(P...), const Argument* a, int num_arguments, const char* name) {
    if (num_arguments != int(sizeof...(P)))
        fail("%s takes %d arguments, %d were given (the stream counts)", name, int(sizeof...(P)),
             num_arguments);
    return int(call_with(f, a, name, typename MakeIndices<int(sizeof...(P))>::type{}));
}
struct Launcher {
    const char* name;
    int (*run)(const Argument*, int, const char*);
    const char* parameters;
};

}  // namespace emulation

template <typename Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, int attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        emulation::allow_dynamic_shared(value);
    return cudaSuccess;
}

// Multiprocessors that hold one block each, one where EMULATED_MULTIPROCESSORS says nothing else.
inline int emulated_multiprocessors() {
    const char* number = getenv("EMULATED_MULTIPROCESSORS");
    return number ? atoi(number) : 1;
}
using cudaLaunchAttributeID = int;
constexpr int cudaDevAttrMultiProcessorCount = 16, cudaLaunchAttributeCooperative = 2;
constexpr int cudaDevAttrMaxSharedMemoryPerBlockOptin = 97;
constexpr int cudaLaunchAttributeClusterDimension = 4;
constexpr int cudaLaunchAttributeProgrammaticStreamSerialization = 6;
constexpr int cudaDevAttrComputeCapabilityMajor = 75;
constexpr cudaError_t cudaErrorCooperativeLaunchTooLarge = 720;
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int) {
    *value = attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 227 * 1024
             : attribute == cudaDevAttrMultiProcessorCount        ? emulated_multiprocessors()
                                                                  : 1;
    return cudaSuccess;
}
constexpr cudaError_t cudaErrorNotSupported = 801;
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
    return *blocks = 1, cudaSuccess;
}
struct cudaLaunchAttribute {
    int id;
    struct {
        int cooperative, programmaticStreamSerializationAllowed;
        dim3 clusterDim;
    } val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, Kernel,
                                           const cudaLaunchConfig_t* config) {
    const unsigned blocks = config->numAttrs ? config->attrs[0].val.clusterDim.x : 1;
    return *clusters = emulated_multiprocessors() / int(blocks), cudaSuccess;
}
template <typename... Parameters, typename... RowScalar>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               RowScalar... given) {
    bool cooperative = false;
    unsigned cluster = 1;
    for (unsigned i = 0; i < config->numAttrs; ++i) {
        cooperative = cooperative || config->attrs[i].id == cudaLaunchAttributeCooperative;
        if (config->attrs[i].id == cudaLaunchAttributeClusterDimension)
            cluster = config->attrs[i].val.clusterDim.x;
    }
    if (!cooperative && cluster > 8) return cudaErrorInvalidValue;
    if (cooperative) cluster = config->gridDim.x;  // its blocks run side by side, too
    const unsigned most = unsigned(emulated_multiprocessors());
    if (cooperative && cluster > 8 && cluster > most) return cudaErrorCooperativeLaunchTooLarge;
    emulation::launch(
        "kernel", config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream,
        [&] { kernel(given...); }, cluster);
    return cudaGetLastError();
}

#define __syncthreads() ((void)emulation::block_barrier(emulation::Count::kNone, 0, __LINE__))
#define __syncthreads_count(p) emulation::block_barrier(emulation::Count::kSum, (p), __LINE__)
#define __syncthreads_and(p) emulation::block_barrier(emulation::Count::kAnd, (p), __LINE__)
#define __syncthreads_or(p) emulation::block_barrier(emulation::Count::kOr, (p), __LINE__)
#define __nanosleep(ns) ((void)0)
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
#define __threadfence_system() ((void)0)

// Default arguments, so that a call's own line is known although the width may be left out.
#define OPWELD_HERE int line = __builtin_LINE()
inline void __syncwarp(unsigned mask = 0xffffffffu, OPWELD_HERE) {
    emulation::warp_exchange(emulation::Exchange::kNone, mask, 0, 0, 32, line);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, OPWELD_HERE) {
    return emulation::exchange(emulation::Exchange::kIdx, mask, value, lane, width, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, OPWELD_HERE) {
    return emulation::exchange(emulation::Exchange::kUp, mask, value, int(delta), width, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, OPWELD_HERE) {
    return emulation::exchange(emulation::Exchange::kDown, mask, value, int(delta), width, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, OPWELD_HERE) {
    return emulation::exchange(emulation::Exchange::kXor, mask, value, lanes, width, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, OPWELD_HERE) {
    return unsigned(
        emulation::warp_exchange(emulation::Exchange::kBallot, mask, predicate != 0, 0, 32, line));
}
inline int __all_sync(unsigned mask, int predicate, OPWELD_HERE) {
    return int(
        emulation::warp_exchange(emulation::Exchange::kAll, mask, predicate != 0, 0, 32, line));
}
inline int __any_sync(unsigned mask, int predicate, OPWELD_HERE) {
    return int(
        emulation::warp_exchange(emulation::Exchange::kAny, mask, predicate != 0, 0, 32, line));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, OPWELD_HERE) {
    return unsigned(emulation::warp_exchange(emulation::Exchange::kMax, mask, value, 0, 32, line));
}
#undef OPWELD_HERE
inline unsigned __activemask() { return emulation::active_lanes(); }

// Threads run one at a time, so a plain read-modify-write is atomic.
template <typename T, typename V>
T atomicAdd(T* p, V v) {
    T old = *p;
    *p = T(old + T(v));
    return old;
}
template <typename T, typename V>
T atomicMax(T* p, V v) {
    T old = *p;
    *p = old < T(v) ? T(v) : old;
    return old;
}
template <typename T, typename V>
T atomicMin(T* p, V v) {
    T old = *p;
    *p = T(v) < old ? T(v) : old;
    return old;
}
template <typename T, typename V>
T atomicExch(T* p, V v) {
    T old = *p;
    *p = T(v);
    return old;
}
template <typename T, typename U, typename V>
T atomicCAS(T* p, U expected, V v) {
    T old = *p;
    if (old == T(expected)) *p = T(v);
    return old;
}
template <typename T, typename V>
T atomicOr(T* p, V v) {
    T old = *p;
    *p = T(old | T(v));
    return old;
}
template <typename T, typename V>
T atomicAnd(T* p, V v) {
    T old = *p;
    *p = T(old & T(v));
    return old;
}

// Cache hints are plain accesses.
template <typename T>
T __ldg(const T* p) {
    return *p;
}
template <typename T>
T __ldcs(const T* p) {
    return *p;
}
template <typename T>
T __ldcg(const T* p) {
    return *p;
}
template <typename T>
T __ldca(const T* p) {
    return *p;
}
template <typename T>
void __stcs(T* p, T v) {
    *p = v;
}
template <typename T>
void __stwb(T* p, T v) {
    *p = v;
}
template <typename T>
void __stcg(T* p, T v) {
    *p = v;
}
template <typename T>
void __stwt(T* p, T v) {
    *p = v;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
inline float normcdff(float x) { return 0.5f * erfcf(x * -0.70710678118654752440f); }
inline double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __exp2f(float x) { return exp2f(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return fmaf(a, b, -0.0f); }
inline double __dmul_rn(double a, double b) { return fma(a, b, -0.0); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
inline int __mulhi(int a, int b) { return int((int64_t(a) * b) >> 32); }

namespace emulation {
template <typename To, typename From>
To bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To to;
    memcpy(&to, &from, sizeof(To));
    return to;
}
}  // namespace emulation
inline int __float_as_int(float x) { return emulation::bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emulation::bits<unsigned>(x); }
inline float __int_as_float(int x) { return emulation::bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulation::bits<float>(x); }
inline long long __double_as_longlong(double x) { return emulation::bits<long long>(x); }
inline double __longlong_as_double(long long x) { return emulation::bits<double>(x); }

#include "ptx.h"
#include "tensor_core.h"
#include "hopper.h"
#include "tensor_map.h"

// CUDA's global min and max: of mixed integers the usual arithmetic conversions decide.
template <typename A, typename B>
auto max(A a, B b) -> decltype(a + b) {
    using C = decltype(a + b);
    return C(a) < C(b) ? C(b) : C(a);
}
template <typename A, typename B>
auto min(A a, B b) -> decltype(a + b) {
    using C = decltype(a + b);
    return C(b) < C(a) ? C(b) : C(a);
}
