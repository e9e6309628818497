/* Texts: UTF-8 in, tokens out, and back. */
typedef struct {
  const uint8_t *letters;
  const uint32_t *starts, *slots;
  uint32_t mask;
} Vocabulary;

typedef struct {
  uint8_t *to;
  size_t room, used;
} Output;

static void put_byte(Output *out, int byte) {
  if (out->used < out->room) out->to[out->used] = (uint8_t)byte;
  out->used++;
}

static void put_bytes(Output *out, const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) put_byte(out, bytes[i]);
}

static void put_code(Output *out, uint32_t code) {
  if (code < 0x80) {
    put_byte(out, (int)code);
  } else if (code < 0x800) {
    put_byte(out, (int)(0xC0 | (code >> 6)));
    put_byte(out, (int)(0x80 | (code & 63)));
  } else if (code < 0x10000) {
    put_byte(out, (int)(0xE0 | (code >> 12)));
    put_byte(out, (int)(0x80 | ((code >> 6) & 63)));
    put_byte(out, (int)(0x80 | (code & 63)));
  } else {
    put_byte(out, (int)(0xF0 | (code >> 18)));
    put_byte(out, (int)(0x80 | ((code >> 12) & 63)));
    put_byte(out, (int)(0x80 | ((code >> 6) & 63)));
    put_byte(out, (int)(0x80 | (code & 63)));
  }
}

/* The bytes of the character that begins here, 0 where there is none: `*code` is what it is, and `*wrong` how
   many bytes of a character that is not complete there are. */
static size_t character_at(const uint8_t *text, size_t length, uint32_t *code, size_t *wrong) {
  const uint32_t first = text[0];
  uint32_t low = 0x80, high = 0xBF;
  size_t count, i;
  *wrong = 1;
  *code = 0;
  if (first < 0x80) {
    *code = first;
    return 1;
  }
  if (first < 0xC2 || first > 0xF4) return 0;
  count = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  *code = first & (0xFFu >> (count + 1));
  for (i = 1; i < count; i++, low = 0x80, high = 0xBF) {
    if (i >= length || text[i] < low || text[i] > high) {
      *wrong = i;
      return 0;
    }
    *code = (*code << 6) | (text[i] & 63u);
  }
  return count;
}

/* Is it a text: UTF-8 without NUL? */
static int check_text(const uint8_t *text, size_t length) {
  size_t wrong, step;
  uint32_t code;
  for (size_t i = 0; i < length; i += step) {
    step = character_at(text + i, length - i, &code, &wrong);
    if (!step) return NOT_UTF8;
    if (!code) return HAS_NUL;
  }
  return 0;
}

/* Put U+FFFD where an output is not UTF-8. */
static void repair_output(Output *out, size_t first, uint8_t *scratch, size_t room) {
  Output fixed;
  const size_t end = out->used < out->room ? out->used : out->room;
  size_t wrong, step;
  uint32_t code;
  fixed.to = scratch;
  fixed.room = room;
  fixed.used = 0;
  for (size_t i = first; i < end; i += step) {
    step = character_at(out->to + i, end - i, &code, &wrong);
    if (step) {
      put_bytes(&fixed, out->to + i, step);
    } else {
      put_code(&fixed, 0xFFFD);
      step = wrong;
    }
  }
  out->used = first;
  put_bytes(out, scratch, fixed.used < room ? fixed.used : room);
}

static int is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static int is_in(const uint32_t *ranges, size_t count, uint32_t code) {
  size_t low = 0, high = count / 2;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (code > ranges[2 * middle + 1])
      low = middle + 1;
    else
      high = middle;
  }
  return 2 * low + 1 < count && code >= ranges[2 * low] && code <= ranges[2 * low + 1];
}
#define IN(ranges, code) is_in(ranges, sizeof(ranges) / sizeof(ranges[0]), code)

