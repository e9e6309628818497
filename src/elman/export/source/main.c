/* Lines in, lines out. With --numbers, log-probabilities and the answer's bytes come first. */
#include <stdio.h>
#include <string.h>

static Memory memory;
static char line[MOST_BYTES + 2];
static char answer[MOST_ANSWER];

/* The next line without its end, and how long it is; -1 at the end; one more than MOST_BYTES if it is too long. */
static long read_line(FILE *file) {
  long length = 0;
  int c = getc(file);
  if (c == EOF) return -1;
  for (; c != EOF && c != '\n'; c = getc(file))
    if (length <= MOST_BYTES) line[length++] = (char)c;
  while (length && length <= MOST_BYTES && line[length - 1] == '\r') length--;
  return length;
}

int main(int count, char **arguments) {
  const int numbers = count > 1 && !strcmp(arguments[1], "--numbers");
  long length, place = 0, wrong = 0;
  if (count > 1 && !numbers) {
    fputs("usage: lines on stdin, answers on stdout; --numbers: log-probabilities and lengths before them\n", stderr);
    return 2;
  }
  while ((length = read_line(stdin)) >= 0) {
    const char *text = line;
    long used;
    place++;
    if (length >= 3 && length <= MOST_BYTES && !memcmp(text, "\xEF\xBB\xBF", 3)) {
      text += 3;
      length -= 3;
    }
    used = length > MOST_BYTES ? TOO_LONG : PUBLIC(answer)(&memory, text, (size_t)length, answer, sizeof answer);
    if (used < 0) {
      fprintf(stderr, "line %ld: %s\n", place, PUBLIC(error)((int)used));
      wrong++;
      used = 0;
    } else if (numbers) {
      for (int i = 0; i < memory.number_count; i++) printf("%s%.9g", i ? " " : "", memory.numbers[i]);
      printf("\t%ld\t", used);
    }
    fwrite(answer, 1, (size_t)used, stdout);
    putchar('\n');
    if (ferror(stdout)) return 2;
  }
  return wrong ? 3 : 0;
}
