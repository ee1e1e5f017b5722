// C++ texts of functions whose plain form in math.h would be slow or less exact there. In float the
// vector functions of glibc are good to 1 or 2 units in the last place; these come close to correct
// rounding, as eager PyTorch does: either by a polynomial of their own, without branches, or by way
// of double. Coefficients are minimax fits in float32 (least squares, reweighted to an even error);
// the comment gives the fitted interval and the largest error of the fit.

namespace op {

// @kIntegerShift deps:
// Adding it to |x| < 2^22 rounds x to an integer, which the sum's low bits then hold.
constexpr float kIntegerShift = 12582912.0f;  // 1.5 * 2^23

// @kExponentShift deps:
// Adding it to |x| < 2^22 rounds x to an integer k, and the sum's bits, moved up by 23, are those
// of 2^k for k in [-126, 128].
constexpr float kExponentShift = 12583039.0f;  // 1.5 * 2^23 + 127

// @rounded_product deps:
// a * b, to which nothing is added before it is rounded: a sum of its own is not contracted again
template <typename T>
OPWELD_FN T rounded_product(T a, T b) {
#ifdef __FP_FAST_FMAF
    return ::fma(a, b, T(-0.0));
#else
    return a * b;
#endif
}

// @to_integer deps:
// x towards 0, and of NaN what x86 gives. g++ takes the way to an integer and back for nothing
// where x is rounded already, which NaN and -0.0 would pass: the sum has no -0.0.
template <typename T, typename F>
OPWELD_FN T to_integer(F x) {
    const F sum = x + F(0);
    constexpr T of_nan = sizeof(T) < 4 ? T(0) : T(uint64_t(1) << (8 * sizeof(T) - 1));
    return sum == sum ? static_cast<T>(sum) : of_nan;
}

// @times_power_of_two deps: kIntegerShift, bits_from_float, float_from_bits
// x * 2^k for k in [-150, 128] and k + kIntegerShift given; two factors, as 2^k may not be a normal
// number by itself
OPWELD_FN float times_power_of_two(float x, float shifted) {
    bool tiny = shifted < kIntegerShift - 115.0f;
    uint32_t bias = tiny ? (126u + 64u) << 23 : 126u << 23;
    float rest = tiny ? 1.0842021724855044e-19f : 2.0f;  // 2^-63
    return x * float_from_bits((bits_from_float(shifted) << 23) + bias) * rest;
}

// @rsqrt deps:
// 1 / sqrt(x)
template <typename T>
OPWELD_FN T rsqrt(T x) {
    return T(1) / ::sqrt(x);
}

// @exp deps: kIntegerShift, times_power_of_two, kInfinity
// e^x = 2^k * e^r, r in [-ln(2) / 2, ln(2) / 2]; (e^r - 1 - r) / r^2 is fitted to 3.3e-9 of e^r.
// What 1 + high loses is added to the small terms.
template <typename T>
OPWELD_FN T exp(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::exp(x);
    } else {
        float shifted = x * 1.44269504f + kIntegerShift;
        float k = shifted - kIntegerShift;
        float high = x - k * 0.693359375f;  // exact: the constant has 9 bits
        float low = k * -2.12194440e-4f;
        float r = high - low;
        float q = 0.00139415357f;
        q = q * r + 0.00836883206f;
        q = q * r + 0.0416663922f;
        q = q * r + 0.166665196f;
        q = q * r + 0.5f;
        float sum = 1.0f + high;
        float lost = high - (sum - 1.0f);
        float value = times_power_of_two(sum + (lost + (r * r * q - low)), shifted);
        value = x > 89.0f ? kInfinity<T> : value;
        return x < -104.0f ? 0.0f : value;
    }
}

