"""The emulation computes what the GPU would, and reports what no kernel may do."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulation.emulate import (
    ORDERS,
    EmulationFault,
    OrderDependence,
    Shifted,
    emulate,
    emulate_orders,
    from_bfloat16,
    to_bfloat16,
)

SOUND = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <typename T, int kScale>
__global__ void __launch_bounds__(128) scale(const T* __restrict__ x, T* __restrict__ out, long n) {
  for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    out[i] = T(float(x[i]) * kScale);
}

// out[row] = sum of x[row, :], one block a row
__global__ void row_sum(const float* x, float* out, int columns) {
  __shared__ float partial[32];
  float sum = 0.0f;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
  }
}

__global__ void transpose(const float* x, float* out, int rows, int columns) {
  __shared__ float tile[16][17];
  int column = blockIdx.x * 16 + threadIdx.x, row = blockIdx.y * 16 + threadIdx.y;
  if (row < rows && column < columns) tile[threadIdx.y][threadIdx.x] = x[row * columns + column];
  __syncthreads();
  column = blockIdx.y * 16 + threadIdx.x, row = blockIdx.x * 16 + threadIdx.y;
  if (row < columns && column < rows) out[row * rows + column] = tile[threadIdx.x][threadIdx.y];
}

__global__ void reverse_block(const int* x, int* out) {
  extern __shared__ __align__(16) int staged[];
  staged[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = staged[blockDim.x - 1 - threadIdx.x];
}

__global__ void count_and_vote(const float* x, int* total, unsigned* ballots) {
  bool positive = x[threadIdx.x] > 0.0f;
  if (positive) atomicAdd(total, 1);
  unsigned ballot = __ballot_sync(0xffffffffu, positive);
  if (threadIdx.x % 32 == 0) ballots[threadIdx.x / 32] = ballot;
  int count = __syncthreads_count(positive);
  if (threadIdx.x == 0) total[1] = count;
}

__global__ void shuffle_kinds(const int* x, int* out) {
  int v = x[threadIdx.x];
  out[threadIdx.x] = __shfl_sync(0xffffffffu, v, 3, 8);
  out[32 + threadIdx.x] = __shfl_up_sync(0xffffffffu, v, 2);
  out[64 + threadIdx.x] = __shfl_down_sync(0xffffffffu, v, 5, 16);
  out[96 + threadIdx.x] = __shfl_xor_sync(0xffffffffu, v, 1);
}

extern "C" int scale_half(const void* x, void* out, long n, void* stream) {
  scale<__half, 3><<<2, 128, 0, (cudaStream_t)stream>>>((const __half*)x, (__half*)out, n);
  return cudaGetLastError();
}
extern "C" int scale_bfloat16(const void* x, void* out, long n, void* stream) {
  scale<__nv_bfloat16, 3><<<dim3(2), 128, 0, (cudaStream_t)stream>>>(
      (const __nv_bfloat16*)x, (__nv_bfloat16*)out, n);
  return cudaGetLastError();
}
extern "C" int row_sums(const void* x, void* out, int rows, int columns, void* stream) {
  row_sum<<<rows, 256, 0, (cudaStream_t)stream>>>((const float*)x, (float*)out, columns);
  return cudaGetLastError();
}
extern "C" int transposed(const void* x, void* out, int rows, int columns, void* stream) {
  dim3 grid((columns + 15) / 16, (rows + 15) / 16);
  transpose<<<grid, dim3(16, 16), 0, (cudaStream_t)stream>>>(
      static_cast<const float*>(x), static_cast<float*>(out), rows, columns);
  return cudaGetLastError();
}
extern "C" int reversed(const void* x, void* out, int n, void* stream) {
  reverse_block<<<1, n, n * sizeof(int), (cudaStream_t)stream>>>((const int*)x, (int*)out);
  return cudaGetLastError();
}
extern "C" int counted(const void* x, void* total, void* ballots, void* stream) {
  count_and_vote<<<1, 64>>>((const float*)x, (int*)total, (unsigned*)ballots);
  return cudaGetLastError();
}
extern "C" int shuffled(const void* x, void* out, void* stream) {
  shuffle_kinds<<<1, 32>>>((const int*)x, (int*)out);
  return cudaGetLastError();
}
extern "C" int too_many_threads(void* stream) {
  reverse_block<<<1, 2048>>>(nullptr, nullptr);
  return cudaGetLastError();
}
"""


