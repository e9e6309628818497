"""Texts as C: how a line is cut into tokens, looked up in a vocabulary, and put together again."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from elman.errors import ExportError
from elman.export.program import Program, array_text
from elman.export.program import source as read_source
from elman.tasks.seq2seq_defaults import SEPARATORS, ending_features
from elman.text.fields import TextField
from elman.text.units.byte import VALUES
from elman.text.units.wordpunct import (
    CLOSING,
    GLUED,
    HABITS,
    INNER,
    LOOSE,
    OPENING,
    QUOTE,
    SPACED,
    WORD,
    Habit,
    habit_of,
    is_mark,
    split_mark,
    unspaced,
)
from elman.text.vocabulary import UNKNOWN

CHARACTERS = range(sys.maxunicode + 1)
UNITS = ("word", "wordpunct", "character", "byte", "bpe")
BY_NUMBER = ("byte", "bpe")  # units whose tokens are found without looking at how they are spelt
COPIED = {"word": "next_word", "character": "next_character", "byte": "next_byte", "wordpunct": ""}
AFTER = {"none": 0, "space": 1, "same": 2, "turned": 3}
QUOTES = "\"'`´"
SPELL = "spell_token(text, m->cuts + 3 * t, m->marked, sizeof m->marked)"


def check_field(field: TextField, name: str) -> None:
    """Refuse a way of reading texts that a program does not have."""
    if field.unit_name not in UNITS:
        raise ExportError(
            f"{name}: the unit {field.unit_name!r} cannot be exported; known: {', '.join(UNITS)}"
        )
    if field.settings.unit_options:
        raise ExportError(f"{name}: text.unit_options cannot be exported")
    if field._remove is not None:
        raise ExportError(f"{name}: text.remove is a regular expression, which cannot be exported")
    if field.whole and separator_of(field) is None:
        raise ExportError(
            f"{name}: text.source.whole is a regular expression of your own, which cannot be exported"
        )


def separator_of(field: TextField) -> str | None:
    """What parts the features that end every text, where ``whole`` is the expression that training chose."""
    if field.unit_name != "character" or field.settings.lowercase:
        return None
    return next((one for one in SEPARATORS if field.whole == ending_features(one)), None)


def define_vocabulary(program: Program, name: str, tokens: Sequence[str]) -> None:
    """Tables by which ``find_token`` finds a text among the tokens."""
    texts = [token.encode() for token in tokens]
    size = 4
    while size < 2 * len(texts):
        size *= 2
    slots = np.zeros(size, np.int64)
    for number, text in enumerate(texts, 1):
        place = hashed(text) % size
        while slots[place]:
            place = (place + 1) % size
        slots[place] = number
    starts = np.cumsum([0, *map(len, texts)])
    program.array("uint8_t", f"{name}_LETTERS", list(b"".join(texts)))
    program.array("uint32_t", f"{name}_STARTS", starts)
    program.array("uint32_t", f"{name}_SLOTS", slots)
    program.tables.append(
        f"static const Vocabulary {name} = {{{name}_LETTERS, {name}_STARTS, {name}_SLOTS, {size - 1}u}};"
    )


def hashed(text: bytes) -> int:
    """FNV-1a, as ``find_token`` computes it."""
    value = 2166136261
    for byte in text:
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def define_reader(program: Program, field: TextField, name: str, most: int) -> None:
    """``NAME_tokens(m, text, length, ids)``: the numbers of a line's tokens, or an error."""
    if field.unit_name not in BY_NUMBER:
        define_vocabulary(program, f"{name.upper()}_VOCABULARY", field.vocabulary.tokens)
    define_classes(program, lower=bool(field.settings.lowercase), pieces=field.unit_name == "bpe")
    unknown = field.vocabulary.index.get(UNKNOWN, -1)
    kind, upper = field.unit_name, name.upper()
    program.tables.append(f"#define {upper}_UNKNOWN ({unknown})")
    lines = []
    if field.settings.lowercase:
        lines += ["length = lower_text(text, length, m->text, sizeof m->text);", "text = m->text;"]
    if kind == "bpe":
        _define_merges(program, field, name)
        room = (2 if field.settings.lowercase else 1) * max(4096, 64 * most) + 16
        program.fields["pieces"] = (
            f"struct NAME_piece {{ int32_t number, rank, before, next; }} pieces[{room}];"
        )
        program.fields["lowest"] = f"int32_t lowest[{room // 256 + 1}];"
        body = f"cut_pieces(text, length, &{upper}_MERGES, ids, m->pieces, m->lowest, {most})"
    elif kind == "wordpunct":
        lines += define_cuts(program, most)
        token = f"find_token(&{upper}_VOCABULARY, m->marked, size, {unknown})"
        lines += [
            "for (int t = 0; t < count; t++) {",
            f"  const size_t size = {SPELL};",
            f"  ids[t] = {token};",
            "}",
        ]
        body = "count"
    elif kind == "byte":
        _define_bytes(program, field, name)
        body = f"cut_bytes(text, length, {upper}_BYTES, ids, {most})"
    else:
        function = "cut_words" if kind == "word" else "cut_features" if field.whole else "cut_characters"
        body = f"{function}(text, length, &{upper}_VOCABULARY, {unknown}, ids, {most})"
    program.flags.add(f"CUTS_{kind.upper()}")
    if field.whole:
        program.unicode.append(f"#define SEPARATOR '{separator_of(field)}'")
    if body != "count":
        lines += [f"count = {body};"]
    if field.reverse:
        lines += ["for (int i = 0; i < count / 2; i++) {", "  const int32_t kept = ids[i];"]
        lines += ["  ids[i] = ids[count - 1 - i];", "  ids[count - 1 - i] = kept;", "}"]
    program.define(
        f"static int {name}_tokens(Memory *m, const uint8_t *text, size_t length, int32_t *ids)",
        ["int count;", "(void)m;", *lines, "return count;"],
    )


