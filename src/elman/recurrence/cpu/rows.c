// What every loop over rows and steps has: loads and stores, places, threads. A `Task` stands before it.
#include <sched.h>

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);
typedef int (*Count)(void);
typedef struct { Task *task; Count thread, team; void (*work)(Task *, long, long); } Job;

INLINE long least(long a, long b) { return a < b ? a : b; }
INLINE long round_up(long n, long unit) { return (n + unit - 1) / unit * unit; }

// ---- loads and stores; n < LANES at the end of a row ----
#if defined(__AVX512F__)
#define FIRST(n) ((1u << (n)) - 1)
INLINE V part_load(const REAL *p, long n) {
#if DOUBLE
  return (V)_mm512_maskz_loadu_pd(FIRST(n), p);
#else
  return (V)_mm512_maskz_loadu_ps(FIRST(n), p);
#endif
}
INLINE void part_store(REAL *p, V y, long n) {
#if DOUBLE
  _mm512_mask_storeu_pd(p, FIRST(n), (__m512d)y);
#else
  _mm512_mask_storeu_ps(p, FIRST(n), (__m512)y);
#endif
}
#else
INLINE V part_load(const REAL *p, long n) {
  V y = {0};
  memcpy(&y, p, (size_t)n * sizeof(REAL));
  return y;
}
INLINE void part_store(REAL *p, V y, long n) { memcpy(p, &y, (size_t)n * sizeof(REAL)); }
#endif
INLINE V load(const REAL *p, long n) { return n >= LANES ? (V) * (const VU *)p : part_load(p, n); }
INLINE void store(REAL *p, V y, long n) {
  if (n >= LANES) *(VU *)p = y;
  else part_store(p, y, n);
}

// ---- rows and places ----
INLINE long row_of(const Task *k, long p) { return k->row ? k->row[p] : p; }
INLINE long length_of(const Task *k, long p) { return k->length ? k->length[p] : k->steps; }
INLINE long place(const Task *k, long p, long t) {
  long begin = k->offset ? k->offset[p] : p * k->steps;
  return begin + (k->reverse ? length_of(k, p) - 1 - t : t);
}
INLINE long share(long total, long parts, long part) {  // where the part begins, sizes differ by one
  return part * (total / parts) + least(part, total % parts);
}

// ---- threads that share rows meet here ----
static void meet(Task *k, long team) {
  long phase = __atomic_load_n(&k->phase, __ATOMIC_RELAXED);
  if (__atomic_add_fetch(&k->arrived, 1, __ATOMIC_ACQ_REL) == team) {
    __atomic_store_n(&k->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&k->phase, phase + 1, __ATOMIC_RELEASE);
    return;
  }
  for (int spins = 0; __atomic_load_n(&k->phase, __ATOMIC_ACQUIRE) == phase; spins++) {
    if (spins > 4000) sched_yield();  // the other thread has lost its core: give it ours
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#endif
  }
}

// ---- threads ----
static void take_part(void *argument) {
  Job *job = argument;
  job->work(job->task, job->thread(), job->team());
}

static void spread(Task *k, const void **openmp, void (*work)(Task *, long, long)) {
  if (k->threads > 1 && openmp[0]) {
    Job job = {k, (Count)openmp[1], (Count)openmp[2], work};
    ((Parallel)openmp[0])(take_part, &job, (unsigned)k->threads, 0);
  } else {
    work(k, 0, 1);
  }
}
