"""The reader of an export cuts texts as Python does: words with their punctuation split."""

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest

from elman.export.c import compiler, program_text
from elman.export.options import ExportOptions
from elman.text.units.wordpunct import HABITS, WordPunct
from export_models import tiny

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
TEXTS = [
    "Don't (ever) pay $3.50, or 3 .",
    "l'homme, U.S.-made 1,000.5€ a@b.org: https://b.org/x?y=1. iPhoneを dell’arte rock'n'roll",
    'he said "no", \'yes\' and ""maybe" ``so´ -- or... ……',
    "<b>bold</b> <x y> www. www.a www.<b http:// 1.2.3. 1,,2 a.b. A.B.C ä.ö. +-.@a.b a@b a@b.c.",
    '日本語。「はい」 ไทย ភាសា 🇩🇪🇫🇷🇩 👩‍👩‍👧 👍🏽 ☂️ é́ ´̈ "́ x"́y ￭a ▁b ▁ ￭▁',
    "ʼn o’ O'Neill ’’ '' 'tis ٣٫١ ٣.١ Ⅷ ² _a_ a_b ‿ a\u200db \u00a0\u2003z\u3000。",
]
PARTS = [*HABITS, *"aZé0٣ß_@<>/ʼ’'日ไ́\u200d\ufe0f🏽👍🇩￭▁ \t\u3000", "www.", "http://", "don't ", ' "', ".a"]
MAIN = """#define NO_MAIN
#include "own.c"
#include <stdio.h>
int main(void) {
  static own_memory m;
  static char text[MOST_BYTES + 1];
  while (fgets(text, sizeof text, stdin)) {
    size_t length = 0;
    while (text[length] && text[length] != '\\n') length++;
    const int count = cut_wordpunct((const uint8_t *)text, length, m.cuts, 1000);
    for (int t = 0; t < count; t++) {
      const size_t size = spell_token((const uint8_t *)text, m.cuts + 3 * t, m.marked, sizeof m.marked);
      fwrite(m.marked, 1, size, stdout);
      putchar(t + 1 < count ? ' ' : '\\n');
    }
    if (!count) putchar('\\n');
  }
  return 0;
}
"""


@pytest.mark.slow
def test_words_and_punctuation_are_cut_as_in_python(tmp_path: Path) -> None:
    header, text = program_text(tiny("lm", text__unit="wordpunct"), ExportOptions("own"))
    for name, written in (("own.h", header), ("own.c", text), ("main.c", MAIN)):
        (tmp_path / name).write_text(written, encoding="utf-8")
    flags = ["-std=c99", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run([compiler(), *flags, "main.c", "-o", "main"], cwd=tmp_path, check=True)
    random, texts = Random(3), [*TEXTS]
    codes = [c for c in range(1, 0x20000) if not 0xD800 <= c < 0xE000 and c not in (10, 13)]
    for _ in range(1500):
        texts.append("".join(random.choice(PARTS) for _ in range(random.randrange(1, 25))).replace("\n", " "))
        texts.append("".join(chr(random.choice(codes)) for _ in range(random.randrange(1, 12))))
    given = "".join(f"{text}\n" for text in texts).encode()
    done = subprocess.run([tmp_path / "main"], input=given, capture_output=True, check=True)
    cut = WordPunct().cut
    for text, found in zip(texts, done.stdout.decode().split("\n"), strict=False):
        assert found.split(" ") == (cut(text) or [""]), text
