// Functions of operands that are stored in 16 bits: their results are rounded to 8 or 11 bits, so
// the GPU's approximate instructions do. The relative error is at most 2^-14 wherever the result is
// a normal number of either type, an eighth of the rounding of half (tanh_bf16, for bfloat16 alone,
// has 2^-11). Errors of instructions are those of the PTX ISA 9.0; each function's own bound was
// measured over all operands of both types with instructions that err by as much as they may.
//
// NaN, infinities, signed zeros and subnormal numbers of bfloat16 and half come out as in math.h.

namespace op {

// @ex2_approx deps:
// 2^x, error 2^-22
OPWELD_FN float ex2_approx(float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// @ex2_approx_ftz deps:
// 2^x, error 2^-22; a subnormal result becomes 0
OPWELD_FN float ex2_approx_ftz(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// @rcp_approx_ftz deps:
// 1 / x, error 2^-23; 0 where |x| is above 2^126, infinite where x is subnormal
OPWELD_FN float rcp_approx_ftz(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// @lg2_approx deps:
// log2(x), error 2^-22, absolute between 1/2 and 2
OPWELD_FN float lg2_approx(float x) {
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// @div_approx deps:
// a / b, error 2^-22, operands of any size
OPWELD_FN float div_approx(float a, float b) {
    float y;
    asm("div.full.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// @reciprocal_approx deps: div_approx
// 1 / x
OPWELD_FN float reciprocal_approx(float x) { return op::div_approx(1.0f, x); }

// @sqrt_approx deps:
// sqrt(x), error 2^-23
OPWELD_FN float sqrt_approx(float x) {
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// @tanh_bf16 deps:
// sinh(x) / cosh(x), error 2^-11: rounding to bfloat16 then errs by 1 % more than it must (root
// mean square)
OPWELD_FN float tanh_bf16(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return ::fabsf(x) < 1.220703125e-4f ? x : y;  // the instruction flushes subnormal operands
}

// @kLog2OfE deps:
constexpr float kLog2OfE = 1.44269504f;

// @exp_approx deps: kLog2OfE, ex2_approx
// e^x; the product's rounding, |x| * 2^-24, is the error
OPWELD_FN float exp_approx(float x) { return op::ex2_approx(x * kLog2OfE); }

// @exp2_approx deps: ex2_approx
// 2^x
OPWELD_FN float exp2_approx(float x) { return op::ex2_approx(x); }

// @expm1_approx deps: kLog2OfE, ex2_approx_ftz
// e^x - 1; x + x^2 / 2 + x^3 / 6 near 0, where the difference would cancel
OPWELD_FN float expm1_approx(float x) {
    float near_zero = x * ((x * 0.166666667f + 0.5f) * x + 1.0f);
    float far = op::ex2_approx_ftz(x * kLog2OfE) - 1.0f;
    return ::fabsf(x) < 0.03125f ? near_zero : far;
}

// @log1p_series deps:
// x - x^2 / 2 + x^3 / 3, which is ln(1 + x) to 2^-20 for |x| < 1/64
OPWELD_FN float log1p_series(float x) { return x * ((x * 0.333333333f - 0.5f) * x + 1.0f); }

// @log_approx deps: lg2_approx, log1p_series
// ln(x); a series near 1, where the instruction's error is absolute
OPWELD_FN float log_approx(float x) {
    float above = x - 1.0f;
    float far = op::lg2_approx(x) * 0.693147181f;
    return ::fabsf(above) < 0.015625f ? op::log1p_series(above) : far;
}

// @log2_approx deps: log_approx
// log2(x)
OPWELD_FN float log2_approx(float x) { return op::log_approx(x) * 1.44269504f; }

// @log10_approx deps: log_approx
// log10(x)
OPWELD_FN float log10_approx(float x) { return op::log_approx(x) * 0.434294482f; }

// @log1p_approx deps: lg2_approx, log1p_series
// ln(1 + x)
OPWELD_FN float log1p_approx(float x) {
    float far = op::lg2_approx(x + 1.0f) * 0.693147181f;
    return ::fabsf(x) < 0.015625f ? op::log1p_series(x) : far;
}

// @kScale deps:
constexpr float kScale = 65536.0f;

// @scaled_sigmoid deps: kLog2OfE, kScale, ex2_approx_ftz, rcp_approx_ftz
// kScale / (1 + e^-x); scaled, it and its reciprocal are normal numbers where 1 / (1 + e^-x) is a
// subnormal one of bfloat16
OPWELD_FN float scaled_sigmoid(float x) {
    return op::rcp_approx_ftz(op::ex2_approx_ftz(x * -kLog2OfE - 16.0f) + 1.0f / kScale);
}

// @sigmoid_approx deps: kScale, scaled_sigmoid
// 1 / (1 + e^-x)
OPWELD_FN float sigmoid_approx(float x) { return op::scaled_sigmoid(x) * (1.0f / kScale); }

// @silu_approx deps: kScale, scaled_sigmoid
// x / (1 + e^-x)
OPWELD_FN float silu_approx(float x) { return op::scaled_sigmoid(x) * (x * (1.0f / kScale)); }

// @tanh_approx deps: kLog2OfE, ex2_approx_ftz, rcp_approx_ftz
// 1 - 2 / (e^(2 x) + 1); x - x^3 / 3 near 0, where the difference would cancel
OPWELD_FN float tanh_approx(float x) {
    float near_zero = x * (x * x * -0.333333333f + 1.0f);
    float far = op::rcp_approx_ftz(op::ex2_approx_ftz(x * (2.0f * kLog2OfE)) + 1.0f) * -2.0f + 1.0f;
    return ::fabsf(x) < 0.0625f ? near_zero : far;
}

// @gelu_tanh_approx deps: kScale, scaled_sigmoid
// x / 2 * (1 + tanh(u)) = x / (1 + e^(-2 u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3)
OPWELD_FN float gelu_tanh_approx(float x) {
    float twice_u = x * (x * x * 0.0713548163f + 1.59576912f);
    return op::scaled_sigmoid(twice_u) * (x * (1.0f / kScale));
}

// @gelu_approx deps: ex2_approx
// x * P(x) with P the normal distribution; P(-z) = 2^-q(z) for z >= 0, where q is fitted to an
// error of 2^-15 in the power up to z = 13.3, beyond which x * P(x) vanishes
OPWELD_FN float gelu_approx(float x) {
    float z = ::fabsf(x);
    float q = 1.88000339e-09f;
    q = q * z - 1.37895002e-07f;
    q = q * z + 4.44578180e-06f;
    q = q * z - 8.33892118e-05f;
    q = q * z + 1.01886450e-03f;
    q = q * z - 8.65723782e-03f;
    q = q * z + 5.39311196e-02f;
    q = q * z + 4.58825199e-01f;
    q = q * z + 1.15096387f;
    q = q * z + 1.00003159f;
    float tail = op::ex2_approx(-q);
    return x * (x > 0.0f ? 1.0f - tail : tail);
}

// @mish_approx deps: exp_approx, rcp_approx_ftz
// x * tanh(ln(1 + e^x)) = x * n / (n + 2) with n = e^x (e^x + 2); above 20 the factor is 1
OPWELD_FN float mish_approx(float x) {
    float e = op::exp_approx(x);
    float n = e * (e + 2.0f);
    float curve = x * (n * op::rcp_approx_ftz(n + 2.0f));
    return x > 20.0f ? x : curve;
}

// @softsign_approx deps: div_approx
// x / (1 + |x|)
OPWELD_FN float softsign_approx(float x) { return op::div_approx(x, 1.0f + ::fabsf(x)); }

// @hardsigmoid_approx deps: relu6
// relu6(x + 3) / 6
OPWELD_FN float hardsigmoid_approx(float x) { return op::relu6(x + 3.0f) * (1.0f / 6.0f); }

// @hardswish_approx deps: relu6
// x * relu6(x + 3) / 6
OPWELD_FN float hardswish_approx(float x) { return x * op::relu6(x + 3.0f) * (1.0f / 6.0f); }

// @logsigmoid_approx deps: exp_approx, log1p_approx
// -ln(1 + e^-x) = min(x, 0) - ln(1 + e^-|x|)
OPWELD_FN float logsigmoid_approx(float x) {
    return (x > 0.0f ? 0.0f : x) - op::log1p_approx(op::exp_approx(-::fabsf(x)));
}

// @softplus_approx deps: exp_approx, log1p_approx
// x if x * beta > threshold else ln(1 + e^(x * beta)) / beta
OPWELD_FN float softplus_approx(float x, float beta, float threshold) {
    float scaled = x * beta;
    float curve = op::log1p_approx(op::exp_approx(scaled)) * (1.0f / beta);
    return scaled > threshold ? x : curve;
}

// @elu_approx deps: expm1_approx
// scale * x if x > 0 else scale * alpha * (e^(x * input_scale) - 1)
OPWELD_FN float elu_approx(float x, float alpha, float scale, float input_scale) {
    float below = op::expm1_approx(x * input_scale) * (alpha * scale);
    return x <= 0.0f ? below : x * scale;
}

// @erf_approx deps:
// x p(x^2), fitted to 2^-15 up to |x| = 3, beyond which it is taken as 1
OPWELD_FN float erf_approx(float x) {
    float y = x * x;
    float p = 4.52083100e-08f;
    p = p * y - 2.12024702e-06f;
    p = p * y + 4.39116884e-05f;
    p = p * y - 5.35783882e-04f;
    p = p * y + 4.35882108e-03f;
    p = p * y - 2.54561193e-02f;
    p = p * y + 1.11625172e-01f;
    p = p * y - 3.75704080e-01f;
    p = p * y + 1.12835336f;
    return ::fabsf(x) > 3.0f ? ::copysignf(1.0f, x) : p * x;
}

// @logaddexp_approx deps: kInfinity, exp_approx, log1p_approx
// ln(e^a + e^b) = max + ln(1 + e^-|a - b|)
OPWELD_FN float logaddexp_approx(float a, float b) {
    float larger = a < b ? b : a;
    float sum = larger + op::log1p_approx(op::exp_approx(-::fabsf(a - b)));
    return (::fabsf(a) == kInfinity<float>)&(a == b) ? a : sum;
}

// @xlogy_approx deps: log_approx
// x * ln(y), 0 where x is 0, NaN where y is NaN
OPWELD_FN float xlogy_approx(float x, float y) {
    float product = x * op::log_approx(y);
    return y != y ? y : (x == 0.0f ? 0.0f : product);
}

}  // namespace op
