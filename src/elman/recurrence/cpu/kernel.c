// The engine's loops. Before this file stand `mathematics.c` and what `emit.py` generates for a cell:
//   forward_step(x, h, s, v, n, y, saved)   backward_step(x, s, v, n, y, saved, g, after, dx, dh, ds, dv)
//   forward_product, backward_product: some rows times a panel of weights
//
// A step of time is a small matrix product with the pointwise step as its epilogue, in both
// directions of time:
//   forward   state[t-1] . W   -> forward_step   -> state[t]
//   backward  dh[t+1] . W^T    -> backward_step  -> dh[t]
// so one product routine and two epilogues are all there is. Rows of the batch are independent: each
// thread takes some of them through all of time. Where rows are few, threads share the units instead
// and meet after each step.
//
// Sequences hold the real steps only, row after row: `offset` says where a row begins, `length` how
// many steps it has, and rows are visited longest first, so that the active ones are always a prefix.
INLINE long width(const Task *k) { return round_up(k->units, LANES); }
INLINE long panels(const Task *k, long blocks) { return round_up(k->units, blocks * LANES) / (blocks * LANES); }

// ---- weights in the order of the tiles ----
static void pack_forward_head(Task *k, long thread, long team) {
  const long H = k->units, all_panels = panels(k, FORWARD_BLOCKS);
  for (long panel = share(all_panels, team, thread); panel < share(all_panels, team, thread + 1); panel++) {
    REAL *out = k->packed + panel * H * FORWARD_COLUMNS * LANES;
    for (long i = 0; i < H; i++)
      for (int g = 0; g < PRODUCTS; g++)
        for (int j = 0; j < FORWARD_BLOCKS; j++, out += LANES) {
          long u = (panel * FORWARD_BLOCKS + j) * LANES;
          V w = u < H ? load(k->weight + (i * PRODUCTS + g) * H + u, H - u) : all(0);
          *(V *)out = w;
        }
  }
}

static void pack_backward_head(Task *k, long thread, long team) {
  enum { COLUMNS = BACKWARD_BLOCKS * LANES };
  const long H = k->units, depth = PRODUCTS * H, all_panels = panels(k, BACKWARD_BLOCKS);
  for (long panel = share(all_panels, team, thread); panel < share(all_panels, team, thread + 1); panel++) {
    REAL *out = k->packed + panel * depth * COLUMNS;
    long real = least(COLUMNS, H - panel * COLUMNS);
    for (long first = 0; first < depth; first += 16)
      for (long c = 0; c < COLUMNS; c++) {
        const REAL *from = k->weight + (panel * COLUMNS + c) * depth;
        for (long i = first; i < least(first + 16, depth); i++) out[i * COLUMNS + c] = c < real ? from[i] : 0;
      }
  }
}

// ---- heads: units in groups that are multiplied each by itself ----
// The task of one head: everything begins at its first unit; `groups` as for `operands`.
static Task of_head(const Task *k, long head, long groups) {
  Task own = *k;
  const long first = head * k->units, wide = width(k), rows = k->rows;
  const long panel = (groups == 1 ? FORWARD_BLOCKS : BACKWARD_BLOCKS) * LANES;
  REAL **moved[] = {&own.x, &own.saved, &own.d_x, &own.d_product, &own.operand};
  const REAL **read[] = {&own.given, &own.mask};
  for (int i = 0; i < 5; i++) if (*moved[i]) *moved[i] += first;
  for (int i = 0; i < 2; i++) if (*read[i]) *read[i] += first;
  for (int i = 0; i < VECTORS; i++) own.vector[i] += first;
  for (int i = 0; i < NOISE; i++) own.noise[i] += first;
  for (int f = 0; f < STATES; f++) {
    const REAL **from[] = {&own.initial[f], &own.d_sequence[f], &own.d_final[f]};
    REAL **to[] = {&own.final[f], &own.sequence[f], &own.d_initial[f]};
    for (int i = 0; i < 3; i++) {
      if (*from[i]) *from[i] += first;
      if (*to[i]) *to[i] += first;
    }
  }
  if (own.weight) own.weight += first * PRODUCTS * k->units;
  own.packed += head * PRODUCTS * k->units * round_up(k->units, panel);
  own.states += head * STATES * rows * wide;
  own.operands += head * 2 * rows * groups * wide;
  if (own.d_vector) own.d_vector += head * k->threads * VECTORS * wide;
  return own;
}