#ifdef HAS_LOWER
/* Small letters; a capital sigma at the end of a word has a form of its own. */
static size_t lower_text(const uint8_t *text, size_t length, uint8_t *to, size_t room) {
  Output out;
  size_t wrong, step, ahead, size;
  uint32_t code, next;
  int cased = 0;
  out.to = to;
  out.room = room;
  out.used = 0;
  for (size_t i = 0; i < length; i += step) {
    size_t low = 0, high = LOWER_COUNT;
    step = character_at(text + i, length - i, &code, &wrong);
    if (code == 0x3A3) {
      int last = cased;
      for (ahead = i + step; last && ahead < length; ahead += size) {
        size = character_at(text + ahead, length - ahead, &next, &wrong);
        if (IN(IGNORED, next)) continue;
        last = !IN(CASED, next);
        break;
      }
      put_code(&out, last ? 0x3C2u : 0x3C3u);
      cased = 1;
      continue;
    }
    if (!IN(IGNORED, code)) cased = IN(CASED, code);
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (code > LOWER[3 * middle])
        low = middle + 1;
      else
        high = middle;
    }
    if (low < LOWER_COUNT && LOWER[3 * low] == code) {
      put_code(&out, LOWER[3 * low + 1]);
      if (LOWER[3 * low + 2]) put_code(&out, LOWER[3 * low + 2]);
    } else {
      put_code(&out, code);
    }
  }
  return out.used < room ? out.used : room;
}
#endif

/* The number of a text in a vocabulary, or what stands for an unknown one. */
static int32_t find_token(const Vocabulary *v, const uint8_t *text, size_t length, int32_t unknown) {
  uint32_t hash = 2166136261u, place;
  for (size_t i = 0; i < length; i++) hash = (hash ^ text[i]) * 16777619u;
  for (place = hash & v->mask; v->slots[place]; place = (place + 1) & v->mask) {
    const uint32_t number = v->slots[place] - 1;
    const uint8_t *own = v->letters + v->starts[number];
    size_t i = 0;
    if (v->starts[number + 1] - v->starts[number] != length) continue;
    while (i < length && own[i] == text[i]) i++;
    if (i == length) return (int32_t)number;
  }
  return unknown;
}

/* The next word between white space: its first byte, and the byte after it in `*end`; `length` if there is none. */
static size_t next_word(const uint8_t *text, size_t length, size_t i, size_t *end) {
  size_t wrong, step;
  uint32_t code;
  for (; i < length; i += step) {
    step = character_at(text + i, length - i, &code, &wrong);
    if (!is_space(code)) break;
  }
  for (*end = i; *end < length; *end += step) {
    step = character_at(text + *end, length - *end, &code, &wrong);
    if (is_space(code)) break;
  }
  return i;
}

static size_t next_character(const uint8_t *text, size_t length, size_t i, size_t *end) {
  size_t wrong;
  uint32_t code;
  *end = i < length ? i + character_at(text + i, length - i, &code, &wrong) : i;
  return i;
}

static size_t next_byte(const uint8_t *text, size_t length, size_t i, size_t *end) {
  (void)text;
  *end = i < length ? i + 1 : i;
  return i;
}

#ifdef CUTS_WORD
static int cut_words(const uint8_t *text, size_t length, const Vocabulary *v, int32_t unknown, int32_t *ids,
                     int most) {
  size_t end = 0;
  int count = 0;
  for (size_t i = next_word(text, length, 0, &end); i < length; i = next_word(text, length, end, &end)) {
    if (count == most) return TOO_LONG;
    ids[count++] = find_token(v, text + i, end - i, unknown);
  }
  return count;
}
#endif

#ifdef CUTS_CHARACTER
static int cut_characters(const uint8_t *text, size_t length, const Vocabulary *v, int32_t unknown, int32_t *ids,
                          int most) {
  size_t wrong, step;
  uint32_t code;
  int count = 0;
  for (size_t i = 0; i < length; i += step) {
    step = character_at(text + i, length - i, &code, &wrong);
    if (count == most) return TOO_LONG;
    ids[count++] = find_token(v, text + i, step, unknown);
  }
  return count;
}
#endif

