/* Beam search, of which greedy search is a beam of one: see decoding/beam.py, whose result it has. */
static double divisor(double length) { return LENGTH_PENALTY == 0.0 ? 1.0 : exp_of(LENGTH_PENALTY * log_of(length)); }

/* Write from the state in hypotheses[0]; the tokens are left in m->written, `longest` of them at most. */
static int search(Memory *m, int32_t first, int longest) {
  int live = 1, finished = 0, length = 0, count = 0, now = 0;
  double best = 0.0;
  m->totals[0][0] = 0.0;
  m->last[0][0] = first;
  while (live) {
    int chosen = 0, going = 0, next = !now;
    for (int row = 0; row < live; row++) {
      float *log_probs = m->log_probs;
      step(m, m->last[now][row], m->hypotheses[now][row], log_probs);
#ifdef COPIED
      m->looked[row] = most_looked(m);
#endif
      for (int i = 0; i < NEVER_COUNT; i++) log_probs[NEVER[i]] = -INFINITE;
      if (length < MIN_LENGTH) log_probs[END_MARKER] = -INFINITE;
      for (int token = 0; token < TOKENS; token++) {
        const double value = m->totals[now][row] + (double)log_probs[token];
        int place = chosen;
        if (!(log_probs[token] > -INFINITE)) continue;
        if (chosen == BEAM && !(value > m->values[chosen - 1])) continue;
        while (place > 0 && value > m->values[place - 1]) place--;
        if (chosen < BEAM) chosen++;
        for (int i = chosen - 1; i > place; i--) {
          m->values[i] = m->values[i - 1];
          m->rows[i] = m->rows[i - 1];
          m->tokens[i] = m->tokens[i - 1];
        }
        m->values[place] = value;
        m->rows[place] = row;
        m->tokens[place] = token;
      }
    }
    length++;
    if (chosen > BEAM - finished) chosen = BEAM - finished;
    for (int i = 0; i < chosen; i++) {
      const int row = m->rows[i];
      const int32_t token = m->tokens[i];
#ifdef COPIED
      const int32_t noted = token == COPIED ? -1 - m->looked[row] : token;
#else
      const int32_t noted = token;
#endif
      if (token == END_MARKER || length == longest) {
        const double score = m->values[i] / divisor((double)length);
        if (!finished || score > best) {
          best = score;
          m->log_probability = m->values[i];
          count = token == END_MARKER ? length - 1 : length;
          m->ended = token == END_MARKER;
          for (int j = 0; j < length - 1; j++) m->written[j] = m->histories[now][row][j];
          m->written[length - 1] = noted;
        }
        finished++;
        continue;
      }
      for (int j = 0; j < length - 1; j++) m->histories[next][going][j] = m->histories[now][row][j];
      m->histories[next][going][length - 1] = noted;
      copy(m->hypotheses[next][going], m->hypotheses[now][row], STATE);
      m->totals[next][going] = m->values[i];
      m->last[next][going] = token;
      going++;
    }
    live = going;
    now = next;
    if (finished >= BEAM) break;
    if (finished && live && !(m->totals[now][0] / divisor((double)longest) > best)) break;
  }
  return count;
}
