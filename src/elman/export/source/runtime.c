/* Products of a vector and a matrix, and what is done with whole vectors. A matrix lies in panels of COLUMNS
   columns, each row of a panel after the other, so that it is read from its first number to its last. */
#define COLUMNS 32

/* y += x W for x of `depth` numbers; y and W have `width` columns, a multiple of COLUMNS. A register has LANES numbers;
   TURNS rows are summed up apart, so that one sum need not wait for the other. (Vectors need single precision to be
   computed in single precision, which is not so on every processor.) */
#if defined(__GNUC__) && FLT_EVAL_METHOD == 0
#define DEFINE_MULTIPLY(name, attribute, LANES, TURNS)                                                        \
  attribute static void name(float *restrict y, const float *restrict x, int depth, const float *restrict w, \
                             int width) {                                                                     \
    typedef float Lanes __attribute__((vector_size(4 * LANES), aligned(4), may_alias));                       \
    enum { PARTS = COLUMNS / LANES };                                                                         \
    for (int c = 0; c < width; c += COLUMNS) {                                                                \
      Lanes sum[TURNS][PARTS];                                                                                \
      int d = 0;                                                                                              \
      for (int p = 0; p < PARTS; p++) {                                                                       \
        sum[0][p] = *(const Lanes *)(y + c + p * LANES);                                                      \
        for (int t = 1; t < TURNS; t++) sum[t][p] = sum[0][p] - sum[0][p];                                    \
      }                                                                                                       \
      for (; d + TURNS <= depth; d += TURNS)                                                                  \
        for (int t = 0; t < TURNS; t++, w += COLUMNS) {                                                       \
          const float a = x[d + t];                                                                           \
          for (int p = 0; p < PARTS; p++) sum[t][p] += a * *(const Lanes *)(w + p * LANES);                   \
        }                                                                                                     \
      for (; d < depth; d++, w += COLUMNS)                                                                    \
        for (int p = 0; p < PARTS; p++) sum[0][p] += x[d] * *(const Lanes *)(w + p * LANES);                  \
      for (int p = 0; p < PARTS; p++) {                                                                       \
        for (int t = 1; t < TURNS; t++) sum[0][p] += sum[t][p];                                               \
        *(Lanes *)(y + c + p * LANES) = sum[0][p];                                                            \
      }                                                                                                       \
    }                                                                                                         \
  }
#if defined(__AVX512F__)
DEFINE_MULTIPLY(multiply, , 16, 4)
#elif defined(__AVX2__)
DEFINE_MULTIPLY(multiply, , 8, 2)
#elif defined(__x86_64__) && defined(__linux__) && !defined(FREESTANDING)
/* Compiled for any processor of this kind, it looks which one it is on. */
DEFINE_MULTIPLY(multiply_plain, , 4, 1)
DEFINE_MULTIPLY(multiply_wide, __attribute__((target("avx2,fma"))), 8, 2)
static void multiply(float *restrict y, const float *restrict x, int depth, const float *restrict w, int width) {
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    multiply_wide(y, x, depth, w, width);
  else
    multiply_plain(y, x, depth, w, width);
}
#else
DEFINE_MULTIPLY(multiply, , 4, 1)
#endif
#else
static void multiply(float *restrict y, const float *restrict x, int depth, const float *restrict w, int width) {
  for (int c = 0; c < width; c += COLUMNS)
    for (int d = 0; d < depth; d++, w += COLUMNS)
      for (int j = 0; j < COLUMNS; j++) y[c + j] += x[d] * w[j];
}
#endif

/* The same for weights in 8 bits; a row has one scale for all of its columns. */
static void multiply8_plain(float *restrict y, const float *restrict x, int depth, const int8_t *restrict w,
                            const float *restrict scale, int width) {
  for (int c = 0; c < width; c += COLUMNS) {
#if defined(__clang__)
    typedef float Lanes __attribute__((vector_size(32), aligned(4), may_alias));
    typedef int8_t Small __attribute__((vector_size(8), aligned(1), may_alias));
    Lanes sum[COLUMNS / 8];
    for (int p = 0; p < COLUMNS / 8; p++) sum[p] = *(const Lanes *)(y + c + 8 * p);
    for (int d = 0; d < depth; d++, w += COLUMNS)
      for (int p = 0; p < COLUMNS / 8; p++)
        sum[p] += x[d] * scale[d] * __builtin_convertvector(*(const Small *)(w + 8 * p), Lanes);
    for (int p = 0; p < COLUMNS / 8; p++) *(Lanes *)(y + c + 8 * p) = sum[p];
#else
    float sum[COLUMNS];
    for (int j = 0; j < COLUMNS; j++) sum[j] = y[c + j];
    for (int d = 0; d < depth; d++, w += COLUMNS) {
      const float a = x[d] * scale[d];
      for (int j = 0; j < COLUMNS; j++) sum[j] += a * (float)w[j];
    }
    for (int j = 0; j < COLUMNS; j++) y[c + j] = sum[j];
#endif
  }
}
#if defined(__GNUC__) && defined(__x86_64__) && (defined(__AVX2__) || (defined(__linux__) && !defined(FREESTANDING)))
#include <immintrin.h>
__attribute__((target("avx2,fma"))) static void multiply8_wide(float *restrict y, const float *restrict x, int depth,
                                                               const int8_t *restrict w, const float *restrict scale,
                                                               int width) {
  for (int c = 0; c < width; c += COLUMNS) {
    __m256 sum[COLUMNS / 8];
    for (int p = 0; p < COLUMNS / 8; p++) sum[p] = _mm256_loadu_ps(y + c + 8 * p);
    for (int d = 0; d < depth; d++, w += COLUMNS) {
      const __m256 a = _mm256_set1_ps(x[d] * scale[d]);
      for (int p = 0; p < COLUMNS / 8; p++) {
        const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(w + 8 * p)));
        sum[p] = _mm256_fmadd_ps(a, _mm256_cvtepi32_ps(whole), sum[p]);
      }
    }
    for (int p = 0; p < COLUMNS / 8; p++) _mm256_storeu_ps(y + c + 8 * p, sum[p]);
  }
}
static void multiply8(float *restrict y, const float *restrict x, int depth, const int8_t *restrict w,
                      const float *restrict scale, int width) {
#if !defined(__AVX2__) || !defined(__FMA__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    multiply8_plain(y, x, depth, w, scale, width);
    return;
  }