def test_half_is_rounded_to_nearest_even():
    x = np.linspace(-9.0, 9.0, 1001).astype(np.float16)
    out = np.empty_like(x)
    emulate(SOUND, "scale_half", [x, out, x.size])
    np.testing.assert_array_equal(out, (x.astype(np.float32) * 3).astype(np.float16))


def test_bfloat16_is_rounded_to_nearest_even():
    x = to_bfloat16(np.linspace(-9.0, 9.0, 1001).astype(np.float32))
    out = np.empty_like(x)
    emulate(SOUND, "scale_bfloat16", [x, out, x.size])
    np.testing.assert_array_equal(out, to_bfloat16(from_bfloat16(x) * 3))


@pytest.mark.parametrize("guard", ["end", "front"])
@pytest.mark.parametrize("order", ORDERS)
def test_block_reduction(order: str, guard: str):
    x = np.arange(3 * 1001, dtype=np.float32).reshape(3, 1001) % 17
    out = np.zeros(3, np.float32)
    emulate(SOUND, "row_sums", [x, out, 3, 1001], order=order, guard=guard, seed=5)
    np.testing.assert_array_equal(out, x.sum(1))


def test_transpose_through_shared_memory_in_every_order():
    x = np.random.default_rng(0).standard_normal((37, 50), np.float32)
    out = np.empty((50, 37), np.float32)
    emulate_orders(SOUND, "transposed", [x, out, 37, 50])
    np.testing.assert_array_equal(out, x.T)


def test_dynamic_shared_memory():
    x = np.arange(1000, dtype=np.int32)
    out = np.zeros_like(x)
    emulate(SOUND, "reversed", [x, out, 1000])
    np.testing.assert_array_equal(out, x[::-1])


def test_atomics_and_votes():
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    total, ballots = np.zeros(2, np.int32), np.zeros(2, np.uint32)
    emulate(SOUND, "counted", [x, total, ballots])
    bits = (x > 0).reshape(2, 32) @ (1 << np.arange(32, dtype=np.uint64))
    np.testing.assert_array_equal(total, [(x > 0).sum()] * 2)
    np.testing.assert_array_equal(ballots, bits)


def test_shuffles():
    x = np.arange(32, dtype=np.int32) * 10
    out = np.zeros(128, np.int32)
    emulate(SOUND, "shuffled", [x, out])
    lane = np.arange(32)
    sources = [
        lane // 8 * 8 + 3,
        np.where(lane >= 2, lane - 2, lane),
        np.where(lane % 16 + 5 < 16, lane + 5, lane),
        lane ^ 1,
    ]
    np.testing.assert_array_equal(out.reshape(4, 32), [x[s] for s in sources])


def test_refused_launch_is_reported():
    with pytest.raises(EmulationFault, match="too_many_threads returned 9: invalid configuration"):
        emulate(SOUND, "too_many_threads", [])


def test_empty_array():
    empty = np.empty(0, np.float16)
    emulate(SOUND, "scale_half", [empty, empty.copy(), 0])


