/* Words as they are written: where they stand, their letters, and the numbers of how they look. */
static int is_gap(uint32_t code) { return GAPS_ARE_BLANKS ? code == ' ' || code == 9 : is_space(code); }

static int note_words(Memory *m, const uint8_t *text, size_t length, int most) {
  size_t wrong, step, i = 0;
  uint32_t code;
  int count = 0;
  while (i < length) {
    step = character_at(text + i, length - i, &code, &wrong);
    if (!EACH_CHARACTER && is_gap(code)) {
      i += step;
      continue;
    }
    if (count == most) return TOO_LONG;
    m->spans[2 * count] = (uint32_t)i;
    for (i += step; !EACH_CHARACTER && i < length; i += step) {
      step = character_at(text + i, length - i, &code, &wrong);
      if (is_gap(code)) break;
    }
    m->spans[2 * count + 1] = (uint32_t)i;
    count++;
  }
  return count;
}

#ifdef READS_LETTERS
/* The letters of a word; of a long one the first and the last half of LONGEST. */
static void note_letters(Memory *m, const uint8_t *word, size_t length) {
  size_t wrong, step, total = 0, place = 0;
  uint32_t code;
  m->letter_count = 0;
  if (length == 5 && word[0] == '<' && word[1] == 'u' && word[2] == 'n' && word[3] == 'k' && word[4] == '>') {
    m->letters[m->letter_count++] = NO_LETTER;
    return;
  }
  for (size_t i = 0; i < length; i += step, total++) step = character_at(word + i, length - i, &code, &wrong);
  for (size_t i = 0; i < length; i += step, place++) {
    step = character_at(word + i, length - i, &code, &wrong);
    if (total > LONGEST_WORD && place >= LONGEST_WORD / 2 && place < total - LONGEST_WORD / 2) continue;
    m->letters[m->letter_count++] = find_token(&LETTERS_VOCABULARY, word + i, step, LETTER_UNKNOWN);
  }
}
#endif

#ifdef HAS_INDICATORS
#define FACTOR 1000003u
#define SPREAD 0x9E3779B97F4A7C15ull
#define INDICATORS 12

static void note_indicators(const int32_t *letters, int count, uint64_t *found) {
  uint64_t powers[LONGEST_WORD + 2], begun = 0, ended = 0;
  int changes = 0;
  powers[0] = 1;
  for (int i = 1; i < LONGEST_WORD + 2; i++) powers[i] = powers[i - 1] * FACTOR;
  for (int i = 0; i < INDICATORS; i++) found[i] = 0;
  for (int i = 0; i < count; i++) {
    const int32_t letter = letters[i];
    begun += LETTER_SMALL[letter] * powers[i];
    found[0] += LETTER_WRITTEN[letter] * powers[i];
    found[2] += LETTER_KINDS[letter] * powers[i];
    if (!i || LETTER_KINDS[letter] != LETTER_KINDS[letters[i - 1]])
      found[3] += LETTER_KINDS[letter] * powers[++changes];
    if (i < 4) {
      ended += LETTER_SMALL[letters[count - 1 - i]] * powers[i];
      found[4 + i] = begun;
      found[8 + i] = ended;
    }
  }
  found[1] = begun;
  for (int i = 0; i < INDICATORS; i++)
    if (found[i]) found[i] = (found[i] * FACTOR + (uint64_t)(i + 1)) * SPREAD;
}

/* Which row of a table a number belongs to, and whether it counts negatively; 0 where nothing is. */
static int hashed_row(uint64_t number, uint32_t mask, uint32_t *row) {
  const uint64_t high = number >> 63 ? ~(~(uint64_t)0 >> 29) : 0;
  const uint64_t mixed = (number ^ ((number >> 29) | high)) * SPREAD;
  *row = (uint32_t)(mixed >> 40) & mask;
  return !mixed ? 0 : mixed >> 63 ? -1 : 1;
}
#endif
