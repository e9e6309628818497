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
/* The same answer, and what happened on the way to it. */
long model_explain(int length) {
  long size;
  memory.tracing = 1;
  memory.moment = -1;
  memory.count = 0;
  size = model_respond(length);
  memory.tracing = 0;
  return size;
}
int32_t *model_ids(void) { return memory.ids; }
float *model_trace(int cell) { return trace_of(&memory, cell); }
#ifdef TRACED_STEPS
int model_steps(void) { return memory.written_count; }
int model_prompted(void) { return memory.prompted; }
int32_t *model_came(void) { return memory.came; }
float *model_chances(void) { return memory.chances; }
int32_t *model_top(void) { return memory.top; }
float *model_top_chances(void) { return memory.top_chances; }
#endif
#ifdef TRACED_LOOKS
float *model_attention(void) { return memory.attention; }
#endif
#ifdef TRACED_POOLING
float *model_attended(void) { return memory.attended; }
#endif