#ifdef SEPARATOR
/* Features that end a text, each with the sign before it, are tokens of their own: where the first begins. */
static size_t features_start(const uint8_t *text, size_t length) {
  size_t start = length;
  for (;;) {
    size_t i = start;
    while (i > 0 && text[i - 1] != ' ' && text[i - 1] != SEPARATOR) i--;
    if (i == 0 || i == start) return start;
    start = i - 1;
    if (text[start] == ' ') return start;
  }
}

/* A character, or such a feature. */
static size_t next_feature(const uint8_t *text, size_t length, size_t i, size_t *end) {
  if (i < features_start(text, length)) return next_character(text, length, i, end);
  for (*end = i < length ? i + 1 : i; *end < length && text[*end] != ' ' && text[*end] != SEPARATOR;) ++*end;
  return i;
}

static int cut_features(const uint8_t *text, size_t length, const Vocabulary *v, int32_t unknown, int32_t *ids,
                        int most) {
  const size_t start = features_start(text, length);
  size_t end = 0;
  int count = cut_characters(text, start, v, unknown, ids, most);
  for (size_t i = start; count >= 0 && i < length; i = end) {
    if (count == most) return TOO_LONG;
    (void)next_feature(text, length, i, &end);
    ids[count++] = find_token(v, text + i, end - i, unknown);
  }
  return count;
}
#endif

#ifdef CUTS_BYTE
static int cut_bytes(const uint8_t *text, size_t length, const int32_t *numbers, int32_t *ids, int most) {
  if (length > (size_t)most) return TOO_LONG;
  for (size_t i = 0; i < length; i++) ids[i] = numbers[text[i]];
  return (int)length;
}
#endif

#ifdef HAS_PIECES
typedef struct {
  const int32_t *pairs; /* left, right, rank + 1, what they become */
  uint32_t mask;
  const int32_t *single, *numbers;
} Merges;
typedef struct PUBLIC(piece) Piece; /* number, rank with the next one, and the places of its neighbours, or -1 */
#define BLOCK_OF_PIECES 256
#define NO_RANK 0x7FFFFFFF

/* What a character is to the pattern that cuts a text before bytes are paired. */
static int piece_kind(uint32_t code) {
  return is_space(code) && !(code >= 28 && code <= 31) ? 0 : IN(LETTER, code) ? 1 : IN(NUMBER, code) ? 2 : 3;
}

static size_t contraction(const uint8_t *text, size_t length) {
  static const char *const endings[7] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (length < 2 || text[0] != '\'') return 0;
  for (int i = 0; i < 7; i++) {
    const char *own = endings[i];
    if (own[0] == (char)text[1] && (!own[1] || (length > 2 && own[1] == (char)text[2]))) return own[1] ? 3 : 2;
  }
  return 0;
}

/* How many bytes the next run has: letters, numbers or signs, with the space before them; or white space. */
static size_t run_length(const uint8_t *text, size_t length) {
  size_t wrong, step, i = contraction(text, length), last = 0;
  uint32_t code;
  int kind;
  if (i) return i;
  step = character_at(text, length, &code, &wrong);
  if (code == ' ' && length > 1) {
    (void)character_at(text + 1, length - 1, &code, &wrong);
    kind = piece_kind(code);
    if (kind) i = 1;
    else kind = 0;
  } else {
    kind = piece_kind(code);
  }
  for (; i < length; i += step) {
    step = character_at(text + i, length - i, &code, &wrong);
    if (piece_kind(code) != kind) break;
    last = step;
  }
  if (!kind && i < length && i > last) i -= last; /* the last space belongs to what follows */
  return i;
}