def define_cuts(program: Program, most: int) -> list[str]:
    """What words with their punctuation split are read by; statements that cut a text into ``m->cuts``."""
    if "CUTS_WORDPUNCT" not in program.flags:
        program.flags.add("CUTS_WORDPUNCT")
        define_wordlike(program)
        signs = [
            n
            for piece, one in HABITS.items()
            if len(piece) == 1
            for n in (ord(piece), habit_bits(piece, one))
        ]
        tables = {"DECIMAL": ranges(str.isdecimal), "MARK": ranges(is_mark), "HABITS": signs}
        tables["UNSPACED"] = ranges(is_unspaced)
        program.unicode += [array_text("uint32_t", name, table) for name, table in tables.items()]
        usual = {"WORD": WORD, "CLOSING": CLOSING, "OPENING": OPENING, "LOOSE": LOOSE, "INNER": INNER}
        program.unicode += [f"#define HABIT_{name} {habit_bits('', one)}" for name, one in usual.items()]
        for name, mark in (("SPACED", SPACED), ("GLUED", GLUED)):
            spelt = "".join(f"\\{byte:o}" for byte in mark.encode())
            program.unicode.append(f'#define {name} "{spelt}"')
        program.fields["cuts"] = f"uint32_t cuts[{3 * most}];"
        program.fields["marked"] = f"uint8_t marked[{2 * max(4096, 64 * most) + 32}];"
    return [f"count = cut_wordpunct(text, length, m->cuts, {most});"]


def habit_bits(piece: str, habit: Habit) -> int:
    """A habit as wordpunct.c has it; marks that may close what they opened are told apart by numbers."""
    bits = int(habit.before) | AFTER[habit.after] << 1
    return bits | (32 | QUOTES.find(piece[0]) << 8 if habit is QUOTE else 0)


def define_copying(program: Program, source: TextField, target: TextField, most: int, name: str) -> None:
    """What a target needs to copy tokens of its source, where both are words or both are letters."""
    if source.unit_name != target.unit_name or source.unit_name not in COPIED:
        raise ExportError(
            f"decoding.copy_unknown between {source.unit_name} and {target.unit_name} cannot be exported; "
            "switch it off with --set decoding.copy_unknown=false"
        )
    if bool(source.settings.lowercase) != bool(target.settings.lowercase):
        raise ExportError("decoding.copy_unknown is exported where both sides have the same case")
    program.copies = True
    program.fields["spans"] = f"uint32_t spans[{2 * most}];"
    program.fields["fresh"] = f"uint8_t fresh[{most}];"
    define_vocabulary(program, "COPY_VOCABULARY", target.vocabulary.tokens)
    unit = "next_feature" if source.whole else COPIED[source.unit_name]
    program.tables += [f"#define next_span {unit}"] if unit else []
    program.tables += [f"#define COPIED {target.vocabulary.id(UNKNOWN)}"]
    program.functions.append(read_source("copying.c"))
    program.longest_text = max(program.longest_text, 256 if "word" in source.unit_name else 4)


