/* Viterbi and marginals of a linear chain, in double precision; what is forbidden is very improbable. */
static void add_chain(Memory *m, int count) {
  const int K = LABELS;
  for (int t = 0; t < count; t++) {
    const float most = largest(m->scores + t * K, K);
    for (int k = 0; k < K; k++) m->chain[t * K + k] = (double)(m->scores[t * K + k] - most);
  }
}

static void decode_chain(Memory *m, int count) {
  const int K = LABELS;
  double best[LABELS], next[LABELS];
  int tag = 0;
  for (int k = 0; k < K; k++) best[k] = (double)CHAIN_START[k] + m->chain[k] + (double)CHAIN_BIAS[k];
  for (int t = 1; t < count; t++) {
    double top = best[0];
    for (int k = 1; k < K; k++) top = best[k] > top ? best[k] : top;
    for (int k = 0; k < K; k++) {
      int from = 0;
      double most = best[0] - top + (double)CHAIN_STEPS[k];
      for (int j = 1; j < K; j++) {
        const double value = best[j] - top + (double)CHAIN_STEPS[j * K + k];
        if (value > most) {
          most = value;
          from = j;
        }
      }
      m->pointers[t * K + k] = (uint16_t)from;
      next[k] = most + m->chain[t * K + k] + (double)CHAIN_BIAS[k];
    }
    for (int k = 0; k < K; k++) best[k] = next[k];
  }
  for (int k = 1; k < K; k++)
    if (best[k] + (double)CHAIN_END[k] > best[tag] + (double)CHAIN_END[tag]) tag = k;
  for (int t = count - 1; t >= 0; t--) {
    m->tags[t] = tag;
    if (t) tag = m->pointers[t * K + tag];
  }
}

static double log_sum(const double *x, int count) {
  double most = x[0], total = 0.0;
  for (int i = 1; i < count; i++) most = x[i] > most ? x[i] : most;
  for (int i = 0; i < count; i++) total += exp_of(x[i] - most);
  return most + log_of(total);
}

/* log-marginals into m->chain */
static void marginalise(Memory *m, int count) {
  const int K = LABELS;
  double here[LABELS], back[LABELS], now[LABELS];
  for (int t = 0; t < count; t++)
    for (int k = 0; k < K; k++) {
      for (int j = 0; t && j < K; j++) here[j] = m->forward[(t - 1) * K + j] + (double)CHAIN_STEPS[j * K + k];
      m->forward[t * K + k] = m->chain[t * K + k] + (t ? log_sum(here, K) : (double)CHAIN_START[k]);
    }
  for (int k = 0; k < K; k++) back[k] = (double)CHAIN_END[k];
  for (int t = count - 1; t >= 0; t--) {
    double total;
    for (int k = 0; k < K; k++) now[k] = m->forward[t * K + k] + back[k];
    total = log_sum(now, K);
    for (int k = 0; k < K; k++) here[k] = m->chain[t * K + k] + back[k];
    for (int k = 0; k < K; k++) m->chain[t * K + k] = now[k] - total;
    for (int j = 0; t && j < K; j++) {
      for (int k = 0; k < K; k++) now[k] = (double)CHAIN_STEPS[j * K + k] + here[k];
      back[j] = log_sum(now, K);
    }
  }
}