PLANTED = r"""
__global__ void neighbours(const float* x, float* out, bool wait) {
  __shared__ float staged[64];
  staged[threadIdx.x] = x[threadIdx.x];
  if (wait) __syncthreads();
  out[threadIdx.x] = staged[(threadIdx.x + 63) % 64];
}
__global__ void shift(const float* x, float* out, int n, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i + by];
}
__global__ void stray_write(const float* x, float* out, int n, int by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i + by] = x[i];
}
__global__ void copy4(const float* x, float* out) {
  reinterpret_cast<float4*>(out)[threadIdx.x] = reinterpret_cast<const float4*>(x)[threadIdx.x];
}
__global__ void last_writer(float* out) { *out = float(threadIdx.x); }
__global__ void last_block(float* out) { *out = float(blockIdx.x); }
__global__ void leaves_early(float* out, int n) {
  if (int(threadIdx.x) >= n) return;
  __syncthreads();
  out[threadIdx.x] = 1.0f;
}
__global__ void two_barriers(float* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = 1.0f;
}
__global__ void half_warp(float* out) {
  float v = float(threadIdx.x);
  if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffffffu, v, 1);
  out[threadIdx.x] = v;
  __syncwarp();
}
__global__ void absent_lane(float* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 16);
}
__global__ void shared_stray(float* out, int by) {
  __shared__ float tile[4][8];
  tile[threadIdx.x / 8 + by][threadIdx.x % 8] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];
}
__global__ void stale_shared(float* out) {
  __shared__ float kept[32];
  if (blockIdx.x == 0) kept[threadIdx.x] = 1.0f;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = kept[threadIdx.x];
}
__global__ void for_ever(volatile float* out) {
  while (out[0] == 0.0f) {
  }
}
__global__ void divide(int* out, int by) { out[0] = 7 / by; }

extern "C" int k_neighbours(const void* x, void* out, bool wait, void* stream) {
  neighbours<<<1, 64>>>((const float*)x, (float*)out, wait);
  return cudaGetLastError();
}
extern "C" int k_shift(const void* x, void* out, int n, int by, void* stream) {
  shift<<<(n + 63) / 64, 64>>>((const float*)x, (float*)out, n, by);
  return cudaGetLastError();
}
extern "C" int k_stray_write(const void* x, void* out, int n, int by, void* stream) {
  stray_write<<<(n + 63) / 64, 64>>>((const float*)x, (float*)out, n, by);
  return cudaGetLastError();
}
extern "C" int k_copy4(const void* x, void* out, int packets, void* stream) {
  copy4<<<1, packets>>>((const float*)x, (float*)out);
  return cudaGetLastError();
}
extern "C" int k_last_writer(void* out, void* stream) {
  last_writer<<<1, 64>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_last_block(void* out, void* stream) {
  last_block<<<8, 1>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_leaves_early(void* out, int n, void* stream) {
  leaves_early<<<1, 64>>>((float*)out, n);
  return cudaGetLastError();
}
extern "C" int k_two_barriers(void* out, void* stream) {
  two_barriers<<<1, 64>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_half_warp(void* out, void* stream) {
  half_warp<<<1, 32>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_absent_lane(void* out, void* stream) {
  absent_lane<<<1, 32>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_shared_stray(void* out, int by, void* stream) {
  shared_stray<<<1, 32>>>((float*)out, by);
  return cudaGetLastError();
}
extern "C" int k_stale_shared(void* out, void* stream) {
  stale_shared<<<2, 32>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_for_ever(void* out, void* stream) {
  for_ever<<<1, 1>>>((float*)out);
  return cudaGetLastError();
}
extern "C" int k_divide(void* out, int by, void* stream) {
  divide<<<1, 1>>>((int*)out, by);
  return cudaGetLastError();
}
extern "C" int k_writes_input(const void* x, void* stream) {
  last_writer<<<1, 1>>>((float*)x);
  return cudaGetLastError();
}
"""


