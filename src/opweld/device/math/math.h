// Pointwise functions with PyTorch's meaning, one text for CUDA (nvcc) and C++ (g++ -fwrapv).
// T is float or double; half and bfloat16 values are computed in float (storage.h). Functions whose
// comment says "any T" take integers as well. NaN, infinities and signed zeros follow eager
// PyTorch.
//
// Each function is a piece that opweld.device.pieces() can copy alone: it begins at its `@` line,
// which names the pieces it calls. No fast intrinsics: results are as exact as eager ones. Both
// sides of a conditional are cheap and safe to evaluate, so that g++ turns loops into vector code.

namespace op {

// @kIsFloating deps:
// True where T holds fractions.
template <typename T>
constexpr bool kIsFloating = T(1.5) != T(1);

// @kIsSigned deps:
template <typename T>
constexpr bool kIsSigned = T(-1) < T(0);

// @is_negative deps: kIsSigned
// x < 0, any T
template <typename T>
OPWELD_FN bool is_negative(T x) {
    if constexpr (kIsSigned<T>) {
        return x < T(0);
    } else {
        return false;
    }
}

// @kInfinity deps:
template <typename T>
constexpr T kInfinity = T(__builtin_huge_val());

// @neg deps:
// -x, any T
template <typename T>
OPWELD_FN T neg(T x) {
    return -x;
}

// @abs deps: kIsFloating, is_negative
// |x|, any T
template <typename T>
OPWELD_FN T abs(T x) {
    if constexpr (kIsFloating<T>) {
        return ::fabs(x);
    } else {
        return op::is_negative(x) ? T(-x) : x;
    }
}

// @sign deps: is_negative
// (x > 0) - (x < 0), so 0 for NaN; any T
template <typename T>
OPWELD_FN T sign(T x) {
    return T((x > T(0) ? 1 : 0) - (op::is_negative(x) ? 1 : 0));
}

// @square deps:
// x * x, any T
template <typename T>
OPWELD_FN T square(T x) {
    return x * x;
}

// @reciprocal deps:
// 1 / x
template <typename T>
OPWELD_FN T reciprocal(T x) {
    return T(1) / x;
}

// @ratio deps:
// a / b, b at least 1
template <typename T>
OPWELD_FN T ratio(T a, T b) {
    return a / b;
}

// @sqrt deps:
// sqrt(x)
template <typename T>
OPWELD_FN T sqrt(T x) {
    return ::sqrt(x);
}

// @rsqrt deps:
// 1 / sqrt(x)
template <typename T>
OPWELD_FN T rsqrt(T x) {
    return ::rsqrt(x);
}

// @exp deps:
// e^x
template <typename T>
OPWELD_FN T exp(T x) {
    return ::exp(x);
}

// @exp2 deps:
// 2^x
template <typename T>
OPWELD_FN T exp2(T x) {
    return ::exp2(x);
}

// @expm1 deps:
// e^x - 1
template <typename T>
OPWELD_FN T expm1(T x) {
    return ::expm1(x);
}

// @log deps:
// ln(x)
template <typename T>
OPWELD_FN T log(T x) {
    return ::log(x);
}

// @log2 deps:
// log2(x)
template <typename T>
OPWELD_FN T log2(T x) {
    return ::log2(x);
}

// @log10 deps:
// log10(x)
template <typename T>
OPWELD_FN T log10(T x) {
    return ::log10(x);
}

// @log1p deps:
// ln(1 + x)
template <typename T>
OPWELD_FN T log1p(T x) {
    return ::log1p(x);
}

// @sin deps:
// sin(x)
template <typename T>
OPWELD_FN T sin(T x) {
    return ::sin(x);
}

// @cos deps:
// cos(x)
template <typename T>
OPWELD_FN T cos(T x) {
    return ::cos(x);
}

// @tan deps:
// tan(x)
template <typename T>
OPWELD_FN T tan(T x) {
    return ::tan(x);
}

// @asin deps:
// arcsin(x)
template <typename T>
OPWELD_FN T asin(T x) {
    return ::asin(x);
}

// @acos deps:
// arccos(x)
template <typename T>
OPWELD_FN T acos(T x) {
    return ::acos(x);
}

// @atan deps:
// arctan(x)
template <typename T>
OPWELD_FN T atan(T x) {
    return ::atan(x);
}

// @sinh deps:
// (e^x - e^-x) / 2
template <typename T>
OPWELD_FN T sinh(T x) {
    return ::sinh(x);
}

// @cosh deps:
// (e^x + e^-x) / 2
template <typename T>
OPWELD_FN T cosh(T x) {
    return ::cosh(x);
}

// @tanh deps:
// sinh(x) / cosh(x)
template <typename T>
OPWELD_FN T tanh(T x) {
    return ::tanh(x);
}

// @asinh deps:
// ln(x + sqrt(x^2 + 1))
template <typename T>
OPWELD_FN T asinh(T x) {
    return ::asinh(x);
}

// @acosh deps:
// ln(x + sqrt(x^2 - 1))
template <typename T>
OPWELD_FN T acosh(T x) {
    return ::acosh(x);
}

// @atanh deps:
// ln((1 + x) / (1 - x)) / 2
template <typename T>
OPWELD_FN T atanh(T x) {
    return ::atanh(x);
}

// @erf deps:
// 2 / sqrt(pi) * integral of e^(-t^2) over [0, x]
template <typename T>
OPWELD_FN T erf(T x) {
    return ::erf(x);
}

// @erfc deps:
// 1 - erf(x)
template <typename T>
OPWELD_FN T erfc(T x) {
    return ::erfc(x);
}

// @sigmoid deps: exp, ratio
// 1 / (1 + e^-x)
template <typename T>
OPWELD_FN T sigmoid(T x) {
    return op::ratio(T(1), T(1) + op::exp(-x));
}

// @relu deps: is_negative
// max(x, 0), NaN stays NaN; any T
template <typename T>
OPWELD_FN T relu(T x) {
    return op::is_negative(x) ? T(0) : x;
}

// @gelu deps: erf, rounded_product
// x / 2 * (1 + erf(x / sqrt(2))), rounded: contracted with what is subtracted from it, its own
// largest or its mean, it would leave its rounding
template <typename T>
OPWELD_FN T gelu(T x) {
    return op::rounded_product(x * T(0.5), T(1) + op::erf(x * T(0.70710678118654752440)));
}

// @gelu_tanh deps: rounded_product, tanh
// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
template <typename T>
OPWELD_FN T gelu_tanh(T x) {
    T inner = T(0.79788456080286535588) * (x + T(0.044715) * (x * x * x));
    return op::rounded_product(T(0.5) * x, T(1) + op::tanh(inner));
}

// @silu deps: exp, ratio
// x / (1 + e^-x)
template <typename T>
OPWELD_FN T silu(T x) {
    return op::ratio(x, T(1) + op::exp(-x));
}

// @mish deps: exp, ratio
// x * tanh(ln(1 + e^x)) = x * n / (n + 2) with n = e^x (e^x + 2); above 20 the factor is 1
template <typename T>
OPWELD_FN T mish(T x) {
    T e = op::exp(x);
    T n = e * (e + T(2));
    T share = op::ratio(T(1), n + T(2));
    T above = x > T(20) ? x : x - T(2) * x * share;
    return x > T(0) ? above : x * (n * share);
}

// @softsign deps: ratio
// x / (1 + |x|)
template <typename T>
OPWELD_FN T softsign(T x) {
    return op::ratio(x, T(1) + ::fabs(x));
}

// @relu6 deps: is_negative
// min(max(x, 0), 6), NaN stays NaN; any T
template <typename T>
OPWELD_FN T relu6(T x) {
    return op::is_negative(x) ? T(0) : (x > T(6) ? T(6) : x);
}

// @hardsigmoid deps: ratio, relu6
// relu6(x + 3) / 6
template <typename T>
OPWELD_FN T hardsigmoid(T x) {
    return op::ratio(op::relu6(x + T(3)), T(6));
}

// @hardswish deps: ratio, relu6
// x * relu6(x + 3) / 6
template <typename T>
OPWELD_FN T hardswish(T x) {
    return op::ratio(x * op::relu6(x + T(3)), T(6));
}

// @logsigmoid deps: exp, log1p
// -ln(1 + e^-x) = min(x, 0) - ln(1 + e^-|x|)
template <typename T>
OPWELD_FN T logsigmoid(T x) {
    return (x > T(0) ? T(0) : x) - op::log1p(op::exp(-::fabs(x)));
}

// @tanhshrink deps: tanh
// x - tanh(x)
template <typename T>
OPWELD_FN T tanhshrink(T x) {
    return x - op::tanh(x);
}

// @floor deps: kIsFloating
// largest integer <= x; any T
template <typename T>
OPWELD_FN T floor(T x) {
    if constexpr (kIsFloating<T>) {
        return ::floor(x);
    } else {
        return x;
    }
}

// @ceil deps: kIsFloating
// smallest integer >= x; any T
template <typename T>
OPWELD_FN T ceil(T x) {
    if constexpr (kIsFloating<T>) {
        return ::ceil(x);
    } else {
        return x;
    }
}

// @round deps: kIsFloating
// nearest integer, ties to even; any T
template <typename T>
OPWELD_FN T round(T x) {
    if constexpr (kIsFloating<T>) {
        return ::rint(x);
    } else {
        return x;
    }
}

// @trunc deps: kIsFloating
// x rounded towards zero; any T
template <typename T>
OPWELD_FN T trunc(T x) {
    if constexpr (kIsFloating<T>) {
        return ::trunc(x);
    } else {
        return x;
    }
}

// @frac deps:
// x - trunc(x)
template <typename T>
OPWELD_FN T frac(T x) {
    return x - ::trunc(x);
}

// @isnan deps:
// x is NaN; any T
template <typename T>
OPWELD_FN bool isnan(T x) {
    return x != x;
}

// @isinf deps: kIsFloating, kInfinity
// x is +Inf or -Inf; any T
template <typename T>
OPWELD_FN bool isinf(T x) {
    if constexpr (kIsFloating<T>) {
        return ::fabs(x) == kInfinity<T>;
    } else {
        return false;
    }
}

// @isfinite deps: kIsFloating, kInfinity
// x is neither NaN nor infinite; any T
template <typename T>
OPWELD_FN bool isfinite(T x) {
    if constexpr (kIsFloating<T>) {
        return ::fabs(x) < kInfinity<T>;
    } else {
        return true;
    }
}

// @signbit deps: kIsFloating, is_negative
// x < 0, or x is -0.0 or a NaN with its sign set; any T
template <typename T>
OPWELD_FN bool signbit(T x) {
    if constexpr (kIsFloating<T>) {
        return ::copysign(T(1), x) < T(0);
    } else {
        return op::is_negative(x);
    }
}

// @nan_to_num deps: kInfinity
// nan where x is NaN, posinf where +Inf, neginf where -Inf, else x
template <typename T>
OPWELD_FN T nan_to_num(T x, T nan, T posinf, T neginf) {
    T finite = x == kInfinity<T> ? posinf : (x == -kInfinity<T> ? neginf : x);
    return x != x ? nan : finite;
}

// @leaky_relu deps:
// x if x > 0 else x * slope
template <typename T>
OPWELD_FN T leaky_relu(T x, T slope) {
    return x > T(0) ? x : x * slope;
}

// @prelu deps:
// x if x > 0 else w * x
template <typename T>
OPWELD_FN T prelu(T x, T w) {
    return x > T(0) ? x : w * x;
}

// @elu deps: expm1
// scale * x if x > 0 else scale * alpha * (e^(x * input_scale) - 1)
template <typename T>
OPWELD_FN T elu(T x, T alpha, T scale, T input_scale) {
    T below = op::expm1(x * input_scale) * (alpha * scale);
    return x <= T(0) ? below : x * scale;
}

// @softplus deps: exp, log1p
// x if x * beta > threshold else ln(1 + e^(x * beta)) / beta
template <typename T>
OPWELD_FN T softplus(T x, T beta, T threshold) {
    T scaled = x * beta;
    T curve = op::log1p(op::exp(scaled)) / beta;
    return scaled > threshold ? x : curve;
}

// @threshold deps:
// value if x <= limit else x; any T
template <typename T>
OPWELD_FN T threshold(T x, T limit, T value) {
    return x <= limit ? value : x;
}

// @hardtanh deps:
// x between two bounds (NaN stays NaN)
template <typename T>
OPWELD_FN T hardtanh(T x, T low, T high) {
    return x < low ? low : (x > high ? high : x);
}

// @softshrink deps:
// x - lambda above lambda, x + lambda below -lambda, else 0 (NaN stays NaN)
template <typename T>
OPWELD_FN T softshrink(T x, T lambda) {
    T inside = x != x ? x : T(0);
    return x > lambda ? x - lambda : (x < -lambda ? x + lambda : inside);
}

// @hardshrink deps:
// 0 if -lambda <= x <= lambda else x
template <typename T>
OPWELD_FN T hardshrink(T x, T lambda) {
    return (x >= -lambda) & (x <= lambda) ? T(0) : x;
}

// @maximum deps:
// larger of a and b, NaN if either is NaN; any T
template <typename T>
OPWELD_FN T maximum(T a, T b) {
    T larger = a < b ? b : a;
    return b != b ? b : larger;
}

// @minimum deps:
// smaller of a and b, NaN if either is NaN; any T
template <typename T>
OPWELD_FN T minimum(T a, T b) {
    T smaller = a > b ? b : a;
    return b != b ? b : smaller;
}

// @fmax deps:
// larger of a and b, the other one if one is NaN; any T
template <typename T>
OPWELD_FN T fmax(T a, T b) {
    T larger = a < b ? b : a;
    return a != a ? b : larger;
}

// @fmin deps:
// smaller of a and b, the other one if one is NaN; any T
template <typename T>
OPWELD_FN T fmin(T a, T b) {
    T smaller = a > b ? b : a;
    return a != a ? b : smaller;
}

// @clamp_min deps:
// max(x, lo), NaN if either is NaN; any T
template <typename T>
OPWELD_FN T clamp_min(T x, T lo) {
    T clamped = x < lo ? lo : x;
    return lo != lo ? lo : clamped;
}

// @clamp_max deps:
// min(x, hi), NaN if either is NaN; any T
template <typename T>
OPWELD_FN T clamp_max(T x, T hi) {
    T clamped = x > hi ? hi : x;
    return hi != hi ? hi : clamped;
}

// @quotient deps: kIsSigned
// a / b of integers, towards zero. A zero divisor gives -1 as on CUDA, and dividing the lowest
// value by -1 wraps; plain division would stop the program on x86.
template <typename T>
OPWELD_FN T quotient(T a, T b) {
    if constexpr (kIsSigned<T>) {
        T divisor = (b == T(0)) | (b == T(-1)) ? T(1) : b;
        T inexact = a / divisor;
        return b == T(0) ? T(-1) : (b == T(-1) ? T(-a) : inexact);
    } else {
        return b == T(0) ? T(-1) : T(a / (b == T(0) ? T(1) : b));
    }
}

// @fmod deps: kIsFloating, quotient
// a - trunc(a / b) * b, with the sign of a; any T
template <typename T>
OPWELD_FN T fmod(T a, T b) {
    if constexpr (kIsFloating<T>) {
        return ::fmod(a, b);
    } else {
        return T(a - op::quotient(a, b) * b);
    }
}

// @remainder deps: is_negative, fmod
// a - floor(a / b) * b, with the sign of b; any T
template <typename T>
OPWELD_FN T remainder(T a, T b) {
    T mod = op::fmod(a, b);
    return (mod != T(0)) & (op::is_negative(b) != op::is_negative(mod)) ? T(mod + b) : mod;
}

// @div_trunc deps: kIsFloating, quotient
// a / b rounded towards zero; any T
template <typename T>
OPWELD_FN T div_trunc(T a, T b) {
    if constexpr (kIsFloating<T>) {
        return ::trunc(a / b);
    } else {
        return op::quotient(a, b);
    }
}

// @div_floor deps: kIsFloating, is_negative, quotient, fmod
// a / b rounded down, as Python's // ; any T
template <typename T>
OPWELD_FN T div_floor(T a, T b) {
    T mod = op::fmod(a, b);
    bool lower = (mod != T(0)) & (op::is_negative(b) != op::is_negative(mod));
    if constexpr (kIsFloating<T>) {
        T exact = (a - mod) / b - T(lower ? 1 : 0);
        T down = ::floor(exact);
        T nearest = exact - down > T(0.5) ? down + T(1) : down;
        T signed_zero = ::copysign(T(0), a / b);
        T result = exact != T(0) ? nearest : signed_zero;
        return b == T(0) ? a / b : result;
    } else {
        return T(op::quotient(a, b) - T(lower & (b != T(0)) ? 1 : 0));
    }
}

// @pow deps: kIsFloating, is_negative
// a^b; for integers a negative b gives 0 unless |a| is 1; any T
template <typename T>
OPWELD_FN T pow(T a, T b) {
    if constexpr (kIsFloating<T>) {
        return ::pow(a, b);
    } else {
        if (op::is_negative(b)) {
            T odd = T(b & T(1));
            return a == T(1) ? T(1) : (a == T(-1) ? T(odd ? -1 : 1) : T(0));
        }
        T result = T(1);
        for (T rest = b; rest != T(0); rest = T(rest >> 1)) {
            result = rest & T(1) ? T(result * a) : result;
            a = T(a * a);
        }
        return result;
    }
}

// @atan2 deps:
// angle of the point (b, a)
template <typename T>
OPWELD_FN T atan2(T a, T b) {
    return ::atan2(a, b);
}

// @hypot deps:
// sqrt(a^2 + b^2)
template <typename T>
OPWELD_FN T hypot(T a, T b) {
    return ::hypot(a, b);
}

// @copysign deps:
// |a| with the sign of b
template <typename T>
OPWELD_FN T copysign(T a, T b) {
    return ::copysign(a, b);
}

// @logaddexp deps: kInfinity, exp, log1p
// ln(e^a + e^b) = max + ln(1 + e^-|a - b|)
template <typename T>
OPWELD_FN T logaddexp(T a, T b) {
    T larger = a < b ? b : a;
    T sum = larger + op::log1p(op::exp(-::fabs(a - b)));
    return (::fabs(a) == kInfinity<T>)&(a == b) ? a : sum;
}

// @xlogy deps: log
// x * ln(y), 0 where x is 0, NaN where y is NaN
template <typename T>
OPWELD_FN T xlogy(T x, T y) {
    T product = x * op::log(y);
    return (x == T(0)) & (y == y) ? T(0) : product;
}

// @heaviside deps:
// 0 below zero, value at zero, 1 above, 0 for NaN; any T
template <typename T>
OPWELD_FN T heaviside(T x, T value) {
    return x == T(0) ? value : T(x > T(0) ? 1 : 0);
}

// @lerp deps:
// a + w * (b - a), taken from the nearer end
template <typename T>
OPWELD_FN T lerp(T a, T b, T w) {
    bool near_a = ::fabs(w) < T(0.5);
    return (near_a ? a : b) + (near_a ? w : w - T(1)) * (b - a);
}

// @addcmul deps:
// a + b * c, rounded once: where a sum cancels, that is what is left
template <typename T>
OPWELD_FN T addcmul(T a, T b, T c) {
    return ::fma(b, c, a);
}

// @shift_left deps: is_negative
// a << b, 0 where b is negative or as wide as T; integers
template <typename T>
OPWELD_FN T shift_left(T a, T b) {
    bool wide = op::is_negative(b) | (b >= T(8 * sizeof(T)));
    return wide ? T(0) : T(a << (wide ? T(0) : b));
}

// @shift_right deps: kIsSigned, is_negative
// a >> b, filled with the sign where b is negative or as wide as T; integers
template <typename T>
OPWELD_FN T shift_right(T a, T b) {
    constexpr T kWidest = T(8 * sizeof(T) - (kIsSigned<T> ? 1 : 0));
    bool wide = op::is_negative(b) | (b >= kWidest);
    T filled = op::is_negative(a) ? T(-1) : T(0);
    return wide ? filled : T(a >> (wide ? T(0) : b));
}

}  // namespace op
