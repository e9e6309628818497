/* Words with their punctuation split off, and where the spaces between them are: see text/units/wordpunct.py.
   The habit of a token: bit 0 a space before it; 1-2 what follows it (0 none, 1 a space, 2 as before it, 3 turned);
   3 and 4 a mark for a space, or for none; 5 a quotation mark, whose number stands from bit 8 on; 6 it opens. */
typedef struct {
  int after, first;
  uint32_t open;
} Spacing;

/* A token comes, after a space or not: does it close what is open? */
static int take_token(Spacing *s, int32_t habit, int space) {
  const int after = (habit >> 1) & 3, closes = after == 3 && s->after && !space;
  s->after = after == 3 ? closes : after == 2 ? space || s->first : after;
  s->first = 0;
  return closes;
}

#ifdef JOINS_HABITS
/* Does a space stand before a token, the first of which is at place 0? */
static int space_before(Spacing *s, int32_t habit, int place) {
  const uint32_t own = habit & 32 ? 1u << ((habit >> 8) & 31) : 0u;
  int space = s->after && (habit & 1) && !(s->open & own);
  if (habit & 24) space = (habit >> 3) & 1;
  if (!place) space = 0;
  if (take_token(s, habit, space))
    s->open &= ~own;
  else
    s->open |= own;
  return space;
}
#endif

#ifdef CUTS_WORDPUNCT
/* The character at a place, and how many bytes it has: none at the end, where it is 0. */
static uint32_t code_at(const uint8_t *text, size_t length, size_t i, size_t *step) {
  size_t wrong;
  uint32_t code = 0;
  *step = i < length ? character_at(text + i, length - i, &code, &wrong) : 0;
  return code;
}