def _floats(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


def test_missing_barrier_is_an_order_dependence():
    x, out = _floats(64), np.zeros(64, np.float32)
    emulate_orders(PLANTED, "k_neighbours", [x, out, True])
    np.testing.assert_array_equal(out, np.roll(x, 1))
    with pytest.raises(OrderDependence, match=r"k_neighbours: argument 1, element \d+"):
        emulate_orders(PLANTED, "k_neighbours", [x, out, False])


@pytest.mark.parametrize("launcher", ["k_last_writer", "k_last_block"])
def test_race_between_writers_is_an_order_dependence(launcher: str):
    with pytest.raises(OrderDependence, match=launcher):
        emulate_orders(PLANTED, launcher, [np.zeros(1, np.float32)])


def test_read_past_the_end():
    x, out = _floats(100), np.zeros(100, np.float32)
    emulate(PLANTED, "k_shift", [x, out, 100, 0])
    np.testing.assert_array_equal(out, x)
    message = r"kernel shift, block \(1, 0, 0\), thread \(35, 0, 0\): out-of-bounds read of `x`"
    with pytest.raises(EmulationFault, match=message):
        emulate(PLANTED, "k_shift", [x, out, 100, 1])


def test_read_before_the_front():
    x, out = _floats(100), np.zeros(100, np.float32)
    with pytest.raises(EmulationFault, match="out-of-bounds read of `x` at byte -4 of 400"):
        emulate(PLANTED, "k_shift", [x, out, 100, -1], guard="front")


def test_read_far_away():
    x, out = _floats(100), np.zeros(100, np.float32)
    with pytest.raises(EmulationFault, match="out-of-bounds read of `x` at byte 400000000 of 400"):
        emulate(PLANTED, "k_shift", [x, out, 100, 100_000_000])


@pytest.mark.parametrize(("by", "guard"), [(1, "end"), (1, "front"), (-1, "front"), (-1, "end")])
@pytest.mark.parametrize("n", [100, 103])
def test_write_outside(n: int, by: int, guard: str):
    x, out = _floats(n), np.zeros(n, np.float32)
    emulate(PLANTED, "k_stray_write", [x, out, n, 0], guard=guard)
    np.testing.assert_array_equal(out, x)
    with pytest.raises(EmulationFault, match="out-of-bounds write"):
        emulate(PLANTED, "k_stray_write", [x, out, n, by], guard=guard)


def test_misaligned_vector_access():
    x, out = _floats(16), np.zeros(16, np.float32)
    emulate(PLANTED, "k_copy4", [x, out, 4])
    np.testing.assert_array_equal(out, x)
    for args in ([Shifted(x, 4), out, 4], [x, Shifted(out, 8), 4]):
        with pytest.raises(EmulationFault, match=r"kernel copy4.*misaligned access"):
            emulate(PLANTED, "k_copy4", args)


def test_write_to_a_const_array():
    with pytest.raises(EmulationFault, match="write of read-only `x` at byte 0"):
        emulate(PLANTED, "k_writes_input", [_floats(4)])


def test_thread_that_ends_before_the_barrier():
    out = np.zeros(64, np.float32)
    emulate(PLANTED, "k_leaves_early", [out, 64])
    with pytest.raises(EmulationFault, match="leaves_early.*barrier divergence.*has ended"):
        emulate(PLANTED, "k_leaves_early", [out, 40])


def test_threads_at_different_barriers():
    with pytest.raises(EmulationFault, match="two_barriers.*barrier divergence"):
        emulate(PLANTED, "k_two_barriers", [np.zeros(64, np.float32)])


def test_shuffle_that_half_of_the_warp_misses():
    with pytest.raises(EmulationFault, match="half_warp.*barrier divergence.*warp function"):
        emulate(PLANTED, "k_half_warp", [np.zeros(32, np.float32)])


def test_shuffle_from_a_lane_that_does_not_take_part():
    with pytest.raises(EmulationFault, match="absent_lane.*reads lane 16"):
        emulate(PLANTED, "k_absent_lane", [np.zeros(32, np.float32)])


def test_index_outside_a_shared_array():
    out = np.zeros(32, np.float32)
    emulate(PLANTED, "k_shared_stray", [out, 0])
    with pytest.raises(EmulationFault, match="shared_stray.*index 4 is outside the array"):
        emulate(PLANTED, "k_shared_stray", [out, 1])


def test_shared_memory_does_not_outlive_its_block():
    out = np.zeros(64, np.float32)
    emulate(PLANTED, "k_stale_shared", [out])
    np.testing.assert_array_equal(np.isnan(out), np.arange(64) >= 32)


def test_kernel_that_does_not_end():
    with pytest.raises(EmulationFault, match="k_for_ever did not end within 0.5 s"):
        emulate(PLANTED, "k_for_ever", [np.zeros(1, np.float32)], timeout_s=0.5)


def test_integer_division_by_zero():
    with pytest.raises(EmulationFault, match="kernel divide.*integer division by zero"):
        emulate(PLANTED, "k_divide", [np.zeros(1, np.int32), 0])


def test_wrong_arguments():
    x = _floats(4)
    with pytest.raises(EmulationFault, match="k_copy4 takes 4 arguments, 3 were given"):
        emulate(PLANTED, "k_copy4", [x, x.copy()])
    with pytest.raises(EmulationFault, match="argument 2 must be a number, an array"):
        emulate(PLANTED, "k_copy4", [x, x.copy(), x])
    with pytest.raises(EmulationFault, match="argument 0 must be an array, a number"):
        emulate(PLANTED, "k_copy4", [1, x.copy(), 1])
    with pytest.raises(EmulationFault, match="there is no launcher k_none"):
        emulate(PLANTED, "k_none", [])


def test_text_that_does_not_compile():
    with pytest.raises(RuntimeError, match=r"kernel.cu:1.*\n?.*unknown"):
        emulate("unknown x;", "k", [])