#endif
  multiply8_wide(y, x, depth, w, scale, width);
}
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
/* As numbers by their bits: clang takes a conversion of short numbers apart, lane by lane. */
#define SHIFTED(whole) wasm_f32x4_sub(wasm_i32x4_add(whole, wasm_i32x4_const_splat(0x4B400000)), \
                                      wasm_f32x4_const_splat(12582912.0f))
static void multiply8(float *restrict y, const float *restrict x, int depth, const int8_t *restrict w,
                      const float *restrict scale, int width) {
  for (int c = 0; c < width; c += COLUMNS) {
    v128_t sum[COLUMNS / 4];
    for (int p = 0; p < COLUMNS / 4; p++) sum[p] = wasm_v128_load(y + c + 4 * p);
    for (int d = 0; d < depth; d++, w += COLUMNS) {
      const v128_t a = wasm_f32x4_splat(x[d] * scale[d]);
      for (int p = 0; p < COLUMNS / 8; p++) {
        const v128_t small = wasm_i16x8_load8x8(w + 8 * p);
        const v128_t low = SHIFTED(wasm_i32x4_extend_low_i16x8(small));
        const v128_t high = SHIFTED(wasm_i32x4_extend_high_i16x8(small));
        sum[2 * p] = wasm_f32x4_add(sum[2 * p], wasm_f32x4_mul(a, low));
        sum[2 * p + 1] = wasm_f32x4_add(sum[2 * p + 1], wasm_f32x4_mul(a, high));
      }
    }
    for (int p = 0; p < COLUMNS / 4; p++) wasm_v128_store(y + c + 4 * p, sum[p]);
  }
}
#else
#define multiply8 multiply8_plain
#endif

static void copy(float *to, const float *from, int count) {
  for (int i = 0; i < count; i++) to[i] = from[i];
}

static void copy8(float *to, const int8_t *from, float scale, int count) {
  for (int i = 0; i < count; i++) to[i] = scale * (float)from[i];
}

static void fill(float *to, float value, int count) {
  for (int i = 0; i < count; i++) to[i] = value;
}

static void apply_tanh(float *x, int count) {
  for (int i = 0; i < count; i++) x[i] = hyperbolic_tangent(x[i]);
}

/* Mean 0 and variance 1, then a gain and a shift. */
static void normalise(float *x, int count, const float *gain, const float *shift, double epsilon) {
  double mean = 0.0, square = 0.0, scale;
  for (int i = 0; i < count; i++) mean += (double)x[i];
  mean /= count;
  for (int i = 0; i < count; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean);
  scale = exp_of(-0.5 * log_of(square / count + epsilon));
  for (int i = 0; i < count; i++) x[i] = (float)(((double)x[i] - mean) * scale) * gain[i] + shift[i];
}

static float dot(const float *a, const float *b, int count) {
  float sums[8] = {0}, total = 0.0f;
  int i = 0;
  for (; i + 8 <= count; i += 8)
    for (int j = 0; j < 8; j++) sums[j] += a[i + j] * b[i + j];
  for (; i < count; i++) total += a[i] * b[i];
  for (int j = 0; j < 8; j++) total += sums[j];
  return total;
}

static float largest(const float *x, int count) {
  float most = x[0];
  for (int i = 1; i < count; i++) most = x[i] > most ? x[i] : most;
  return most;
}

static void softmax(float *x, int count) {
  const float most = largest(x, count);
  float total = 0.0f;
  for (int i = 0; i < count; i++) x[i] = exponential(x[i] - most);
  for (int i = 0; i < count; i++) total += x[i];
  for (int i = 0; i < count; i++) x[i] /= total;
}

/* log Σ exp(x) */
static double log_total(const float *x, int count) {
  const float most = largest(x, count);
  double total = 0.0;
  for (int i = 0; i < count; i++) total += (double)exponential(x[i] - most);
  return (double)most + log_of(total);
}

static void log_softmax(float *x, int count) {
  const float total = (float)log_total(x, count);
  for (int i = 0; i < count; i++) x[i] -= total;
}
