// PTX instructions that device code calls by `asm`, as functions of the same name with `_` for `.`.
// An approximate one errs by as much as the PTX ISA (9.0) allows for half of its operands, by less
// for the others, up or down at random.
#pragma once

namespace emulation {

// The share of the error allowed, in [-1, 1].
inline double share(float operand) {
    double anywhere = int32_t(bits<uint32_t>(operand) * 2654435761u) * 0x1p-30;
    return anywhere > 1.0 ? 1.0 : (anywhere < -1.0 ? -1.0 : anywhere);
}
// The exact result with a relative error of up to `bound`; zeros, infinities and NaN stay.
inline float erring(double exact, double bound, float operand) {
    return float(exact * (1.0 + share(operand) * bound));
}
inline float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }

}  // namespace emulation

inline void barrier_cluster_arrive_release_aligned(int line = __builtin_LINE()) {
    emulation::cluster_barrier(line);
}
inline void mapa_u64(uint64_t& address, const void* mine, int rank) {
    address = uint64_t(emulation::peer_place(mine, unsigned(rank)));
}
inline void ld_relaxed_gpu_global_b128(uint64_t& low, uint64_t& high, const void* from,
                                       int line = __builtin_LINE()) {
    emulation::let_others_run(line);  // a loop may wait for what they write
    const auto* words = static_cast<const uint64_t*>(from);
    low = words[0], high = words[1];
}
// What a store of 128 bits begins with.
inline void mov_b128(void* to, uint64_t low, uint64_t high, int line = __builtin_LINE()) {
    for (size_t turns = emulation::pick(8); turns > 0; --turns) emulation::let_others_run(line);
    auto* words = static_cast<uint64_t*>(to);
    words[0] = low, words[1] = high;
}
// It changes nothing, and must be of what is there.
inline void prefetch_global_L2(const void* at) { (void)*static_cast<const volatile char*>(at); }
inline void sub_u32(uint32_t& rest, uint32_t above, uint32_t below) { rest = above - below; }
// Of zeros +0 is the larger one.
inline float max_NaN_f32(float a, float b) {
    if (a != a || b != b) return NAN;
    return a < b || (a == b && signbit(a)) ? b : a;
}
inline float min_NaN_f32(float a, float b) { return -max_NaN_f32(-a, -b); }
inline float ex2_approx_f32(float x) { return emulation::erring(exp2(double(x)), 0x1p-22, x); }
inline float ex2_approx_ftz_f32(float x) {
    return emulation::flushed(ex2_approx_f32(emulation::flushed(x)));
}
inline float rcp_approx_f32(float x) {
    return emulation::erring(1.0 / double(x), 0x1p-23, x);
}
inline float rcp_approx_ftz_f32(float x) {
    float operand = emulation::flushed(x);
    return emulation::flushed(emulation::erring(1.0 / double(operand), 0x1p-23, x));
}
inline float lg2_approx_f32(float x) {
    double exact = log2(double(x));
    bool absolute = x > 0.5f && x < 2.0f;
    if (!absolute) return emulation::erring(exact, 0x1p-22, x);
    return float(exact + emulation::share(x) * 0x1p-22);
}
inline float lg2_approx_ftz_f32(float x) {
    return emulation::flushed(lg2_approx_f32(emulation::flushed(x)));
}
inline float sqrt_approx_f32(float x) { return emulation::erring(sqrt(double(x)), 0x1p-23, x); }
inline float div_full_f32(float a, float b) {
    return emulation::erring(double(a) / double(b), 0x1p-22, a);
}
inline float tanh_approx_f32(float x) { return emulation::erring(tanh(double(x)), 0x1p-11, x); }
