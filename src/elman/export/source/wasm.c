/* What a browser calls: one memory, one line in, one answer out. */
static Memory memory;
void *memset(void *to, int value, size_t count) { /* which compilers ask for themselves */
  uint8_t *bytes = to;
  while (count--) *bytes++ = (uint8_t)value;
  return to;
}
void *memcpy(void *restrict to, const void *restrict from, size_t count) {
  uint8_t *bytes = to;
  const uint8_t *given = from;
  while (count--) *bytes++ = *given++;
  return to;
}
static char line[MOST_BYTES + 1], answer[MOST_ANSWER];
char *model_line(void) { return line; }
char *model_answer(void) { return answer; }
double *model_numbers(void) { return memory.numbers; }
int model_number_count(void) { return memory.number_count; }
int model_tokens(void) { return memory.count; }
long model_respond(int length) { return PUBLIC(answer)(&memory, line, (size_t)length, answer, sizeof answer); }
#ifdef TRACED
float *model_attention(void) { return memory.attention; }
int model_looks(void) { return memory.look_count; }
#endif
