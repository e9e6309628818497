/* What a browser calls: one memory, one line in, one answer out. */
static Memory memory;
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
