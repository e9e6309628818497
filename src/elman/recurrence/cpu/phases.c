// The pieces of which steps of several phases are made; `emit_phases.py` writes the steps after this file.
// Before it stand `mathematics.c`, a `Task` and `rows.c`.
//
// Rows are independent: each thread takes some of them through all of time, phase by phase. What one phase
// leaves to the next lies in a row of `work`, every value in whole vectors.
#define COLUMNS (4 * LANES)  // of a panel of weights

// Lanes from n on, which lie beyond the end of a row, become `fill`.
INLINE V keep(V y, long n, REAL fill) {
  if (n >= LANES) return y;
  for (long i = n; i < LANES; i++) y[i] = fill;
  return y;
}
INLINE V total(V y) {
#if defined(__AVX512F__) && DOUBLE
  return all(_mm512_reduce_add_pd((__m512d)y));
#elif defined(__AVX512F__)
  return all(_mm512_reduce_add_ps((__m512)y));
#else
  REAL sum = 0;
  for (long i = 0; i < LANES; i++) sum += y[i];
  return all(sum);
#endif
}
INLINE V largest(V y) {
  V found = all(y[0]);
  for (long i = 1; i < LANES; i++) found = larger(found, all(y[i]));
  return found;
}

// One block of weights into panels of COLUMNS columns, `depth` rows each: `rows` by `columns` numbers whose first
// belongs at (down, right), in whole vectors both ways, with zeros at the ends; turned: they lie column by column.
static void pack(REAL *out, long depth, long down, long right, const REAL *from, long stride, long rows, long columns,
                 long turned, long thread, long team) {
  const long tall = round_up(rows, LANES) / LANES;
  const long begin = share(tall, team, thread) * LANES, end = share(tall, team, thread + 1) * LANES;
  for (long j = 0; j < columns; j += LANES) {
    const long c = right + j, n = columns - j;
    REAL *to = out + (c / COLUMNS * depth + down) * COLUMNS + c % COLUMNS;
    if (!turned) {
      for (long i = begin; i < end; i++) *(V *)(to + i * COLUMNS) = i < rows ? load(from + i * stride + j, n) : all(0);
      continue;
    }
    for (long i = begin; i < end; i += LANES) {  // a square of a vector's length, turned
      V column[LANES];
      for (long l = 0; l < LANES; l++) column[l] = l < n ? load(from + (j + l) * stride + i, rows - i) : all(0);
      for (long r = 0; r < LANES; r++)
        for (long l = 0; l < LANES; l++) to[(i + r) * COLUMNS + l] = column[l][r];
    }
  }
}

// Rows [first, last) of `from` times packed weights, `depth` deep, into `columns` (whole vectors) of `to`; of a team that
// shares the rows, each thread makes some of the columns.
static void multiply(const Task *k, long first, long last, long from, long depth, const REAL *packed, long to,
                     long columns, long thread, long team) {
  const long panels = round_up(columns, COLUMNS) / COLUMNS;
  V products[MOST_ROWS(4) * 4];
  for (long c = share(panels, team, thread) * COLUMNS; c < share(panels, team, thread + 1) * COLUMNS; c += COLUMNS)
    for (long p = first, rows; p < last; p += rows) {
      long tiles = (last - p + MOST_ROWS(4) - 1) / MOST_ROWS(4);
      rows = (last - p + tiles - 1) / tiles;
      panel_product(rows, k->work + p * k->stride + from, k->stride, 1, 0, depth, packed + c * depth, products);
      for (long r = 0; r < rows; r++)
        for (long j = 0; j < 4 && c + j * LANES < columns; j++)
          *(V *)(k->work + (p + r) * k->stride + to + c + j * LANES) = products[r * 4 + j];
    }
}

// What a row finds in its memory: the sum of the entries, `weights` of each.
static void context(REAL *out, const REAL *weights, long count, const REAL *memory, long stride, long units) {
  for (long u = 0; u < units; u += 4 * LANES) {
    V sum[4] = {all(0), all(0), all(0), all(0)};
    if (units - u >= 4 * LANES)
      for (long j = 0; j < count; j++) {
        V weight = all(weights[j]);
        const REAL *entry = memory + j * stride + u;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) sum[i] += weight * *(const VU *)(entry + i * LANES);
      }
    else
      for (long j = 0; j < count; j++)
        for (int i = 0; i < 4 && u + i * LANES < units; i++)
          sum[i] += all(weights[j]) * load(memory + j * stride + u + i * LANES, units - u - i * LANES);
    for (int i = 0; i < 4 && u + i * LANES < units; i++) *(V *)(out + u + i * LANES) = sum[i];
  }
}

// How well each entry of a row's memory fits: its product with `query`.
static void fit(REAL *out, const REAL *query, long count, const REAL *memory, long stride, long units) {
  for (long j = 0; j < count; j++) {
    V even = all(0), odd = all(0);
    const REAL *entry = memory + j * stride;
    long u = 0;
    for (; u + 2 * LANES <= units; u += 2 * LANES) {
      even += *(const V *)(query + u) * *(const VU *)(entry + u);
      odd += *(const V *)(query + u + LANES) * *(const VU *)(entry + u + LANES);
    }
    for (; u < units; u += LANES) even += keep(*(const V *)(query + u), units - u, 0) * load(entry + u, units - u);
    out[j] = total(even + odd)[0];
  }
}