static void pack_forward(Task *k, long thread, long team) {
  for (long head = 0; head < k->heads; head++) {
    Task own = of_head(k, head, 1);
    pack_forward_head(&own, thread, team);
  }
}

static void pack_backward(Task *k, long thread, long team) {
  for (long head = 0; head < k->heads; head++) {
    Task own = of_head(k, head, PRODUCTS);
    pack_backward_head(&own, thread, team);
  }
}

// ---- one row, one vector of units, one step ----
// A saved value that takes the place of an input part costs no memory of its own.
INLINE REAL *saved_place(const Task *k, long at, int i) {
  return i < OVERLAID ? k->x + (at * INPUTS + i) * k->all_units
                      : k->saved + (at * (SAVED - OVERLAID) + i - OVERLAID) * k->all_units;
}
INLINE void gather(V *out, const REAL *base, int count, long H, long n) {
  for (int i = 0; i < count; i++) out[i] = load(base + i * H, n);
}

INLINE void forward_block(const Task *k, long p, long t, long u, const V *product, int stride) {
  const long H = k->all_units, n = k->units - u, at = place(k, p, t), wide = width(k);
  V x[INPUTS + 1], h[PRODUCTS + 1], s[STATES], v[VECTORS + 1], noise[NOISE + 1], y[STATES], saved[SAVED + 1];
  gather(x, k->x + at * INPUTS * H + u, INPUTS, H, n);
  for (int i = 0; i < PRODUCTS; i++)
    h[i] = product ? product[i * stride] : load(k->given + (at * PRODUCTS + i) * H + u, n);
  for (int i = 0; i < VECTORS; i++) v[i] = load(k->vector[i] + u, n);
  for (int i = 0; i < NOISE; i++) noise[i] = load(k->noise[i] + at * H + u, n);
  for (int f = 0; f < STATES; f++) s[f] = *(V *)(k->states + (f * k->rows + p) * wide + u);
  forward_step(x, h, s, v, noise, y, saved);
  for (int f = 0; f < STATES; f++) {
    *(V *)(k->states + (f * k->rows + p) * wide + u) = y[f];
    if (k->sequence[f]) store(k->sequence[f] + at * H + u, y[f], n);
  }
  if (k->training)
    for (int i = 0; i < SAVED; i++) store(saved_place(k, at, i) + u, saved[i], n);
  if (product) {
    V next = k->mask ? y[0] * load(k->mask + row_of(k, p) * H + u, n) : y[0];
    *(V *)(k->operands + (((t + 1) & 1) * k->rows + p) * wide + u) = next;
  }
}

INLINE void backward_block(const Task *k, long p, long t, long u, const V *product, REAL *d_vector) {
  const long H = k->all_units, n = k->units - u, at = place(k, p, t), wide = width(k), row = row_of(k, p);
  const long before = t ? place(k, p, t - 1) : row;
  V x[INPUTS + 1], s[STATES], v[VECTORS + 1], noise[NOISE + 1], y[STATES], saved[SAVED + 1], g[STATES];
  V dx[INPUTS + 1], dh[PRODUCTS + 1], ds[STATES], dv[VECTORS + 1];
  V mask = k->mask ? load(k->mask + row * H + u, n) : all(1);
  if (READS_PARTS) gather(x, k->x + at * INPUTS * H + u, INPUTS, H, n);
  for (int i = 0; i < VECTORS; i++) v[i] = load(k->vector[i] + u, n);
  for (int i = 0; i < NOISE; i++) noise[i] = load(k->noise[i] + at * H + u, n);
  for (int i = 0; i < SAVED; i++) saved[i] = load(saved_place(k, at, i) + u, n);
  for (int f = 0; f < STATES; f++) {
    s[f] = load((t ? k->sequence[f] : k->initial[f]) + before * H + u, n);
    y[f] = load(k->sequence[f] + at * H + u, n);
    g[f] = *(V *)(k->states + (f * k->rows + p) * wide + u);
    if (k->d_sequence[f]) g[f] += load(k->d_sequence[f] + at * H + u, n);
  }
  if (product) g[0] += mask * *product;
  backward_step(x, s, v, noise, y, saved, g, length_of(k, p) - 1 - t, dx, dh, ds, dv);
  for (int i = 0; i < INPUTS; i++) store(k->d_x + (at * INPUTS + i) * H + u, dx[i], n);
  for (int i = 0; i < PRODUCTS; i++) {
    if (!SHARED) store(k->d_product + (at * PRODUCTS + i) * H + u, dh[i], n);
    if (!k->given) *(V *)(k->operands + (((t & 1) * k->rows + p) * PRODUCTS + i) * wide + u) = dh[i];
  }
  for (int f = 0; f < STATES; f++) *(V *)(k->states + (f * k->rows + p) * wide + u) = ds[f];
  for (int i = 0; i < VECTORS; i++) *(V *)(d_vector + i * wide + u) += dv[i];
  if (k->operand) store(k->operand + (at + 1) * k->operand_stride - H + u, s[0] * mask, n);
}