// @exp_approx deps: kIntegerShift, times_power_of_two, kInfinity
// e^x of operands stored in 16 bits, error 2^-17: as exp, but e^r is fitted to 2.6e-6 and what the
// steps lose is lost
OPWELD_FN float exp_approx(float x) {
    float shifted = x * 1.44269504f + kIntegerShift;
    float r = x - (shifted - kIntegerShift) * 0.693147181f;
    float p = 0.0414586253f;
    p = p * r + 0.167909101f;
    p = p * r + 0.500043571f;
    p = p * r + 0.999963403f;
    p = p * r + 0.999999285f;
    float value = times_power_of_two(p, shifted);
    value = x > 89.0f ? kInfinity<float> : value;
    return x < -104.0f ? 0.0f : value;
}

// @exp2 deps: kIntegerShift, times_power_of_two, kInfinity
// 2^x = 2^k * 2^r, r in [-1/2, 1/2]; (2^r - 1) / r is fitted to 1.7e-10 of 2^r
template <typename T>
OPWELD_FN T exp2(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::exp2(x);
    } else {
        float shifted = x + kIntegerShift;
        float r = x - (shifted - kIntegerShift);
        float q = 1.46742577e-05f;
        q = q * r + 0.000154518493f;
        q = q * r + 0.00133366592f;
        q = q * r + 0.00961808767f;
        q = q * r + 0.0555040613f;
        q = q * r + 0.240226507f;
        q = q * r + 0.693147182f;
        float value = times_power_of_two(q * r + 1.0f, shifted);
        value = x > 128.5f ? kInfinity<T> : value;
        return x < -150.5f ? 0.0f : value;
    }
}

// @log_of_parts deps:
// k ln(2) + ln(1 + f) for an integer k and |f| <= 1/3; (ln(1 + f) - f + f^2 / 2) / f^3 is fitted to
// 9e-10 of the logarithm. What the sum of the leading terms loses is added to the small ones.
OPWELD_FN float log_of_parts(float k, float f) {
    float q = 0.119717665f;
    q = q * f - 0.128434598f;
    q = q * f + 0.107666127f;
    q = q * f - 0.121967278f;
    q = q * f + 0.143029228f;
    q = q * f - 0.166794613f;
    q = q * f + 0.199996769f;
    q = q * f - 0.249998242f;
    q = q * f + 0.333333343f;
    float whole = k * 0.693359375f;  // exact: the constant has 9 bits
    float sum = whole + f;
    float lost = f - (sum - whole);
    float small = f * f * (f * q - 0.5f) - k * 2.12194440e-4f;
    return sum + (lost + small);
}

// @exponent_of deps: bits_from_float
// k with x / 2^k in [2/3, 4/3), for normal x > 0
OPWELD_FN int32_t exponent_of(float x) { return (int32_t(bits_from_float(x)) - 0x3f2aaaab) >> 23; }

// @log deps: log_of_parts, exponent_of, float_from_bits, kInfinity
// ln(x)
template <typename T>
OPWELD_FN T log(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::log(x);
    } else {
        bool subnormal = x < 1.17549435e-38f;
        float normal = subnormal ? x * 8388608.0f : x;
        int32_t k = exponent_of(normal);
        float f = float_from_bits(bits_from_float(normal) - (uint32_t(k) << 23)) - 1.0f;
        float curve = log_of_parts(float(subnormal ? k - 23 : k), f);
        float positive = x == kInfinity<T> ? x : curve;
        return x > 0.0f ? positive : (x == 0.0f ? -kInfinity<T> : T(NAN));
    }
}

// @log1p deps: log_of_parts, exponent_of, float_from_bits, kInfinity
// ln(1 + x)
template <typename T>
OPWELD_FN T log1p(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::log1p(x);
    } else {
        int32_t k = exponent_of(1.0f + x);
        float scale = 0.25f * float_from_bits(uint32_t(129 - k) << 23);  // 2^-k, k up to 128
        float curve = log_of_parts(float(k), x * scale + (scale - 1.0f));
        float inside = (x == 0.0f) | (x == kInfinity<T>) ? x : curve;
        return x > -1.0f ? inside : (x == -1.0f ? -kInfinity<T> : T(NAN));
    }
}