static int is_wordlike(uint32_t c) {
  if (c >= 128) return IN(WORDLIKE, c);
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
static int is_decimal(uint32_t c) { return c < 128 ? c >= '0' && c <= '9' : IN(DECIMAL, c); }
static int is_unspaced(uint32_t c) { return c > 0xE00 && IN(UNSPACED, c); }
static int is_apostrophe(uint32_t c) { return c == '\'' || c == 0x2019; }
static int is_picture(uint32_t c) { return (c >= 0x2190 && c <= 0x2BFF) || (c >= 0x1F000 && c <= 0x1FAFF); }
static int is_letter(uint32_t c) { return is_wordlike(c) && !is_unspaced(c); }
static int is_host(uint32_t c) { return c == '-' || is_wordlike(c); }
static int is_mailbox(uint32_t c) { return c == '.' || c == '+' || is_host(c); }
static int is_mark(uint32_t c) { return c >= 0x300 && IN(MARK, c); }

/* Where characters of a kind end. */
static size_t while_in(int (*kind)(uint32_t), const uint8_t *text, size_t length, size_t i) {
  size_t step;
  while (kind(code_at(text, length, i, &step)) && step) i += step;
  return i;
}

static int begins(const uint8_t *text, size_t length, size_t i, const char *with) {
  for (; *with; with++, i++)
    if (i >= length || text[i] != (uint8_t)*with) return 0;
  return 1;
}

/* Each of these: where such a token ends that begins at i; i if none does. */
static size_t address_end(const uint8_t *text, size_t length, size_t i) {
  const size_t more = begins(text, length, i, "https://")  ? 8
                      : begins(text, length, i, "http://") ? 7
                      : begins(text, length, i, "www.")    ? 4
                                                           : 0;
  size_t step, end = i;
  if (!more) return i;
  for (size_t j = i + more; j < length; j += step) {
    const uint32_t code = code_at(text, length, j, &step);
    if (code == '<' || code == '>' || code == '"') break;
    if (code == '/' || is_wordlike(code)) end = j + step;
  }
  return end;
}

static size_t mail_end(const uint8_t *text, size_t length, size_t i) {
  size_t at = while_in(is_mailbox, text, length, i), end, found = i;
  if (at == i || at >= length || text[at] != '@') return i;
  end = while_in(is_host, text, length, at + 1);
  if (end == at + 1) return i;
  while (end < length && text[end] == '.') {
    const size_t next = while_in(is_host, text, length, end + 1);
    if (next == end + 1) break;
    found = end = next;
  }
  return found;
}

static size_t tag_end(const uint8_t *text, size_t length, size_t i) {
  size_t start = i + 1, end;
  if (text[i] != '<') return i;
  if (start < length && text[start] == '/') start++;
  end = while_in(is_wordlike, text, length, start);
  return end > start && end < length && text[end] == '>' ? end + 1 : i;
}

static size_t initials_end(const uint8_t *text, size_t length, size_t i) {
  size_t step, end = i;
  int count = 0;
  for (;; count++) {
    const uint32_t code = code_at(text, length, end, &step);
    if (!is_wordlike(code) || is_decimal(code) || code == '_') break;
    if (end + step >= length || text[end + step] != '.') break;
    end += step + 1;
  }
  return count > 1 ? end : i;
}

static size_t number_end(const uint8_t *text, size_t length, size_t i) {
  size_t end = while_in(is_decimal, text, length, i), found = i;
  if (end == i) return i;
  while (end < length && (text[end] == '.' || text[end] == ',' || text[end] == ':')) {
    const size_t next = while_in(is_decimal, text, length, end + 1);
    if (next == end + 1) break;
    found = end = next;
  }
  return found;
}

static size_t letters_end(const uint8_t *text, size_t length, size_t i) {
  size_t step;
  while (is_letter(code_at(text, length, i, &step)) && step) i = while_in(is_mark, text, length, i + step);
  return i;
}

static size_t word_end(const uint8_t *text, size_t length, size_t i) {
  size_t step, end = letters_end(text, length, i);
  if (end == i) return i;
  while (is_apostrophe(code_at(text, length, end, &step))) {
    const size_t next = letters_end(text, length, end + step);
    if (next == end + step) break;
    end = next;
  }
  return end;
}

static size_t sign_end(const uint8_t *text, size_t length, size_t i) {
  size_t step, next;
  const uint32_t first = code_at(text, length, i, &step);
  if (begins(text, length, i, "...")) return i + 3;
  if (begins(text, length, i, "--")) return i + 2;
  if (first >= 0x1F1E6 && first <= 0x1F1FF) {
    const uint32_t second = code_at(text, length, i + step, &next);
    if (second >= 0x1F1E6 && second <= 0x1F1FF) return i + step + next;
  }
  i += step;
  if (!is_picture(first)) return while_in(is_mark, text, length, i);
  for (;;) {
    const uint32_t code = code_at(text, length, i, &step);
    if (code == 0xFE0F || (code >= 0x1F3FB && code <= 0x1F3FF)) {
      i += step;
    } else if (code == 0x200D && is_picture(code_at(text, length, i + step, &next))) {
      i += step + next;
    } else {
      return i;
    }
  }
}

/* Where the token ends that begins at i; is it a word, which may have apostrophes? */
static size_t piece_end(const uint8_t *text, size_t length, size_t i, int *word) {
  static size_t (*const kinds[5])(const uint8_t *, size_t, size_t) = {address_end, mail_end, tag_end, initials_end,
                                                                      number_end};
  size_t end, step;
  *word = 0;
  for (int kind = 0; kind < 5; kind++) {
    end = kinds[kind](text, length, i);
    if (end > i) return end;
  }
  if (is_unspaced(code_at(text, length, i, &step))) return while_in(is_mark, text, length, i + step);
  end = word_end(text, length, i);
  *word = end > i;
  return end > i ? end : sign_end(text, length, i);
}

static int32_t sign_habit(uint32_t code, int32_t other) {
  for (size_t i = 0; i < sizeof HABITS / sizeof HABITS[0]; i += 2)
    if (HABITS[i] == code) return (int32_t)HABITS[i + 1];
  return other;
}

static int32_t piece_habit(const uint8_t *piece, size_t length) {
  size_t step, end = length - 1;
  const uint32_t first = code_at(piece, length, 0, &step);
  uint32_t last;
  while (end && (piece[end] & 0xC0) == 0x80) end--;
  if (!end) {
    const int32_t known = sign_habit(first, -1);
    if (known >= 0) return known;
  }
  if (length == 2 && piece[0] == '-' && piece[1] == '-') return HABIT_LOOSE;
  last = code_at(piece, length, end, &step);
  if (is_apostrophe(first)) return is_apostrophe(last) ? HABIT_INNER : HABIT_CLOSING;
  if (is_apostrophe(last)) return HABIT_OPENING;
  if (is_unspaced(first)) return HABIT_INNER;
  if (is_wordlike(first) || (first == '<' && last == '>')) return HABIT_WORD;
  return sign_habit(first, HABIT_LOOSE);
}

/* Is a quotation mark open, after so many tokens? The last one of its kind tells. */
static int is_open(const uint8_t *text, const uint32_t *cuts, int count, const uint8_t *piece, size_t size) {
  while (count--) {
    const uint32_t *cut = cuts + 3 * count;
    size_t i = 0;
    if (!(cut[2] & 32u) || cut[1] - cut[0] != size) continue;
    while (i < size && text[cut[0] + i] == piece[i]) i++;
    if (i == size) return (cut[2] & 64u) != 0;
  }
  return 0;
}

/* Of each token its first byte, the byte after it, and its habit, with the mark that it needs; how many there are. */
static int cut_wordpunct(const uint8_t *text, size_t length, uint32_t *cuts, int most) {
  Spacing spacing = {0, 1, 0};
  size_t stop = 0, end, start, next, step;
  int count = 0, word;
  for (size_t i = next_word(text, length, 0, &stop); i < length; i = next_word(text, length, stop, &stop)) {
    int space = count > 0;
    for (; i < stop; i = end) {
      end = piece_end(text, stop, i, &word);
      word = word && code_at(text, stop, i, &step) < 0x250;
      for (start = i; start < end; start = next) { /* a word is cut at its apostrophes */
        const uint8_t *piece = text + start;
        int32_t habit;
        int expected, plain;
        next = end;
        for (size_t j = start + 1; word && j < end; j += step) {
          size_t letters = 0, more, after;
          if (!is_apostrophe(code_at(text, end, j, &step))) {
            if (!step) step = 1; /* inside of a character */
            continue;
          }
          for (after = j + step; after < end && !is_apostrophe(code_at(text, end, after, &more)); after += more)
            letters++;
          next = letters <= 2 ? j : j + step;
          break;
        }
        if (count == most) return TOO_LONG;
        habit = piece_habit(piece, next - start);
        expected = spacing.after && (habit & 1) &&
                   !((habit & 32) && is_open(text, cuts, count, piece, next - start));
        plain = space == expected && !begins(text, next, start, GLUED) && !begins(text, next, start, SPACED);
        if (!plain) habit |= space ? 8 : 16;
        if (!take_token(&spacing, habit, space)) habit |= 64;
        cuts[3 * count] = (uint32_t)start;
        cuts[3 * count + 1] = (uint32_t)next;
        cuts[3 * count++ + 2] = (uint32_t)habit;
        space = 0;
      }
    }
  }
  return count;
}

/* A token with its mark, as the vocabulary has it; how many bytes it is. */
static size_t spell_token(const uint8_t *text, const uint32_t *cut, uint8_t *to, size_t room) {
  Output out;
  const char *mark = cut[2] & 8u ? SPACED : cut[2] & 16u ? GLUED : "";
  out.to = to;
  out.room = room;
  out.used = 0;
  for (; *mark; mark++) put_byte(&out, (uint8_t)*mark);
  put_bytes(&out, text + cut[0], cut[1] - cut[0]);
  return out.used < room ? out.used : room;
}
#endif
