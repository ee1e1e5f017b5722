// The instructions of mma.cuh: what a warp does together goes through a table that each lane fills.
// Rounding is the tensor core's of sm_90: products are exact; they and the sum so far are cut off,
// towards zero, 25 bits below the largest exponent among them, and so is the new sum at 24 bits
// (Fasi and others 2021, "Numerical behavior of NVIDIA tensor cores", and later studies of sm_90).
#pragma once

namespace emulation {

unsigned shared_offset(const void* p);
char* shared_pointer(unsigned offset, int bytes);
void start_copy(char* to, const void* from, int size, int bytes, int line);
void commit_copies();
void await_copies(int open);

inline int thread_number() {
    return int(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}

// What every lane of the warp gave. There are two tables in turn: a lane that is ahead fills the
// other one, and waits there until no lane reads this one any more.
template <typename T>
const T* gathered(const T& own) {
    static T tables[2][32][32];
    static bool second[1024];
    int thread = thread_number();
    auto& table = tables[second[thread] ^= true][thread / 32];
    table[thread % 32] = own;
    warp_exchange(Exchange::kNone, 0xffffffffu, 0, 0, 32, 1);
    return table;
}

inline int exponent(float x) {
    int field = int(bits<uint32_t>(x) >> 23 & 255u);
    return field ? field - 127 : -126;
}
inline double power_of_two(int e) { return bits<double>(uint64_t(e + 1023) << 52); }
inline double cut_off(double x, int exponent_of_unit) {
    return trunc(x * power_of_two(-exponent_of_unit)) * power_of_two(exponent_of_unit);
}
// sum + a[0] * b[0] + ... of 16 products
inline float tensor_core_sum(float sum, const float* a, const float* b) {
    constexpr int kNone = -1000;
    int largest = sum == 0.0f ? kNone : exponent(sum);
    bool finite = isfinite(sum);
    double products[16];
    for (int k = 0; k < 16; ++k) {
        products[k] = double(a[k]) * b[k];
        finite = finite && isfinite(products[k]);
        if (products[k] == 0.0) continue;
        int own = exponent(a[k]) + exponent(b[k]);
        largest = largest < own ? own : largest;
    }
    if (!finite) {
        for (int k = 0; k < 16; ++k) sum += a[k] * b[k];
        return sum;
    }
    if (largest == kNone) return sum;
    double exact = cut_off(sum, largest - 25);
    for (int k = 0; k < 16; ++k) exact += cut_off(products[k], largest - 25);
    if (exact == 0.0) return 0.0f;
    int unit = int(bits<uint64_t>(exact) >> 52 & 2047u) - 1023 - 23;
    return float(cut_off(exact, unit < -149 ? -149 : unit));
}

// A lane's elements of a, two of each word, and of b.
struct Fragments {
    float a[8], b[4];
};
template <typename Widen>
void mma(float& d0, float& d1, float& d2, float& d3, const uint32_t (&a)[4],
         const uint32_t (&b)[2], Widen widen) {
    Fragments own;
    for (int i = 0; i < 8; ++i) own.a[i] = widen(uint16_t(a[i / 2] >> i % 2 * 16));
    for (int i = 0; i < 4; ++i) own.b[i] = widen(uint16_t(b[i / 2] >> i % 2 * 16));
    const Fragments* lanes = gathered(own);
    int lane = thread_number() % 32;
    float* d[4] = {&d0, &d1, &d2, &d3};
    for (int i = 0; i < 4; ++i) {
        const Fragments* row = lanes + lane / 4 * 4;
        const Fragments* column = lanes + (lane % 4 * 2 + i % 2) * 4;
        float left[16], right[16];
        for (int k = 0; k < 16; ++k) {
            left[k] = row[k % 8 / 2].a[k / 8 * 4 + i / 2 * 2 + k % 2];
            right[k] = column[k % 8 / 2].b[k / 8 * 2 + k % 2];
        }
        *d[i] = tensor_core_sum(*d[i], left, right);
    }
}

}  // namespace emulation

inline void mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(
    float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1) {
    emulation::mma(d0, d1, d2, d3, {a0, a1, a2, a3}, {b0, b1},
                   [](uint16_t h) { return float(emulation::bits<_Float16>(h)); });
}
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(
    float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
    uint32_t b0, uint32_t b1) {
    emulation::mma(d0, d1, d2, d3, {a0, a1, a2, a3}, {b0, b1},
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
}
inline void cp_async_cg_shared_global(unsigned address, const void* from, int bytes,
                                      int line = __builtin_LINE()) {
    emulation::start_copy(emulation::shared_pointer(address, 16), from, 16, bytes, line);
}
inline void cp_async_ca_shared_global(unsigned address, const void* from, int bytes,
                                      int line = __builtin_LINE()) {
    emulation::start_copy(emulation::shared_pointer(address, 4), from, 4, bytes, line);
}
inline void cp_async_commit_group() { emulation::commit_copies(); }
inline void cp_async_wait_group(int open) { emulation::await_copies(open); }
inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}
