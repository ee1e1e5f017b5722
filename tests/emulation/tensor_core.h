// The instructions of mma.cuh: what a warp does together goes through a table that each lane fills.
// Rounding is the tensor core's of sm_90: products are exact; they and the sum so far are cut off,
// towards zero, 25 bits below the largest exponent among them, and so is the new sum at 24 bits
// (Fasi and others 2021, "Numerical behavior of NVIDIA tensor cores", and later studies of sm_90).
#pragma once

namespace emulation {

unsigned shared_offset(const void* p);
char* shared_pointer(unsigned offset, int bytes);
void start_copy(char* to, const void* from, int bytes, int line);
void commit_copies();
void await_copies(int open);

inline int thread_number() {
    return int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

// What every lane of the warp gave; to be used before the next `parted`.
template <typename T>
const T* gathered(const T& own) {
    static T table[32][32];
    int thread = thread_number();
    table[thread / 32][thread % 32] = own;
    warp_exchange(Exchange::kNone, 0xffffffffu, 0, 0, 32, 1);
    return table[thread / 32];
}
inline void parted() { warp_exchange(Exchange::kNone, 0xffffffffu, 0, 0, 32, 2); }

inline int exponent(float x) {
    int field = int(bits<uint32_t>(x) >> 23 & 255u);
    return field ? field - 127 : -126;
}
inline double cut_off(double x, int exponent_of_unit) {
    return ldexp(trunc(ldexp(x, -exponent_of_unit)), exponent_of_unit);
}
// sum + a[0] * b[0] + ... of 16 products
inline float tensor_core_sum(float sum, const float* a, const float* b) {
    int largest = sum == 0.0f ? -1000 : exponent(sum);
    bool finite = isfinite(sum);
    for (int k = 0; k < 16; ++k) {
        finite = finite && isfinite(a[k]) && isfinite(b[k]);
        if (a[k] == 0.0f || b[k] == 0.0f) continue;
        int own = exponent(a[k]) + exponent(b[k]);
        largest = largest < own ? own : largest;
    }
    if (!finite) {
        for (int k = 0; k < 16; ++k) sum += a[k] * b[k];
        return sum;
    }
    if (largest == -1000) return sum;
    double exact = cut_off(sum, largest - 25);
    for (int k = 0; k < 16; ++k) exact += cut_off(double(a[k]) * b[k], largest - 25);
    if (exact == 0.0) return 0.0f;
    int unit = ilogb(exact) - 23;
    return float(cut_off(exact, unit < -149 ? -149 : unit));
}

struct Fragments {
    uint32_t a[4], b[2];
};
template <typename Widen>
void mma(float& d0, float& d1, float& d2, float& d3, const Fragments& own, Widen widen) {
    const Fragments* lanes = gathered(own);
    int lane = thread_number() % 32;
    float* d[4] = {&d0, &d1, &d2, &d3};
    for (int i = 0; i < 4; ++i) {
        int row = lane / 4, column = lane % 4 * 2 + i % 2;
        float a[16], b[16];
        for (int k = 0; k < 16; ++k) {
            int from = k % 8 / 2, shift = k % 2 * 16;
            a[k] = widen(uint16_t(lanes[row * 4 + from].a[k / 8 * 2 + i / 2] >> shift));
            b[k] = widen(uint16_t(lanes[column * 4 + from].b[k / 8] >> shift));
        }
        *d[i] = tensor_core_sum(*d[i], a, b);
    }
    parted();
}

}  // namespace emulation

inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(
    float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1) {
    emulation::mma(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}},
                   [](uint16_t h) { return float(emulation::bits<_Float16>(h)); });
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(
    float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1) {
    emulation::mma(d0, d1, d2, d3, {{a0, a1, a2, a3}, {b0, b1}},
                   [](uint16_t h) { return emulation::bits<float>(uint32_t(h) << 16); });
}
inline unsigned __cvta_generic_to_shared(const void* p) { return emulation::shared_offset(p); }
inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t& w0, uint32_t& w1, uint32_t& w2,
                                                     uint32_t& w3, unsigned address) {
    const char* const* rows =
        emulation::gathered<const char*>(emulation::shared_pointer(address, 16));
    int lane = emulation::thread_number() % 32;
    uint32_t* words[4] = {&w0, &w1, &w2, &w3};
    for (int i = 0; i < 4; ++i) memcpy(words[i], rows[8 * i + lane / 4] + lane % 4 * 4, 4);
    emulation::parted();
}
inline void cp_async_cg_shared_global(unsigned address, const void* from, int bytes,
                                      int line = __builtin_LINE()) {
    emulation::start_copy(emulation::shared_pointer(address, 16), from, bytes, line);
}
inline void cp_async_commit_group() { emulation::commit_copies(); }
inline void cp_async_wait_group(int open) { emulation::await_copies(open); }
