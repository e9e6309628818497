/* What others call. */
const char *PUBLIC(error)(int error) {
  return error == NOT_UTF8  ? "not UTF-8"
         : error == HAS_NUL ? "a NUL character"
         : error == NO_ROOM ? "no room for the answer"
         : error == NO_LABEL ? "a class that training never saw"
                             : "longer than this model reads";
}

long PUBLIC(answer)(Memory *memory, const char *text, size_t length, char *answer, size_t room) {
  const uint8_t *bytes = (const uint8_t *)text;
  Output out;
  int error;
  if (length > MOST_BYTES) return TOO_LONG;
  error = check_text(bytes, length);
  if (error) return error;
  out.to = (uint8_t *)answer;
  out.room = room;
  out.used = 0;
  memory->number_count = 0;
  error = respond(memory, bytes, length, &out);
  if (error < 0) return error;
  return out.used > room ? NO_ROOM : (long)out.used;
}