// ---- all of time, for rows [first, last) and panels [from, to) ----
INLINE long tile_rows(long left, long most) {  // even tiles: 16 rows are 6 + 5 + 5
  long tiles = (left + most - 1) / most;
  return (left + tiles - 1) / tiles;
}

static void forward_part(Task *k, long first, long last, long from, long to, long team) {
  const long H = k->all_units, units = k->units, wide = width(k), begin = from * FORWARD_BLOCKS * LANES;
  const long end = least(to * FORWARD_BLOCKS * LANES, units);
  for (long p = first; p < last; p++)
    for (long u = begin; u < end; u += LANES) {
      const long row = row_of(k, p);
      for (int f = 0; f < STATES; f++)
        *(V *)(k->states + (f * k->rows + p) * wide + u) = load(k->initial[f] + row * H + u, units - u);
      if (PRODUCTS && !k->given) {
        V h = *(V *)(k->states + p * wide + u);
        *(V *)(k->operands + p * wide + u) = k->mask ? h * load(k->mask + row * H + u, units - u) : h;
      }
    }
#if PRODUCTS
  if (!k->given) {
    if (team > 1) meet(k, team);
    V products[MOST_ROWS(FORWARD_COLUMNS) * FORWARD_COLUMNS];
    for (long t = 0, active = last; t < k->steps; t++) {
      while (active > first && length_of(k, active - 1) <= t) active--;
      if (active == first) break;
      for (long panel = from; panel < to; panel++) {
        const REAL *weights = k->packed + panel * units * FORWARD_COLUMNS * LANES;
        for (long p = first, rows; p < active; p += rows) {
          rows = tile_rows(active - p, MOST_ROWS(FORWARD_COLUMNS));
          forward_product(rows, k->operands + ((t & 1) * k->rows + p) * wide, wide, 1, 0, units, weights, products);
          for (int j = 0; j < FORWARD_BLOCKS; j++) {
            long u = (panel * FORWARD_BLOCKS + j) * LANES;
            if (u >= units) break;
            for (long r = 0; r < rows; r++)
              forward_block(k, p + r, t, u, products + r * FORWARD_COLUMNS + j, FORWARD_BLOCKS);
          }
        }
      }
      if (team > 1) meet(k, team);
    }
  } else
#endif
    for (long p = first; p < last; p++)  // nobody waits for anybody; step by step memory is read as it lies
      for (long t = 0; t < length_of(k, p); t++)
        for (long u = begin; u < end; u += LANES) forward_block(k, p, t, u, 0, 0);
  for (int f = 0; f < STATES; f++)
    for (long p = first; p < last; p++)
      for (long u = begin; u < end; u += LANES)
        store(k->final[f] + row_of(k, p) * H + u, *(V *)(k->states + (f * k->rows + p) * wide + u), units - u);
}