def _define_bytes(program: Program, field: TextField, name: str) -> None:
    unknown = field.vocabulary.index.get(UNKNOWN, -1)
    numbers = [field.vocabulary.index.get(f"<0x{byte:02X}>", unknown) for byte in range(256)]
    program.array("int32_t", f"{name.upper()}_BYTES", numbers)


def _define_merges(program: Program, field: TextField, name: str) -> None:
    """Merges as pairs of numbers of the tokenizer's own vocabulary, found by a hash; each has its rank."""
    saved = json.loads(field.unit.tokenizer.to_str())["model"]  # type: ignore[attr-defined]
    numbers: dict[str, int] = saved["vocab"]
    merges = [tuple(one) if isinstance(one, list) else tuple(one.split(" ")) for one in saved["merges"]]
    size = 4
    while size < 2 * len(merges):
        size *= 2
    table = np.zeros((size, 4), np.int64)  # left, right, rank + 1, what they become
    for rank, (left, right) in enumerate(merges):
        a, b = numbers[left], numbers[right]
        place = ((a * 31337 + b) * 2654435761 & 0xFFFFFFFF) % size
        while table[place, 2]:
            place = (place + 1) % size
        table[place] = a, b, rank + 1, numbers[left + right]
    upper = name.upper()
    program.array("int32_t", f"{upper}_PAIRS", table.reshape(-1))
    bytes_ = byte_spelling()
    program.array("int32_t", f"{upper}_SINGLE", [numbers[bytes_[byte]] for byte in range(256)])
    unknown = field.vocabulary.index.get(UNKNOWN, -1)
    ids = [-1] * (max(numbers.values()) + 1)
    for token, number in numbers.items():
        ids[number] = field.vocabulary.index.get(token, unknown)
    program.array("int32_t", f"{upper}_NUMBERS", ids)
    program.tables.append(
        f"static const Merges {upper}_MERGES = "
        f"{{{upper}_PAIRS, {size - 1}u, {upper}_SINGLE, {upper}_NUMBERS}};"
    )


