// Pointwise functions on vectors of REAL, for the equations of a cell. NaN goes in, NaN comes out (but of
// `sign`, as in torch).
// Included before the generated step; `kernel.c` follows it.
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#define BYTES 64
#define REGISTERS 32
#elif defined(__AVX__)
#define BYTES 32
#define REGISTERS 16
#elif defined(__aarch64__)
#define BYTES 16
#define REGISTERS 32
#else
#define BYTES 16
#define REGISTERS 16
#endif

#if DOUBLE
typedef double REAL;
typedef int64_t WHOLE;
#define EXPONENT_BITS 52
#define EXPONENT_BIAS 1023
#define ROUNDER 6755399441055744.0            // 1.5 * 2^52: adding it rounds to a whole number
#define LN2_HIGH 0.693147180369123816490
#define LN2_LOW 1.90821492927058770002e-10
#define EXP_LARGEST 709.782712893383973
#define EXP_SMALLEST -745.2                   // below: zero; from -708.4 on the result is subnormal
#define SIGMOID_FLAT 40.0
#define TANH_FLAT 20.0
#define LOG1P_TERMS 17
#else
typedef float REAL;
typedef int32_t WHOLE;
#define EXPONENT_BITS 23
#define EXPONENT_BIAS 127
#define ROUNDER 12582912.0f                   // 1.5 * 2^23
#define LN2_HIGH 0.693359375f
#define LN2_LOW -2.12194440e-4f
#define EXP_LARGEST 88.7228394f
#define EXP_SMALLEST -104.0f                  // below: zero; from -87.4 on the result is subnormal
#define SIGMOID_FLAT 20.0f
#define TANH_FLAT 10.0f
#define LOG1P_TERMS 8
#endif

// Rows of a product tile: its sums, one value and one row of C weight vectors stay in registers.
#define MOST_ROWS(C) ((REGISTERS - 1) / ((C) + 1) < 1 ? 1 : (REGISTERS - 1) / ((C) + 1))

#define LANES ((long)(BYTES / sizeof(REAL)))
typedef REAL V __attribute__((vector_size(BYTES)));
typedef WHOLE M __attribute__((vector_size(BYTES)));  // truth values (all bits) and bit patterns
#if defined(__x86_64__)
#define IN_REGISTER(y) __asm__("" : "+v"(y))  // keep gcc from loading it again for every use
#else
#define IN_REGISTER(y)
#endif
typedef REAL VU __attribute__((vector_size(BYTES), aligned(sizeof(REAL)), may_alias));

INLINE V all(REAL value) { return value - (V){0}; }  // minus: adding zero would change -0
INLINE M truth(long condition) { return (M){0} - (WHOLE)(condition != 0); }
INLINE V choose(M condition, V a, V b) { return (V)((condition & (M)a) | (~condition & (M)b)); }
INLINE V larger(V a, V b) { return choose((a > b) | (a != a), a, b); }
INLINE V smaller(V a, V b) { return choose((a < b) | (a != a), a, b); }
INLINE V rectify(V a) { return choose(a < all(0), all(0), a); }
INLINE V magnitude(V a) { return (V)((M)a & ~(M)all((REAL)-0.0)); }
INLINE V sign(V a) { return choose(a > all(0), all(1), choose(a < all(0), all(-1), all(0))); }

// The three primitives below decide the speed of gates: where the processor has an instruction for
// them, it is used.
#if defined(__AVX512F__) && !DOUBLE
INLINE V clamp(V a, V low, V high) { return (V)_mm512_min_ps((__m512)high, _mm512_max_ps((__m512)low, (__m512)a)); }
INLINE V times_power_of_two(V a, V power) { return (V)_mm512_scalef_ps((__m512)a, (__m512)power); }
INLINE V reciprocal(V a) {  // 14 bits, doubled once by Newton's method
  V guess = (V)_mm512_rcp14_ps((__m512)a);
  return guess + guess * ((REAL)1 - a * guess);
}
#else
INLINE V clamp(V a, V low, V high) {
  V y = choose(a < low, low, a);
  return choose(y > high, high, y);
}
INLINE V times_power_of_two(V a, V power) {  // `power` is whole, and 2^(power - 1) is normal
  return a * (V)((M)(power + ROUNDER) + (EXPONENT_BIAS - 1) << EXPONENT_BITS) * (REAL)2;
}
INLINE V reciprocal(V a) { return (REAL)1 / a; }
#endif

