/* Linear models of n-grams beside a network: see text/ngrams.py and models/shortcut.py. */
static uint32_t crc_of(const uint8_t *bytes, size_t count) {
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

static void note_ngram(Memory *m, uint32_t hash, int letters) {
  size_t low = letters ? NGRAM_WORDS : 0, high = letters ? NGRAM_COUNT : NGRAM_WORDS;
  const size_t end = high;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (NGRAM_HASHES[middle] < hash)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == end || NGRAM_HASHES[low] != hash) return;
  if (!m->ngram_often[low]++) m->ngram_places[m->ngram_found++] = (uint32_t)low;
}

/* One word in small letters: its pieces, and its letters with a blank at either end. */
static void note_word(Memory *m, const uint8_t *word, size_t length) {
  size_t wrong, step, start = 0, n = 0;
  uint32_t code;
  uint8_t *spelled = m->spelled;
  spelled[0] = ' ';
  for (size_t i = 0; i < length; i++) spelled[i + 1] = word[i];
  spelled[length + 1] = ' ';
  while (start < length) {
    size_t end = start;
    uint32_t hash;
    for (; end < length; end += step) {
      step = character_at(word + end, length - end, &code, &wrong);
      if (!IN(WORDLIKE, code)) break;
    }
    if (end == start) end += character_at(word + start, length - start, &code, &wrong);
    hash = crc_of(word + start, end - start);
    note_ngram(m, hash, 0);
    if (m->ngram_any) note_ngram(m, m->ngram_last * 1000003u + hash, 0);
    m->ngram_any = 1;
    m->ngram_last = hash;
    start = end;
  }
  for (size_t i = 0; i < length + 2; i += step) m->ngram_starts[n++] = (uint32_t)i, step = character_at(spelled + i, length + 2 - i, &code, &wrong);
  m->ngram_starts[n] = (uint32_t)(length + 2);
  for (size_t size = 1; size <= 5; size++)
    for (size_t i = 0; i + size <= n; i++) {
      const uint32_t first = m->ngram_starts[i], count = m->ngram_starts[i + size] - first;
      if (count == 1 && spelled[first] == ' ') continue;
      note_ngram(m, crc_of(spelled + first, count), 1);
    }
}

/* scores: of the network; afterwards log-probabilities of all models together. */
static void mix_shortcut(Memory *m, const uint8_t *text, size_t length, float *scores) {
  double squares[2] = {0.0, 0.0};
  size_t end = 0, wrong, step, chars = 0;
  uint32_t code;
  m->ngram_found = 0;
  m->ngram_any = 0;
  for (size_t i = 0; i < length; i += step, chars++) {
    if (chars == 20000) {
      length = i;
      break;
    }
    step = character_at(text + i, length - i, &code, &wrong);
  }
  for (size_t i = next_word(text, length, 0, &end); i < length; i = next_word(text, length, end, &end))
    note_word(m, m->small, lower_text(text + i, end - i, m->small, sizeof m->small));
  for (uint32_t i = 0; i < m->ngram_found; i++) {
    const uint32_t place = m->ngram_places[i];
    const double value = (1.0 + log_of((double)m->ngram_often[place])) * (double)NGRAM_RARITY[place];
    squares[place >= NGRAM_WORDS] += value * value;
  }
  copy(m->linear, NGRAM_BIAS, 2 * LABELS);
  for (uint32_t i = 0; i < m->ngram_found; i++) {
    const uint32_t place = m->ngram_places[i];
    const double value = (1.0 + log_of((double)m->ngram_often[place])) * (double)NGRAM_RARITY[place];
    const double norm = exp_of(0.5 * log_of(squares[place >= NGRAM_WORDS]));
    ngram_row(m, place);
    for (int k = 0; k < 2 * LABELS; k++) m->linear[k] += (float)(value / norm) * m->ngram_row[k];
    m->ngram_often[place] = 0;
  }
  log_softmax(scores, LABELS);
  log_softmax(m->linear, LABELS);
  log_softmax(m->linear + LABELS, LABELS);
  for (int k = 0; k < LABELS; k++)
    scores[k] = SHARE_NETWORK * scores[k] + SHARE_REGRESSION * m->linear[k] + SHARE_BAYES * m->linear[LABELS + k];
  log_softmax(scores, LABELS);
}
