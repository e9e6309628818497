/* A token that the vocabulary lacks is copied from the source, from where attention looks. */
static void note_spans(Memory *m, size_t length) {
  size_t end = 0, next;
  int fresh = 0, count = 0;
  for (size_t i = next_span(m->text, length, 0, &end); i < length; i = next) {
    m->spans[2 * count] = (uint32_t)i;
    m->spans[2 * count + 1] = (uint32_t)end;
    m->fresh[count] = find_token(&COPY_VOCABULARY, m->text + i, end - i, -1) < 0;
    fresh += m->fresh[count++];
    next = next_span(m->text, length, end, &end);
  }
  if (!fresh)
    for (int i = 0; i < count; i++) m->fresh[i] = 1;
}

static int32_t most_looked(const Memory *m) {
  int32_t best = -1;
  for (int32_t i = 0; i < m->count; i++)
    if (m->fresh[i] && (best < 0 || m->weights[i] > m->weights[best])) best = i;
  return best;
}