// exp(a) = 2^power * (1 + part), with |part| < 1/2. Coefficients: Taylor (double), and for float a
// fit of (e^r - 1 - r) / r^2 at Chebyshev nodes whose relative error is 1e-8.
INLINE V exponential_parts(V a, V *power) {
  *power = a * (REAL)1.44269504088896340736 + ROUNDER - ROUNDER;
  V r = a - *power * LN2_HIGH - *power * LN2_LOW;
#if DOUBLE
  V p = all(1.0 / 6227020800.0);
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
#else
  V p = all(1.3933652488e-3f);
  p = p * r + 8.3631815447e-3f;
  p = p * r + 4.1666464895e-2f;
  p = p * r + 1.6666576967e-1f;
  p = p * r + 5.0000000135e-1f;
#endif
  return p * r * r + r;
}

INLINE V exponential(V a) {
  V power, half = clamp(a, all(EXP_SMALLEST), all(EXP_LARGEST)) * (REAL)0.5;  // 2^power must not overflow
  V part = exponential_parts(half, &power);
  V y = times_power_of_two((REAL)1 + part, power);
  y = choose(a > all(EXP_LARGEST), all((REAL)INFINITY), choose(a < all(EXP_SMALLEST), all(0), y * y));
  return choose(a != a, a, y);
}

INLINE V sigmoid(V a) {                          // zero where torch's is: where exp(-a) is infinite
  V power, part = exponential_parts(-clamp(a, all(-EXP_LARGEST), all(SIGMOID_FLAT)), &power);
  V y = reciprocal((REAL)1 + times_power_of_two((REAL)1 + part, power));
  return choose(a < all(-EXP_LARGEST), all(0), y);
}

INLINE V hyperbolic_tangent(V a) {               // expm1(2a) / (expm1(2a) + 2): exact near zero too
  V power, c = clamp(a, all(-TANH_FLAT), all(TANH_FLAT));
  V part = exponential_parts(c + c, &power), scale = times_power_of_two(all(1), power);
  V m = scale * part + (scale - (REAL)1);
  return (V)((M)(m * reciprocal(m + (REAL)2)) | ((M)a & (M)all((REAL)-0.0)));  // of -0: -0
}

INLINE V softplus(V a) {                         // max(a, 0) + log1p(exp(-|a|)), log1p(u) = 2 atanh(u / (2 + u))
  V u = exponential(-magnitude(a));
  V twice = u * reciprocal(u * (REAL)0.5 + (REAL)1), square = twice * twice * (REAL)0.25, sum = all(0);
  for (int k = LOG1P_TERMS; k >= 0; k--) sum = sum * square + (REAL)1 / (REAL)(2 * k + 1);
  return rectify(a) + twice * sum;
}

#if DOUBLE
#define LIBM(name) name
#else
#define LIBM(name) name##f
#endif
#define BY_LANE(name, function)                                   \
  __attribute__((noinline)) static V name(V a) {                  \
    V y;                                                          \
    for (int l = 0; l < LANES; l++) y[l] = LIBM(function)(a[l]);  \
    return y;                                                     \
  }
BY_LANE(logarithm, log)
BY_LANE(square_root, sqrt)
BY_LANE(sine, sin)
BY_LANE(cosine, cos)
BY_LANE(error_function, erf)

__attribute__((noinline)) static V power(V a, V b) {
  V y;
  for (int l = 0; l < LANES; l++) y[l] = LIBM(pow)(a[l], b[l]);
  return y;
}

INLINE V gelu(V a) { return (REAL)0.5 * a * ((REAL)1 + error_function(a * (REAL)0.70710678118654752)); }
