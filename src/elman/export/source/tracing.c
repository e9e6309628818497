/* What a search found, step by step once more, from the state in m->begun: what was probable, where attention looked,
   and what the cells did. A prompt of so many tokens in m->ids is read first. */
static void trace_written(Memory *m, int32_t first, int prompt, int count, int ended) {
  const int steps = prompt + count + ended;
  int32_t token = first;
  m->prompted = prompt;
  m->written_count = steps < TRACED ? steps : TRACED;
  for (int t = 0; t < m->written_count; t++) {
    float *p = m->log_probs;
    m->moment = t;
    step(m, token, m->begun, p);
    token = t < prompt ? m->ids[t] : t < prompt + count ? m->written[t - prompt] : END_MARKER;
    m->came[t] = token;
#ifdef COPIED
    if (token < 0) token = COPIED;
#endif
    m->chances[t] = exponential(p[token]);
    for (int i = 0; i < TOP; i++) {
      int best = 0;
      for (int k = 1; k < TOKENS; k++) best = p[k] > p[best] ? k : best;
      m->top[t * TOP + i] = best;
      m->top_chances[t * TOP + i] = exponential(p[best]);
      p[best] = -INFINITE;
    }
#ifdef TRACED_LOOKS
    copy(m->attention + (size_t)t * (size_t)m->count, m->weights, m->count);
#endif
  }
  m->moment = -1;
}