// @exp_less_one_poly deps:
// e^r - 1 for |r| <= ln(2) / 2; (e^r - 1 - r) / r^2 is fitted to 3.3e-9 of e^r
OPWELD_FN float exp_less_one_poly(float r) {
    float q = 0.00139415357f;
    q = q * r + 0.00836883206f;
    q = q * r + 0.0416663922f;
    q = q * r + 0.166665196f;
    q = q * r + 0.5f;
    return r * r * q + r;
}

// @expm1 deps: kExponentShift, exp_less_one_poly, bits_from_float, float_from_bits, kInfinity
// e^x - 1 = 2 (2^(k-1) (e^r - 1) + 2^(k-1) - 1/2), with k and r as in exp; below -20 it is -1
template <typename T>
OPWELD_FN T expm1(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::expm1(x);
    } else {
        float bounded = x < -20.0f ? -20.0f : x;
        float shifted = bounded * 1.44269504f + (kExponentShift - 1.0f);
        float k = shifted - (kExponentShift - 1.0f);
        float r = bounded - k * 0.693359375f - k * -2.12194440e-4f;
        float power = float_from_bits(bits_from_float(shifted) << 23);
        float value = 2.0f * (exp_less_one_poly(r) * power + (power - 0.5f));
        value = x > 89.0f ? kInfinity<T> : value;
        return x == 0.0f ? x : value;
    }
}

// @tanh deps: kExponentShift, bits_from_float, float_from_bits
// x + x^3 q(x^2) for |x| < 0.6, fitted to 2.8e-9, else 1 - 2 / (e^(2 |x|) + 1) with the sign of x.
// There e^(2 r) = p(r) as in exp, with r in [-ln(2) / 4, ln(2) / 4].
template <typename T>
OPWELD_FN T tanh(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::tanh(x);
    } else {
        float y = x * x;
        float q = -0.00589513639f;
        q = q * y + 0.0207959544f;
        q = q * y - 0.0537838265f;
        q = q * y + 0.133319244f;
        q = q * y - 0.333332986f;
        float near_zero = q * y * x + x;

        // Compared as integers, which takes one instruction; NaN leaves through near_zero.
        int32_t ten = 0x41200000, magnitude = int32_t(bits_from_float(x) & 0x7fffffffu);
        float bounded = float_from_bits(uint32_t(magnitude < ten ? magnitude : ten));
        float shifted = bounded * 2.88539008f + kExponentShift;
        float r = bounded - (shifted - kExponentShift) * 0.346573591f;
        float p = 64.0f * 0.00139415357f;
        p = p * r + 32.0f * 0.00836883206f;
        p = p * r + 16.0f * 0.0416663922f;
        p = p * r + 8.0f * 0.166665196f;
        p = p * r + 2.0f;
        p = p * r + 2.0f;
        p = p * r + 1.0f;
        float power = float_from_bits(bits_from_float(shifted) << 23);
        float far = 1.0f - 2.0f / (p * power + 1.0f);
        return ::copysign(y >= 0.36f ? far : near_zero, x);
    }
}

// @kSigmoidScale deps:
constexpr float kSigmoidScale = 16777216.0f;  // 2^24: e^-104 times it is a normal number

// @sigmoid deps: kExponentShift, kSigmoidScale, exp_less_one_poly, bits_from_float, float_from_bits
// 1 / (1 + e) for x > 0, else e / (1 + e), with e = e^-|x|
template <typename T>
OPWELD_FN T sigmoid(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return T(1) / (T(1) + ::exp(-x));
    } else {
        float bounded = ::fabs(x) > 104.0f ? 104.0f : ::fabs(x);
        float shift = kExponentShift + 24.0f;  // for kSigmoidScale * 2^k
        float shifted = bounded * -1.44269504f + shift;
        float k = shifted - shift;
        float r = -bounded - k * 0.693145752f - k * 1.42860677e-6f;
        float power = float_from_bits(bits_from_float(shifted) << 23);
        float e = exp_less_one_poly(r) * power + power;
        return (x > 0.0f ? kSigmoidScale : e) / (kSigmoidScale + e);
    }
}

