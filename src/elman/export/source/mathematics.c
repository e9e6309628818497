/* Functions of one unit, for the equations of a cell: plain C, without a library, and without branches where a
   compiler can then take several units at a time. */
typedef float V; /* a value of the equations */
typedef int M;   /* a truth value: 0 or -1 */

static inline V choose(M condition, V a, V b) { return condition ? a : b; }
static inline V larger(V a, V b) { return a > b || a != a ? a : b; }
static inline V smaller(V a, V b) { return a < b || a != a ? a : b; }
static inline V clamp(V a, V low, V high) { return a < low ? low : a > high ? high : a; }
static inline V rectify(V a) { return a < 0.0f ? 0.0f : a; }
static inline V magnitude(V a) { return a < 0.0f ? -a : a; }
static inline V sign(V a) { return a > 0.0f ? 1.0f : a < 0.0f ? -1.0f : 0.0f; }

static inline V bits_as_float(uint32_t bits) {
  union { uint32_t bits; float value; } both;
  both.bits = bits;
  return both.value;
}

/* exp(a) = 2^power * (1 + part), for |a| < 88: a fit whose relative error is 1e-8. */
static inline V exponential_parts(V a, V *power) {
  const int32_t rounded = (int32_t)(a * 1.44269504f + 256.5f) - 256; /* what is cut off here is above 0 */
  const V whole = (V)rounded;
  const V r = a - whole * 0.693359375f - whole * -2.12194440e-4f;
  V p = 1.3933652488e-3f;
  p = p * r + 8.3631815447e-3f;
  p = p * r + 4.1666464895e-2f;
  p = p * r + 1.6666576967e-1f;
  p = p * r + 5.0000000135e-1f;
  *power = bits_as_float((uint32_t)(rounded + 127) << 23);
  return p * r * r + r;
}

static inline V exponential(V a) {
  V power;
  const V half = clamp(a, -104.0f, 88.7228394f) * 0.5f;
  const V part = exponential_parts(half, &power), y = power * (1.0f + part);
  return a != a ? a : a < -104.0f ? 0.0f : y * y;
}

static inline V sigmoid(V a) {
  V power;
  const V part = exponential_parts(-clamp(a, -87.0f, 20.0f), &power);
  return a != a ? a : 1.0f / (1.0f + power * (1.0f + part));
}

static inline V hyperbolic_tangent(V a) { /* expm1(2a) / (expm1(2a) + 2): exact near zero, too */
  V power;
  const V c = clamp(a, -10.0f, 10.0f), part = exponential_parts(c + c, &power);
  const V m = power * part + (power - 1.0f);
  return a != a ? a : m / (m + 2.0f);
}

/* In double precision, for few numbers. */
static double rounded(double a) {
  if (!(a > -4503599627370496.0 && a < 4503599627370496.0)) return a; /* 2^52: nothing is behind the point */
  return (double)(int64_t)(a < 0.0 ? a - 0.5 : a + 0.5);
}

static double exp_of(double a) {
  union { uint64_t bits; double value; } scale;
  double whole, r, term = 1.0, sum = 1.0;
  if (a != a) return a;
  if (a < -700.0) return 0.0;
  if (a > 700.0) a = 700.0;
  whole = rounded(a * 1.4426950408889634);
  r = a - whole * 0.693147180369123816490 - whole * 1.90821492927058770002e-10;
  for (int k = 1; k < 14; k++) {
    term *= r / k;
    sum += term;
  }
  scale.bits = (uint64_t)((int64_t)whole + 1023) << 52;
  return sum * scale.value;
}

static double log_of(double a) {
  union { double value; uint64_t bits; } parts;
  double m, z, square, sum = 0.0;
  int power;
  if (!(a > 0.0)) return a == 0.0 ? -1e300 * 1e300 : a - a + (a != a ? a : (1e300 * 1e300) * 0.0);
  parts.value = a < 2.3e-308 ? a * 18014398509481984.0 : a; /* 2^54: no subnormal number */
  power = (int)(parts.bits >> 52) - 1022 - (a < 2.3e-308 ? 54 : 0);
  parts.bits = (parts.bits & 0xFFFFFFFFFFFFFull) | 0x3FE0000000000000ull;
  m = parts.value; /* from 1/2 to 1 */
  if (m < 0.70710678118654752) {
    m *= 2.0;
    power--;
  }
  z = (m - 1.0) / (m + 1.0);
  square = z * z;
  for (int k = 21; k > 0; k -= 2) sum = sum * square + 1.0 / k;
  return 2.0 * z * sum + power * 0.69314718055994531;
}

static inline V logarithm(V a) { return (V)log_of((double)a); }

static inline V square_root(V a) {
  double y;
  if (!(a > 0.0f)) return a == 0.0f ? a : (V)(a != a ? a : (1e38f * 1e38f) * 0.0f);
  y = exp_of(0.5 * log_of((double)a));
  y = 0.5 * (y + (double)a / y);
  return (V)y;
}

static V power(V a, V b) {
  const double size = exp_of((double)b * log_of((double)magnitude(a)));
  const double half = (double)b * 0.5, near = rounded(half), whole = rounded((double)b);
  if (b == 0.0f || a == 1.0f) return 1.0f;
  if (a == 0.0f) return b > 0.0f ? 0.0f : 1e38f * 1e38f;
  if (a > 0.0f) return (V)size;
  if (whole != (double)b) return (1e38f * 1e38f) * 0.0f;
  return (V)(near == half ? size : -size);
}

static double sine_of(double a) {
  const double turns = rounded(a * 0.15915494309189535);
  double r = a - turns * 6.28318530717958648, square, term, sum;
  if (r > 1.5707963267948966) r = 3.1415926535897932 - r;
  if (r < -1.5707963267948966) r = -3.1415926535897932 - r;
  square = r * r;
  term = sum = r;
  for (int k = 3; k < 24; k += 2) {
    term *= -square / (k * (k - 1));
    sum += term;
  }
  return sum;
}
static inline V sine(V a) { return (V)sine_of((double)a); }
static inline V cosine(V a) { return (V)sine_of((double)a + 1.5707963267948966); }

static V error_function(V a) { /* a series, and beyond it 1 to single precision */
  const double x = clamp(a, -4.0f, 4.0f), square = x * x;
  double term = x, sum = x;
  if (a != a) return a;
  for (int k = 1; k < 80; k++) {
    term *= -square / k;
    sum += term / (2 * k + 1);
  }
  return (V)(sum * 1.1283791670955126);
}
static inline V gelu(V a) { return 0.5f * a * (1.0f + error_function(a * 0.70710678f)); }
static inline V softplus(V a) { return (V)(rectify(a) + (V)log_of(1.0 + exp_of(-(double)magnitude(a)))); }