def byte_spelling() -> list[str]:
    """The printable character that stands for each byte in byte-pair encoding."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte if byte in plain else next(other)) for byte in range(256)]


def token_bytes(field: TextField, tokens: Sequence[str]) -> list[bytes]:
    """What each token is in an output."""
    if field.unit_name == "byte":
        return [VALUES.get(token) or token.encode() for token in tokens]
    if field.unit_name == "bpe":
        spelt = {character: byte for byte, character in enumerate(byte_spelling())}
        return [
            bytes(spelt[c] for c in token) if all(c in spelt for c in token) else token.encode()
            for token in tokens
        ]
    if field.unit_name == "wordpunct":
        return [split_mark(token)[1].encode() for token in tokens]
    return [token.encode() for token in tokens]


def define_joiner(
    program: Program, field: TextField, name: str, texts: Mapping[int, str] | None = None
) -> None:
    """``NAME_join(m, ids, count, out)``: the text that tokens stand for; ``texts``: of some, another one."""
    spelt = [*field.vocabulary.tokens]
    for number, text in (texts or {}).items():
        spelt[number] = text
    written = token_bytes(field, spelt)
    upper = name.upper()
    program.array("uint8_t", f"{upper}_TEXT", list(b"".join(written)))
    program.array("uint32_t", f"{upper}_TEXT_STARTS", np.cumsum([0, *map(len, written)]))
    kind = field.unit_name
    walk = "count - 1 - i" if field.reverse else "i"
    lines = ["for (int i = 0; i < count; i++) {", f"  const int32_t id = ids[{walk}];"]
    if kind == "word":
        lines.append("  if (i) put_byte(out, ' ');")
    if kind == "wordpunct":
        _define_habits(program, spelt, upper)
        lines.insert(0, "Spacing spacing = {0, 1, 0};")
        program.flags.add("JOINS_HABITS")
        habit = f"{upper}_HABITS[id]"
        if program.copies:
            habit = f"id < 0 ? (int32_t)m->cuts[3 * (-1 - id) + 2] : {habit}"
        lines.append(f"  if (space_before(&spacing, {habit}, i)) put_byte(out, ' ');")
    if program.copies:
        lines.append("  if (id < 0) {")
        lines.append("    const uint32_t *span = m->spans + 2 * (-1 - id);")
        lines += ["    put_bytes(out, m->text + span[0], span[1] - span[0]);", "    continue;", "  }"]
    lines.append(
        f"  put_bytes(out, {upper}_TEXT + {upper}_TEXT_STARTS[id], "
        f"{upper}_TEXT_STARTS[id + 1] - {upper}_TEXT_STARTS[id]);"
    )
    lines.append("}")
    if kind in ("byte", "bpe"):
        lines.append("repair_output(out, start, m->repaired, sizeof m->repaired);")
        program.repairs = True
        room = 3 * program.most_written * max(map(len, written)) + 16
        program.fields["repaired"] = f"uint8_t repaired[{room}];"
    program.longest_text = max([program.longest_text, *map(len, written)])
    head = ["const size_t start = out->used;", "(void)m, (void)start;"]
    program.define(
        f"static void {name}_join(Memory *m, const int32_t *ids, int count, Output *out)", [*head, *lines]
    )


def _define_habits(program: Program, tokens: Sequence[str], upper: str) -> None:
    """Of each token where its spaces are: bits as ``space_before`` reads them."""
    found = []
    for token in tokens:
        mark, piece = split_mark(token)
        found.append(habit_bits(piece, habit_of(piece)) | (8 if mark == SPACED else 16 if mark else 0))
    program.array("int32_t", f"{upper}_HABITS", found)


@cache
def ranges(of: Callable[[str], bool]) -> Sequence[int]:
    """First and last code points of characters of a kind, one after the other."""
    found: list[int] = []
    for code in CHARACTERS:
        if of(chr(code)):
            if found and found[-1] == code - 1:
                found[-1] = code
            else:
                found += [code, code]
    return found


def is_wordlike(character: str) -> bool:
    return character.isalnum() or character == "_"


def is_unspaced(character: str) -> bool:
    return unspaced().match(character) is not None


def is_cased(character: str) -> bool:
    """Does a sigma after it stand at the end of a word?"""
    return (character + "Σ").lower()[-1] == "ς"


def is_ignored(character: str) -> bool:
    """Does it stand between letters without parting them?"""
    return ("AΣ" + character + "A").lower()[1] == "σ" and not is_cased(character)


def is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] == "L"


def is_number(character: str) -> bool:
    return unicodedata.category(character)[0] == "N"


@cache
def lowered() -> Sequence[tuple[int, list[int]]]:
    """The characters that have small letters, with these."""
    return [(c, [*map(ord, chr(c).lower())]) for c in CHARACTERS if chr(c).lower() != chr(c)]


def define_wordlike(program: Program) -> None:
    """A table of what belongs to words in regular expressions."""
    if "HAS_WORDLIKE" not in program.flags:
        program.flags.add("HAS_WORDLIKE")
        program.unicode.append(array_text("uint32_t", "WORDLIKE", ranges(is_wordlike)))


def define_classes(program: Program, *, lower: bool, pieces: bool) -> None:
    """Tables of Unicode that a reader needs, each once."""
    if lower and "HAS_LOWER" not in program.flags:
        program.flags.add("HAS_LOWER")
        changed = lowered()
        table = [number for code, low in changed for number in (code, low[0], low[1] if len(low) > 1 else 0)]
        assert all(len(low) < 3 for _, low in changed)
        program.unicode.append(array_text("uint32_t", "LOWER", table))
        program.unicode.append(f"#define LOWER_COUNT {len(changed)}")
        cased, skipped = ranges(is_cased), ranges(is_ignored)
        program.unicode += [
            array_text("uint32_t", "CASED", cased),
            array_text("uint32_t", "IGNORED", skipped),
        ]
    if pieces and "HAS_PIECES" not in program.flags:
        program.flags.add("HAS_PIECES")
        letters = ranges(is_letter)
        numbers = ranges(is_number)
        program.unicode += [
            array_text("uint32_t", "LETTER", letters),
            array_text("uint32_t", "NUMBER", numbers),
        ]
