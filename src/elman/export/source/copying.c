/* A token that the vocabulary lacks is copied from the source, from where attention looks. */
static void note_spans(Memory *m, size_t length) {
  int fresh = 0, count = 0;
#ifdef CUTS_WORDPUNCT
  (void)length;
  for (; count < m->count; count++) {
    const uint32_t *cut = m->cuts + 3 * count;
    const size_t size = spell_token(m->text, cut, m->marked, sizeof m->marked);
    m->spans[2 * count] = cut[0];
    m->spans[2 * count + 1] = cut[1];
    m->fresh[count] = find_token(&COPY_VOCABULARY, m->marked, size, -1) < 0;
    fresh += m->fresh[count];
  }
#else
  size_t end = 0, next;
  for (size_t i = next_span(m->text, length, 0, &end); i < length; i = next) {
    m->spans[2 * count] = (uint32_t)i;
    m->spans[2 * count + 1] = (uint32_t)end;
    m->fresh[count] = find_token(&COPY_VOCABULARY, m->text + i, end - i, -1) < 0;
    fresh += m->fresh[count++];
    next = next_span(m->text, length, end, &end);
  }
#endif
  if (!fresh)
    for (int i = 0; i < count; i++) m->fresh[i] = 1;
}

static int32_t most_looked(const Memory *m) {
  int32_t best = -1;
  for (int32_t i = 0; i < m->count; i++)
    if (m->fresh[i] && (best < 0 || m->weights[i] > m->weights[best])) best = i;
  return best;
}
