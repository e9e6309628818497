"""Vectors are read from every dialect of their text form, and every bad line is named."""

import gzip
import lzma
import random
import tracemalloc

import numpy as np
import pytest

from elman.errors import FileError, VectorsError
from elman.text.vectors import MISCOUNTED, REPEATED, Vectors, coverage, read_vectors, wanted_forms


@pytest.fixture
def write(tmp_path):
    def write(text, name="vectors.txt"):
        path = tmp_path / name
        opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
        with opener(path, "wb") as file:
            file.write(text.encode())
        return path

    return write


PLAIN = "the 0.5 -1 2e-1\ncat 1 2 3\n"


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        f"2 3\n{PLAIN}",
        PLAIN.replace("\n", " \n"),  # as fastText writes it
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace(" ", "\t"),
        PLAIN.replace(" ", "\t", 1),
        PLAIN.replace(" ", "  "),
        "\ufeff" + PLAIN,
    ],
)
@pytest.mark.parametrize("name", ["v.txt", "v.vec.gz", "v.txt.xz"])
def test_dialects(write, text, name):
    vectors = read_vectors(write(text, name))
    assert vectors.words == ["the", "cat"]
    assert vectors.matrix.dtype == np.float32
    assert vectors.matrix.tolist() == [[0.5, -1, np.float32(0.2)], [1, 2, 3]]
    assert not vectors.repairs.keys() & {REPEATED, MISCOUNTED}


def test_what_is_written_is_read(write):
    chance = random.Random(9)
    for width in (1, 2, 7, 50):
        matrix = np.array([[chance.gauss(0, 1) for _ in range(width)] for _ in range(40)], np.float32)
        words = [chance.choice(["w", "5", "é", "new york ", "x\u00a0", "<"]) + f"{row}x" for row in range(40)]
        lines = [
            f"{word} {' '.join(map(str, row))}" for word, row in zip(words, matrix.tolist(), strict=True)
        ]
        for header in ("", f"40 {width}\n"):
            vectors = read_vectors(write(header + "\n".join(lines)))
            assert vectors.words == words
            assert (vectors.matrix == matrix).all()


def test_words_with_spaces_and_words_that_are_numbers(write):
    vectors = read_vectors(write(". . . 1 2\n7 3 4\nat name@domain.com 5 6\n\u00a0 7 8\n\u0085 9 9\n"))
    assert vectors.words == [". . .", "7", "at name@domain.com", "\u00a0", "\u0085"]
    assert vectors.matrix.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 9]]


def test_the_first_vector_of_a_word_is_kept_and_others_are_counted(write):
    vectors = read_vectors(write("a 1 1\nb 2 2\na 3 3\na 4 4\n"))
    assert vectors.words == ["a", "b"]
    assert vectors.matrix.tolist() == [[1, 1], [2, 2]]
    assert vectors.repairs == {REPEATED: 2}
    assert read_vectors(write("a 1 1\nb 2 2\na 3 3\n"), {"b"}).repairs == {}


def test_a_header_that_counts_wrongly_is_counted(write):
    vectors = read_vectors(write("400000 2\na 1 1\nb 2 2\n"))
    assert vectors.words == ["a", "b"]
    assert vectors.repairs == {MISCOUNTED: 1}


def test_only_wanted_words_are_kept(write):
    path = write("The 1 2\nthe 3 4\ncat 5 6\ndog 7 8\n")
    vectors = read_vectors(path, {"cat", "The", "bird"})
    assert vectors.words == ["The", "cat"]
    assert vectors.matrix.tolist() == [[1, 2], [5, 6]]
    assert read_vectors(path, set()).matrix.shape == (0, 2)


def test_unwanted_words_take_no_memory(write):
    line = " ".join(["0.12345"] * 100)
    path = write("".join(f"word{number} {line}\n" for number in range(5000)))  # 2 MB as numbers
    tracemalloc.start()
    vectors = read_vectors(path, {"word7", "word4999"})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert vectors.words == ["word7", "word4999"]
    assert peak < 300_000