static void backward_part(Task *k, long first, long last, long from, long to, long team, long thread) {
  const long H = k->all_units, units = k->units, wide = width(k), begin = from * BACKWARD_BLOCKS * LANES;
  const long end = least(to * BACKWARD_BLOCKS * LANES, units);
  REAL *d_vector = k->d_vector + thread * VECTORS * wide;
  for (int f = 0; f < STATES; f++)
    for (long p = first; p < last; p++)
      for (long u = begin; u < end; u += LANES)
        *(V *)(k->states + (f * k->rows + p) * wide + u) =
            k->d_final[f] ? load(k->d_final[f] + row_of(k, p) * H + u, units - u) : all(0);
#if PRODUCTS
  if (!k->given) {
    for (long p = first; p < last; p++)
      for (int i = 0; i < 2 * PRODUCTS; i++)
        for (long u = begin; u < end; u += LANES)
          *(V *)(k->operands + (((i & 1) * k->rows + p) * PRODUCTS + i / 2) * wide + u) = all(0);
    if (team > 1) meet(k, team);
    V products[MOST_ROWS(BACKWARD_BLOCKS) * BACKWARD_BLOCKS];
    for (long t = k->steps - 1, active = first; t >= -1; t--) {
      while (active < last && length_of(k, active) > t) active++;
      for (long panel = from; panel < to; panel++) {
        const REAL *weights = k->packed + panel * PRODUCTS * units * BACKWARD_BLOCKS * LANES;
        for (long p = first, rows; p < active; p += rows) {
          rows = tile_rows(active - p, MOST_ROWS(BACKWARD_BLOCKS));
          backward_product(rows, k->operands + (((t + 1) & 1) * k->rows + p) * PRODUCTS * wide, PRODUCTS * wide,
                           PRODUCTS, wide, units, weights, products);
          for (int j = 0; j < BACKWARD_BLOCKS; j++) {
            long u = (panel * BACKWARD_BLOCKS + j) * LANES;
            if (u >= units) break;
            for (long r = 0; r < rows; r++) {
              V *product = products + r * BACKWARD_BLOCKS + j;
              if (t >= 0) {
                backward_block(k, p + r, t, u, product, d_vector);
              } else {  // before the first step: what reaches the initial state
                V mask = k->mask ? load(k->mask + row_of(k, p + r) * H + u, units - u) : all(1);
                *(V *)(k->states + (p + r) * wide + u) += mask * *product;
              }
            }
          }
        }
      }
      if (team > 1) meet(k, team);
    }
  } else
#endif
    for (long p = first; p < last; p++)
      for (long t = length_of(k, p) - 1; t >= 0; t--)
        for (long u = begin; u < end; u += LANES) backward_block(k, p, t, u, 0, d_vector);
  for (int f = 0; f < STATES; f++)
    for (long p = first; p < last; p++)
      for (long u = begin; u < end; u += LANES)
        store(k->d_initial[f] + row_of(k, p) * H + u, *(V *)(k->states + (f * k->rows + p) * wide + u), units - u);
}

// Threads share rows; where these are fewer than threads, the heads.
INLINE long row_parts(const Task *k) { return k->rows >= k->threads ? k->threads : 1; }

static void forward_work(Task *k, long thread, long team) {
  const long all_panels = panels(k, FORWARD_BLOCKS), parts = row_parts(k);
  if (k->split) {
    forward_part(k, 0, k->rows, share(all_panels, team, thread), share(all_panels, team, thread + 1), team);
    return;
  }
  for (long item = thread; item < k->heads * parts; item += team) {
    Task own = of_head(k, item / parts, 1);
    const long part = item % parts;
    forward_part(&own, share(k->rows, parts, part), share(k->rows, parts, part + 1), 0, all_panels, 1);
  }
}

static void backward_work(Task *k, long thread, long team) {
  const long all_panels = panels(k, BACKWARD_BLOCKS), parts = row_parts(k);
  if (k->split) {
    backward_part(k, 0, k->rows, share(all_panels, team, thread), share(all_panels, team, thread + 1), team, thread);
    return;
  }
  for (long item = thread; item < k->heads * parts; item += team) {
    Task own = of_head(k, item / parts, PRODUCTS);
    const long part = item % parts;
    backward_part(&own, share(k->rows, parts, part), share(k->rows, parts, part + 1), 0, all_panels, 1, thread);
  }
}