// @erf deps: exp
// x + x p(x^2) for |x| < 1, fitted to 1.3e-9, else 1 - e^-q(|x|) with the sign of x, fitted to
// 6e-11
template <typename T>
OPWELD_FN T erf(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::erf(x);
    } else {
        float y = x * x;
        float p = 7.92036808e-05f;
        p = p * y - 0.000803076138f;
        p = p * y + 0.00519073382f;
        p = p * y - 0.026855126f;
        p = p * y + 0.112836182f;
        p = p * y - 0.376126289f;
        p = p * y + 0.128379166f;
        float z = ::fabs(x) > 4.0f ? 4.0f : ::fabs(x);
        float q = 2.09062164e-05f;
        q = q * z - 0.000432273286f;
        q = q * z + 0.00416042143f;
        q = q * z - 0.0250913072f;
        q = q * z + 0.10823644f;
        q = q * z + 0.633386731f;
        q = q * z + 1.12949514f;
        q = q * z - 0.000170552026f;
        float far = 1.0f - op::exp(-q);
        return ::fabs(x) < 1.0f ? p * x + x : ::copysign(far, x);
    }
}

// @log10 deps:
// log10(x)
template <typename T>
OPWELD_FN T log10(T x) {
    return T(::log10(double(x)));
}

// @sin deps:
// sin(x)
template <typename T>
OPWELD_FN T sin(T x) {
    return T(::sin(double(x)));
}

// @cos deps:
// cos(x)
template <typename T>
OPWELD_FN T cos(T x) {
    return T(::cos(double(x)));
}

// @tan deps:
// tan(x)
template <typename T>
OPWELD_FN T tan(T x) {
    return T(::tan(double(x)));
}

// @asin deps:
// arcsin(x)
template <typename T>
OPWELD_FN T asin(T x) {
    return T(::asin(double(x)));
}

// @acos deps:
// arccos(x)
template <typename T>
OPWELD_FN T acos(T x) {
    return T(::acos(double(x)));
}

// @atan deps:
// arctan(x)
template <typename T>
OPWELD_FN T atan(T x) {
    return T(::atan(double(x)));
}

// @sinh deps:
// (e^x - e^-x) / 2, x itself where x^3 / 6 is below its last place
template <typename T>
OPWELD_FN T sinh(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::sinh(x);
    } else {
        double e = ::exp(double(x));
        return ::fabs(x) < 1e-4f ? x : float(0.5 * (e - 1.0 / e));
    }
}

// @cosh deps:
// (e^x + e^-x) / 2
template <typename T>
OPWELD_FN T cosh(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::cosh(x);
    } else {
        double e = ::exp(double(x));
        return float(0.5 * (e + 1.0 / e));
    }
}

// @atanh deps:
// ln((1 + x) / (1 - x)) / 2, x itself where x^3 / 3 is below its last place
template <typename T>
OPWELD_FN T atanh(T x) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::atanh(x);
    } else {
        double v = x;
        return ::fabs(x) < 1e-4f ? x : float(0.5 * ::log((1.0 + v) / (1.0 - v)));
    }
}

// @atan2 deps:
// angle of the point (b, a)
template <typename T>
OPWELD_FN T atan2(T a, T b) {
    return T(::atan2(double(a), double(b)));
}

// @hypot deps: kInfinity
// sqrt(a^2 + b^2), Inf if either is infinite
template <typename T>
OPWELD_FN T hypot(T a, T b) {
    if constexpr (sizeof(T) != sizeof(float)) {
        return ::hypot(a, b);
    } else {
        float length = float(::sqrt(double(a) * double(a) + double(b) * double(b)));
        bool infinite = (::fabs(a) == kInfinity<T>) | (::fabs(b) == kInfinity<T>);
        return infinite ? kInfinity<T> : length;
    }
}

}  // namespace op