/* Where the rank and the result of merging two pieces are; the last entry, which has no rank, where they do not merge. */
static const int32_t *merge_of(const Merges *merges, const Piece *pieces, int32_t left) {
  const int32_t right = pieces[left].next;
  const uint32_t a = (uint32_t)pieces[left].number, b = right < 0 ? 0 : (uint32_t)pieces[right].number;
  uint32_t slot = ((a * 31337u + b) * 2654435761u) & merges->mask;
  for (; right >= 0 && merges->pairs[4 * slot + 2]; slot = (slot + 1) & merges->mask)
    if (merges->pairs[4 * slot] == (int32_t)a && merges->pairs[4 * slot + 1] == (int32_t)b)
      return merges->pairs + 4 * slot;
  return NULL;
}

/* The rank of a piece with the next one, and the first of the lowest ranks of its block. */
static void rank_piece(const Merges *merges, Piece *pieces, int32_t *lowest, int32_t i, int32_t count) {
  const int32_t *found = i < 0 || pieces[i].number < 0 ? NULL : merge_of(merges, pieces, i);
  const int32_t first = i / BLOCK_OF_PIECES * BLOCK_OF_PIECES;
  if (i < 0) return;
  pieces[i].rank = found ? found[2] : NO_RANK;
  lowest[i / BLOCK_OF_PIECES] = first;
  for (int32_t j = first + 1; j < first + BLOCK_OF_PIECES && j < count; j++)
    if (pieces[j].rank < pieces[lowest[i / BLOCK_OF_PIECES]].rank) lowest[i / BLOCK_OF_PIECES] = j;
}

/* Merge the two pieces of the lowest rank, of equals the first, until none is left that merge. */
static void merge_pieces(const Merges *merges, Piece *pieces, int32_t *lowest, int32_t count) {
  for (int32_t i = 0; i < count; i++) pieces[i].rank = NO_RANK;
  for (int32_t i = 0; i < count; i++) {
    const int32_t *found = merge_of(merges, pieces, i);
    pieces[i].rank = found ? found[2] : NO_RANK;
    if (i % BLOCK_OF_PIECES == 0 || pieces[i].rank < pieces[lowest[i / BLOCK_OF_PIECES]].rank)
      lowest[i / BLOCK_OF_PIECES] = i;
  }
  for (;;) {
    int32_t best = 0, gone;
    for (int32_t b = 0; b * BLOCK_OF_PIECES < count; b++)
      if (pieces[lowest[b]].rank < pieces[best].rank) best = lowest[b];
    if (pieces[best].rank == NO_RANK) return;
    gone = pieces[best].next;
    pieces[best].number = merge_of(merges, pieces, best)[3];
    pieces[best].next = pieces[gone].next;
    if (pieces[gone].next >= 0) pieces[pieces[gone].next].before = best;
    pieces[gone].number = -1;
    rank_piece(merges, pieces, lowest, gone, count);
    rank_piece(merges, pieces, lowest, best, count);
    rank_piece(merges, pieces, lowest, pieces[best].before, count);
  }
}

static int cut_pieces(const uint8_t *text, size_t length, const Merges *merges, int32_t *ids, Piece *pieces,
                      int32_t *lowest, int most) {
  int count = 0;
  size_t size;
  for (size_t i = 0; i < length; i += size) {
    int32_t parts;
    size = run_length(text + i, length - i);
    parts = (int32_t)size;
    for (int32_t j = 0; j < parts; j++) {
      pieces[j].number = merges->single[text[i + (size_t)j]];
      pieces[j].before = j - 1;
      pieces[j].next = j + 1 < parts ? j + 1 : -1;
    }
    merge_pieces(merges, pieces, lowest, parts);
    for (int32_t j = 0; j >= 0; j = pieces[j].next) {
      if (count == most) return TOO_LONG;
      ids[count++] = merges->numbers[pieces[j].number];
    }
  }
  return count;
}
#endif