@pytest.mark.parametrize(
    ("text", "line", "column", "problem"),
    [
        ("a 1 2\nb 1\n", 2, None, "1 number; vectors have 2 here"),
        ("a 1 2\nb\n", 2, None, "0 numbers"),
        ("a 1 2\n\nb 1 2\n", 2, None, "0 numbers"),
        ("a 1 2\nb 1 2 3\n", 2, None, "more than 2 numbers"),
        ("3 2\na 1 2 3\n", 2, None, "more than 2 numbers"),
        ("3 2\na 1\n", 2, None, "1 number; vectors have 2 here"),
        ("a 1 2\nb 1 x2\n", 2, 5, "number 2 of 2 is 'x2', no number"),
        ("a 1 2 3\nnew york 1 2\n", 2, 5, "number 1 of 3 is 'york'"),
        ("a 1 2\nb  1\n", 2, None, "1 number; vectors have 2 here"),
        ("a 1 2\nb nan 2\n", 2, 3, "number 1 of 2 is 'nan', no finite 32-bit number"),
        ("a 1 2\nb 1 -inf\n", 2, 5, "'-inf', no finite"),
        ("a 1 2\nb inf -inf\n", 2, 3, "'inf', no finite"),
        ("a 1 2\nb 1 1e39\n", 2, 5, "'1e39', no finite"),
        ("just words\n", 1, None, "neither a header nor a word and its numbers"),
        ("\na 1 2\n", 1, None, "neither a header"),
        ("a 1 2\n 1 2\n", 2, None, "1 number; vectors have 2 here"),
        (f"2 {'9' * 5000}\na 1\n", 1, 3, "number 1 of 1 is '9+…', no finite"),
        (f"2 {'9' * 30}\na 1 2\n", 2, None, "more than 1 numbers"),
    ],
)
def test_bad_lines(write, text, line, column, problem):
    path = write(text)
    with pytest.raises(VectorsError, match=problem) as caught:
        read_vectors(path)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)
    assert caught.value.remedy


def test_white_space_around_a_word_is_none_of_it(write):
    assert read_vectors(write("a 1 2\n\tb 3 4\nc\t 5 6\n  d  7 8\n")).words == ["a", "b", "c", "d"]


@pytest.mark.parametrize("text", ["", "5 3\n"])
def test_a_file_without_vectors(write, text):
    with pytest.raises(VectorsError, match="no vector in the file"):
        read_vectors(write(text))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileError):
        read_vectors(tmp_path / "nothing.txt")


def test_lookup_falls_back_to_lower_case():
    vectors = Vectors(["the", "The", "cat"], np.eye(3, dtype=np.float32))
    assert [vectors.find(word) for word in ("The", "the", "THE", "Cat", "dog", "")] == [
        1,
        0,
        0,
        2,
        None,
        None,
    ]


def test_coverage():
    vectors = Vectors(["the", "cat"], np.zeros((2, 3), np.float32))
    assert coverage(vectors, {"the": 5, "The": 2, "Cat": 1, "dog": 2}) == (
        "vectors for 3 of 4 types (75.0 %) and 8 of 10 tokens (80.0 %); in lower case only: 2 types, 3 tokens"
    )
    assert coverage(vectors, {}) == "vectors for 0 of 0 types (0.0 %) and 0 of 0 tokens (0.0 %)"


def test_wanted_forms_find_what_lookup_finds(write):
    path = write("the 1 2\ncat 3 4\nTHE 5 6\n")
    words = ["The", "cat", "dog"]
    assert read_vectors(path, wanted_forms(words)).words == ["the", "cat"]
    whole, part = read_vectors(path), read_vectors(path, wanted_forms(words))
    for word in words:
        rows = whole.find(word), part.find(word)
        assert rows == (None, None) or (whole.matrix[rows[0]] == part.matrix[rows[1]]).all()