// ---- one streaming step for few rows: weights are read once, where they lie ----
// Two gates at a time, for BLOCKS vectors of units from u on: sums stay in registers, and reads are as
// long as the layout allows.
INLINE void stream_gates(const int GATES, const int BLOCKS, const REAL *a, long count, const REAL *w, long row_stride,
                         long H, long n, V *out) {
  V sum[2 * 8];
#pragma GCC unroll 16
  for (int c = 0; c < GATES * BLOCKS; c++) sum[c] = all(0);
  for (long i = 0; i < count; i++, w += row_stride) {
    V value = all(a[i]);
#pragma GCC unroll 2
    for (int g = 0; g < GATES; g++)
#pragma GCC unroll 8
      for (int j = 0; j < BLOCKS; j++)
        sum[g * BLOCKS + j] += value * (BLOCKS > 1 ? (V) * (const VU *)(w + g * H + j * LANES) : load(w + g * H, n));
  }
#pragma GCC unroll 16
  for (int c = 0; c < GATES * BLOCKS; c++) out[c] = sum[c];
}

INLINE void stream_product(const int gates, const int BLOCKS, const REAL *a, long count, const REAL *weights, long H,
                           long u, V *out) {
  const REAL *w = weights + u;
  int g = 0;
  for (; g + 1 < gates; g += 2) stream_gates(2, BLOCKS, a, count, w + g * H, gates * H, H, H - u, out + g * BLOCKS);
  if (g < gates) stream_gates(1, BLOCKS, a, count, w + g * H, gates * H, H, H - u, out + g * BLOCKS);
}

INLINE void stream_units(const Task *k, const int BLOCKS, long row, long u) {
  const long H = k->units;
  V x[(INPUTS + 1) * 8], h[(PRODUCTS + 1) * 8];
  stream_product(INPUTS, BLOCKS, k->input + row * k->features, k->features, k->input_weight, H, u, x);
  if (PRODUCTS) stream_product(PRODUCTS, BLOCKS, k->initial[0] + row * H, H, k->weight, H, u, h);
  for (int j = 0; j < BLOCKS; j++, u += LANES) {
    long n = H - u;
    V xj[INPUTS + 1], hj[PRODUCTS + 1], s[STATES], v[VECTORS + 1], y[STATES], saved[SAVED + 1];
    for (int i = 0; i < INPUTS; i++) xj[i] = x[i * BLOCKS + j] + (k->bias ? load(k->bias + i * H + u, n) : all(0));
    for (int i = 0; i < PRODUCTS; i++) hj[i] = h[i * BLOCKS + j];
    for (int i = 0; i < VECTORS; i++) v[i] = load(k->vector[i] + u, n);
    for (int f = 0; f < STATES; f++) s[f] = load(k->initial[f] + row * H + u, n);
    forward_step(xj, hj, s, v, v, y, saved);
    for (int f = 0; f < STATES; f++) store(k->final[f] + row * H + u, y[f], n);
  }
}

static void stream_work(Task *k, long thread, long team) {
  const long H = k->units, chunk = 8 * LANES, chunks = round_up(H, chunk) / chunk;
  const long end = least(H, share(chunks, team, thread + 1) * chunk);
  for (long row = 0; row < k->rows; row++)
    for (long u = share(chunks, team, thread) * chunk; u < end;) {
      long whole = (H - u) / LANES;
      if (whole >= 8) stream_units(k, 8, row, u), u += 8 * LANES;
      else if (whole >= 4) stream_units(k, 4, row, u), u += 4 * LANES;
      else if (whole >= 2) stream_units(k, 2, row, u), u += 2 * LANES;
      else stream_units(k, 1, row, u), u += LANES;
    }
}

// ---- entries ----
void forward(Task *k, const void **openmp) {
  if (PRODUCTS && !k->given) spread(k, openmp, pack_forward);
  spread(k, openmp, forward_work);
}

void backward(Task *k, const void **openmp) {
  if (PRODUCTS && !k->given) spread(k, openmp, pack_backward);
  spread(k, openmp, backward_work);
}

void stream(Task *k, const void **openmp) { spread(k, openmp, stream_work); }

long lanes(void) { return LANES; }
