// Operands of 16 bits on the tensor cores: read where they lie, or packed first.

namespace op {

// @is_readable deps: Operand
// Whether rows of 16-bit values may be read where they lie, 16 bytes at a time.
[[maybe_unused]] static bool is_readable(const Operand& from) {
    return from.inner == 1 && from.row % 8 == 0 && from.batch % 8 == 0 && from.row > 0 &&
           reinterpret_cast<uintptr_t>(from.data) % 16 == 0;
}

// @pack_kernel deps: Operand, half, bfloat16
// Rows of 16-bit values as the copy engine wants them: neighbours along k, padded to chunks of 64.
template <typename T>
static __global__ void __launch_bounds__(256)
    pack_kernel(const Operand from, const int64_t rows, const int64_t k, const int64_t pitch,
                T* __restrict__ packed) {
    // A block takes 32 by 32 and turns it where k is not the inner axis.
    __shared__ T tile[32][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const int64_t row = blockIdx.y * 32ll, at = blockIdx.x * 32ll, batch = blockIdx.z;
    const T* source = static_cast<const T*>(from.data) + batch * from.batch;
    const bool along = from.inner <= from.row;
    for (int i = y; i < 32; i += 8) {
        const int r = along ? i : x, c = along ? x : i;
        const bool inside = row + r < rows && at + c < k;
        tile[r][c] = inside ? source[(row + r) * from.row + (at + c) * from.inner] : T{};
    }
    __syncthreads();
    for (int i = y; i < 32; i += 8) {
        if (row + i < rows) packed[(batch * rows + row + i) * pitch + at + x] = tile[i][x];
    }
}

// @pack_rows deps: pack_kernel
// Of `batches` operands, one where they share it.
template <typename T>
static void pack_rows(const Operand& from, int64_t batches, int64_t rows, int64_t k, int64_t pitch,
                      T* packed, cudaStream_t stream) {
    const dim3 blocks((unsigned int)(pitch / 32), (unsigned int)((rows + 31) / 32),
                      (unsigned int)batches);
    pack_kernel<T><<<blocks, 256, 0, stream>>>(from, rows, k, pitch, packed);
}

}  // namespace op
