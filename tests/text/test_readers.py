"""Readers of users' files: what reads as it lies, what is put right, and what is refused, and where."""

import gzip
import json
import lzma
import re
import time
import tracemalloc

import pytest

from elman.errors import (
    ArgumentError,
    ColumnError,
    ConfigError,
    DataError,
    EmptyError,
    EncodingError,
    FileError,
    LabelError,
    NulError,
    SyntaxProblem,
    UnbalancedError,
)
from elman.registry import READERS
from elman.text import columns, sentences
from elman.text.columns import parse_columns
from elman.text.files import Repairs
from elman.text.readers.base import Reader
from elman.text.readers.conllu import CONLLU
from elman.text.reading import read_fields, read_text, read_tokens
from elman.text.records import Record, Source

LABELLED = ("text", "label")
TAGGED = ("word", "tag")
SIDES = ("source", "target")
BARS = {"roles": SIDES, "separator": " ||| "}
SCAN = {"roles": SIDES, "separator": " OUT: ", "prefix": "IN: "}


def reading(folder, name, data, repairs=None, *, roles=LABELLED, second=None, **options):
    """Records of a file written for it; roles choose the reader, ``second`` is a parallel file."""
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    if second is not None:
        (folder / "second").write_bytes(second.encode())
        options["target"] = str(folder / "second")
    source = Source(str(path), **options)
    if roles == ("text",):
        return read_text(source, repairs)
    if "word" in roles:
        return read_tokens(source, roles, repairs)
    return read_fields(source, roles, repairs)


def fields(*arguments, **options):
    return [tuple(record.fields.values()) for record in reading(*arguments, **options)]


def word(number, form="w", **other):
    """A line of CoNLL-U."""
    values = dict.fromkeys(CONLLU, "_") | {"id": str(number), "form": form, "upos": "X"} | other
    return "\t".join(values.values()) + "\n"


GOOD = {
    "tsv": ("a.tsv", "good film\tpos\nbad film\tneg\n", {}, [("good film", "pos"), ("bad film", "neg")]),
    "columns by number": (
        "a.tsv",
        "pos\tgood\t9\nneg\tbad\t1\n",
        {"columns": {"text": 1, "label": 0}},
        [("good", "pos"), ("bad", "neg")],
    ),
    "columns by name": (
        "a.tsv",
        "id\tlabel\ttext\n1\tpos\tgood\n",
        {"columns": {"text": "text", "label": "label"}},
        [("good", "pos")],
    ),
    "name and number": ("a.tsv", "x\ty\na\tb\n", {"columns": {"text": 0, "label": "y"}}, [("a", "b")]),
    "one column twice": ("a.tsv", "a\tb\n", {"columns": {"text": 1, "label": 1}}, [("b", "b")]),
    "quotes in a tsv": ("a.tsv", '"so" he said\tpos"\n', {}, [('"so" he said', 'pos"')]),
    "space": (
        "a.txt",
        "1 a fine , fine film\n0   two  spaces stay\n",
        {"columns": {"text": 1, "label": 0}, "delimiter": "space"},
        [("a fine , fine film", "1"), ("two  spaces stay", "0")],
    ),
    "space and a header": (
        "a.txt",
        "label text\n1 a fine film\n",
        {"columns": {"text": "text", "label": "label"}, "delimiter": "space"},
        [("a fine film", "1")],
    ),
    "other space is a character": ("a.txt", "a\u00a0b x y\n", {"delimiter": "space"}, [("a\u00a0b", "x y")]),
    "bar": ("a.txt", 'he "said"|pos\n', {"delimiter": "|"}, [('he "said"', "pos")]),
    "csv": ("a.csv", 'a\tb,pos\n"a, ""b""",neg\n', {}, [("a\tb", "pos"), ('a, "b"', "neg")]),
    "quoted newline": (
        "a.csv",
        '"one\ntwo\r\n\nthree",pos\n" x ","y"\n',
        {},
        [("one\ntwo\n\nthree", "pos"), (" x ", "y")],
    ),
    "semicolon quotes": ("a.txt", '"a;b";pos\n', {"delimiter": ";"}, [("a;b", "pos")]),
    "csv with a quoted header": (
        "a.csv",
        '"the ""text""",label\nx,pos\n',
        {"columns": {"text": 'the "text"', "label": "label"}},
        [("x", "pos")],
    ),
    "jsonl": (
        "a.jsonl",
        '{"text": "a\\nb", "label": 1.50, "x": null}\n{"label": true, "text": "\\ud83d\\ude00 "}\n',
        {},
        [("a\nb", "1.50"), ("\U0001f600 ", "true")],
    ),
    "json keys": (
        "a",
        '{"a": "x", "b": 12345678901234567890}\n',
        {"columns": {"text": "a", "label": "b"}, "format": "jsonl"},
        [("x", "12345678901234567890")],
    ),
    "packed": ("a.csv.gz", gzip.compress(b"a,b\n"), {}, [("a", "b")]),
    "packed json": ("a.jsonl.xz", lzma.compress(b'{"text": "a", "label": "b"}'), {}, [("a", "b")]),
    "parallel fields": ("a.en", "a b\nc\n", {"second": "x\ny z\n"}, [("a b", "x"), ("c", "y z")]),
    "separator": ("a.txt", "a b ||| x\nc ||| y z\n", BARS, [("a b", "x"), ("c", "y z")]),
    "separator and prefix": (
        "a.txt",
        "IN: walk twice OUT: I_WALK I_WALK\nIN: IN: OUT: OUT\n",
        SCAN,
        [("walk twice", "I_WALK I_WALK"), ("IN:", "OUT")],
    ),
    "separator of signs": ("a.tsv", "a.*\t(b.*c\n", {"separator": ".*\t("}, [("a", "b.*c")]),
    "separator of white space": ("a.txt", "a b\tx\n", {"separator": "\t"}, [("a b", "x")]),
    "separator without white space": ("a.txt", "a=>b\n", {"separator": "=>"}, [("a", "b")]),
    "separator within a word": (
        "a.txt",
        "a|||b ||| x|||\n",
        BARS | {"format": "separated"},
        [("a|||b", "x|||")],
    ),
    "packed and separated": ("a.jsonl.gz", gzip.compress(b"{} ||| []\n"), BARS, [("{}", "[]")]),
    "joined columns": (
        "a.csv",
        "title,body,stars\nA,long one,5\n,alone,1\n",
        {"columns": {"text": "title+body", "label": "stars"}},
        [("A long one", "5"), ("alone", "1")],
    ),
    "joined numbers": ("a.tsv", "a\tb\tc\n", {"columns": {"text": "0+1", "label": 2}}, [("a b", "c")]),
    "joined keys": (
        "a.jsonl",
        '{"title": "a", "body": "b", "label": 1}\n',
        {"columns": {"text": "title+body", "label": "label"}},
        [("a b", "1")],
    ),
    "a column with a plus": (
        "a.csv",
        "a+b,a,label\nx,y,z\n",
        {"columns": {"text": "a+b", "label": "label"}},
        [("x", "z")],
    ),
    "semicolons": ("a.csv", "a;b\nc;d\n", {}, [("a", "b"), ("c", "d")]),
    "latin-1": ("a.tsv", "café\tb\n".encode("latin-1"), {"encoding": "latin-1"}, [("café", "b")]),
    "utf-16": (
        "a.tsv",
        "café\tb\nç\td\n".encode("utf-16"),
        {"encoding": "utf-16"},
        [("café", "b"), ("ç", "d")],
    ),
    "csv for a language model": ("a.csv", '"a, b"\n', {"roles": ("text",)}, [("a, b",)]),
    "text": ("a.txt", " a \n\n\tb", {"roles": ("text",)}, [(" a ",), ("",), ("\tb",)]),
    "text of json": (
        "a.jsonl",
        '{"text": "x\\ny"}\n{"text": ""}\n',
        {"roles": ("text",)},
        [("x\ny",), ("",)],
    ),
    "text of a column": (
        "a.csv",
        "n,body\n1,x\n",
        {"roles": ("text",), "columns": {"text": "body"}},
        [("x",)],
    ),
    "column file with commas": (
        "a.csv",
        '"a, b",X\n"""",Y\n,\nc,X\n',
        {"roles": TAGGED},
        [(["a, b", '"'], ["X", "Y"]), (["c"], ["X"])],
    ),
    "column file with semicolons": (
        "a.csv",
        "a;X\n\n,;Y\n",
        {"roles": TAGGED},
        [(["a"], ["X"]), ([","], ["Y"])],
    ),
    "column file with a named header": (
        "a.tsv",
        "n\tToken\tNER\n1\ta\tX\n\n1\tb\tY\n",
        {"roles": TAGGED, "columns": {"word": "Token", "tag": "NER"}},
        [(["a"], ["X"]), (["b"], ["Y"])],
    ),
    "column file": (
        "a.conll",
        "New York\tB\nis\tO\n\t\nbig\tO",
        {"roles": TAGGED},
        [(["New York", "is"], ["B", "O"]), (["big"], ["O"])],
    ),
    "white space column file": (
        "a.conll",
        "EU NNP  B-NP B-ORG \n# NN I-NP O\n",
        {"roles": TAGGED, "columns": {"tag": 3}},
        [(["EU", "#"], ["B-ORG", "O"])],
    ),
    "white space that is a word": (
        "a.conll",
        "新 B\n\u3000 O\n\u00a0 O\n",
        {"roles": TAGGED},
        [(["新", "\u3000", "\u00a0"], ["B", "O", "O"])],
    ),
    "words only": ("a.txt", "a\nb\n\nc\n", {"roles": ("word",)}, [(["a", "b"],), (["c"],)]),
    "words of a tagged file": (
        "a.txt",
        "a\tX\nb\tY\n",
        {"roles": ("word",), "columns": {"word": 0, "tag": 1}},
        [(["a", "b"],)],
    ),
    "lines of words": (
        "a.txt",
        "a b\nc\n",
        {"roles": ("word",), "format": "lines"},
        [(["a", "b"],), (["c"],)],
    ),
    "parallel tokens": (
        "a.in",
        "a  b \nc\n",
        {"roles": TAGGED, "second": "X Y\nZ \n"},
        [(["a", "b"], ["X", "Y"]), (["c"], ["Z"])],
    ),
    "conllu": (
        "a.conllu",
        "# sent_id = 1\n" + word(1, "#") + word(2, "1 000", upos="NUM") + "\n" + word(1, "_", upos="SYM"),
        {"roles": TAGGED},
        [(["#", "1 000"], ["X", "NUM"]), (["_"], ["SYM"])],
    ),
    "json of words": (
        "a.jsonl",
        '{"id": 1, "words": ["New York", "\\t", "2"], "tags": ["B", "O", 2]}\n'
        '{"word": ["a"], "tag": ["O"]}\n',
        {"roles": TAGGED},
        [(["New York", "\t", "2"], ["B", "O", "2"]), (["a"], ["O"])],
    ),
    "json of words by name": (
        "a.jsonl",
        '{"tokens": ["a", "b"], "ner": ["O", "B"]}\n',
        {"roles": TAGGED, "columns": {"word": "tokens", "tag": "ner"}},
        [(["a", "b"], ["O", "B"])],
    ),
    "jsonl with objects within": (
        "a.jsonl",
        '{"doc": {"text": "a", "x.y": 1}, "a.b": "c"}\n',
        {"columns": {"text": "doc.text+a.b", "label": "a.b"}},
        [("a c", "c")],
    ),
    "conllu wide space": (
        "a.conllu",
        word(1, "\u3000", upos="SYM"),
        {"roles": TAGGED},
        [(["\u3000"], ["SYM"])],
    ),
    "conllu feats": (
        "a.conllu",
        word(1, feats="Number=Sing") + word(2),
        {"roles": TAGGED, "columns": {"tag": "feats"}},
        [(["w", "w"], ["Number=Sing", "_"])],
    ),
    "conllu by number": (
        "a.txt",
        word(1, "went", lemma="go"),
        {"roles": TAGGED, "format": "conllu", "columns": {"word": "lemma", "tag": 3}},
        [(["go"], ["X"])],
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_files_that_read_as_they_lie(tmp_path, case):
    name, data, options, expected = GOOD[case]
    repairs = Repairs()
    assert fields(tmp_path, name, data, repairs, **options) == expected
    assert set(repairs) <= {"Windows line end (CRLF) removed"}


@pytest.mark.parametrize("tag", ["lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc"])
def test_every_conllu_column_by_name(tmp_path, tag):
    line = word(1, **{tag: "value"})
    assert fields(tmp_path, "a.conllu", line, roles=TAGGED, columns={"tag": tag}) == [(["w"], ["value"])]


REPAIRED = {
    "mark": ("a.tsv", b"\xef\xbb\xbfa\tb\n", {}, [("a", "b")], {"byte order mark removed": 1}),
    "mark before a header": (
        "a.tsv",
        b"\xef\xbb\xbft\tl\na\tb\n",
        {"columns": {"text": "t", "label": "l"}},
        [("a", "b")],
        {"byte order mark removed": 1},
    ),
    "Windows": ("a.tsv", "a\tb\r\n", {}, [("a", "b")], {"Windows line end (CRLF) removed": 1}),
    "blank lines": ("a.tsv", "\n \na\tb\n\t\n", {}, [("a", "b")], {"blank line skipped": 3}),
    "blank json": (
        "a.jsonl",
        '\n{"text": "a", "label": "b"}\n',
        {},
        [("a", "b")],
        {"blank line skipped": 1},
    ),
    "space around": ("a.csv", "a , b\n", {}, [("a", "b")], {"white space around a field removed": 2}),
    "trailing tab": (
        "a.tsv",
        "a\tb\t\t\n",
        {},
        [("a", "b")],
        {"empty column at the end of a line removed": 2},
    ),
    "blank lines between sides": (
        "a.txt",
        "\n \na ||| b\n\t\n",
        BARS,
        [("a", "b")],
        {"blank line skipped": 3},
    ),
    "space around sides": (
        "a.txt",
        " a  |||  b\r\nIN ||| c \n",
        BARS,
        [("a", "b"), ("IN", "c")],
        {"white space around a field removed": 3, "Windows line end (CRLF) removed": 1},
    ),
    "quote in the middle": (
        "a.csv",
        'a,b\nsay "x",b\n',
        {},
        [("a", "b"), ('say "x"', "b")],
        {"quote inside an unquoted field kept": 1},
    ),
    "space before a quote": (
        "a.csv",
        'a, "b"\n',
        {},
        [("a", '"b"')],
        {"quote inside an unquoted field kept": 1, "white space around a field removed": 1},
    ),
    "text behind a quote": ("a.csv", '"a"x,b\n', {}, [("ax", "b")], {"text after a closing quote kept": 1}),
    "text behind a long quote": (
        "a.csv",
        '"a\nb"x,b\n',
        {},
        [("a\nbx", "b")],
        {"text after a closing quote kept": 1},
    ),
    "header of usual words": (
        "a.tsv",
        "Sentence\tClass\na\tb\n",
        {},
        [("a", "b")],
        {"header line skipped": 1},
    ),
    "csv for a language model": (
        "a.csv",
        'text\n"a, b"\n',
        {"roles": ("text",)},
        [("a, b",)],
        {"header line skipped": 1},
    ),
    "header of words": (
        "a.csv",
        "id,word,tag\n\n1,a,X\n\n1,b,Y\n",
        {"roles": TAGGED},
        [(["a"], ["X"]), (["b"], ["Y"])],
        {"header line skipped": 1},
    ),
    "header of words by other names": (
        "a.tsv",
        "Token\tPOS\na\tX\n",
        {"roles": TAGGED},
        [(["a"], ["X"])],
        {"header line skipped": 1},
    ),
    "header that names more": (
        "a.csv",
        "id,Text,label\n1,a,b\n",
        {},
        [("a", "b")],
        {"header line skipped": 1},
    ),
    "comments before a sentence": (
        "a.iob2",
        "# id = 1\n# text = a b\na\tX\n#\tY\n\n#\tZ\nc\tX\n",
        {"roles": TAGGED},
        [(["a", "#"], ["X", "Y"]), (["#", "c"], ["Z", "X"])],
        {"comment line skipped": 2},
    ),
    "header of roles": ("a.csv", "label,text\nb,a\n", {}, [("a", "b")], {"header line skipped": 1}),
    "docstart": (
        "a.conll",
        "-DOCSTART- -X- O\n\na X\n\n\nb Y\n-DOCSTART-\n",
        {"roles": TAGGED},
        [(["a"], ["X"]), (["b"], ["Y"])],
        {"-DOCSTART- line skipped": 2, "blank line skipped": 2},
    ),
    "space in a tab file": (
        "a.conll",
        "a \tX\nb\tY \n",
        {"roles": TAGGED},
        [(["a", "b"], ["X", "Y"])],
        {"white space around a field removed": 2},
    ),
    "ranges and empty nodes": (
        "a.conllu",
        word("1-2", "don't") + word(1, "do") + word(2, "n't") + word("2.1", "gone"),
        {"roles": TAGGED},
        [(["do", "n't"], ["X", "X"])],
        {"multi-word token skipped": 1, "empty node skipped": 1},
    ),
    "blank in both": (
        "a.en",
        "a\n\nb\n",
        {"second": "x\n \ny\n"},
        [("a", "x"), ("b", "y")],
        {"blank line skipped": 1},
    ),
    "one blank line more": ("a.en", "a\n\n", {"second": "x\n"}, [("a", "x")], {"blank line skipped": 1}),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_what_is_put_right_is_counted(tmp_path, case):
    name, data, options, expected, counts = REPAIRED[case]
    repairs = Repairs()
    assert fields(tmp_path, name, data, repairs, **options) == expected
    assert repairs == counts


PAIR = {"columns": {"text": 1, "label": 0}}
NAMED = {"columns": {"text": "text", "label": "label"}}
TOKENS = {"roles": TAGGED}

# name of the file, its bytes, options; then class, line and column of the error, and words that it says
BROKEN = {
    "missing": (None, "", {}, FileError, None, None, "no such file"),
    "name in a column file": ("a.txt", "a\tb\n", {"roles": TAGGED, "columns": {"tag": "pos"}}, ColumnError,
        1, 4, "tag is column 'pos', but none"),
    "word of two lines": ("a.csv", '"a\nb",X\n', TOKENS, SyntaxProblem, 1, 1, "never closed"),
    "empty": ("a.tsv", "", {}, EmptyError, None, None, "nothing to read"),
    "empty text": ("a.txt", "", {"roles": ("text",)}, EmptyError, None, None, "nothing to read"),
    "empty column file": ("a.conll", "", TOKENS, EmptyError, None, None, "nothing to read"),
    "empty gz": ("a.tsv.gz", b"", {}, EmptyError, None, None, "nothing to read"),
    "only blank lines": ("a.tsv", "\n \n\t\n", {}, EmptyError, None, None, "nothing to read"),
    "only blank sentences": ("a.conll", "\n\n\n", TOKENS, EmptyError, None, None, "nothing to read"),
    "only comments": ("a.conllu", "# a\n# b\n\n", TOKENS, EmptyError, None, None, "nothing to read"),
    "only a header": ("a.csv", "text,label\n", NAMED, EmptyError, None, None, "nothing to read"),
    "only a mark": ("a.txt", b"\xef\xbb\xbf", {"roles": ("text",)}, EmptyError, None, None, "nothing"),
    "two empty files": ("a.en", "", {"second": ""}, EmptyError, None, None, "nothing to read"),
    "latin-1": ("a.tsv", b"a\tb\ncaf\xe9\tb\n", {}, EncodingError, 2, 4, "0xE9"),
    "NUL": ("a.tsv", b"a\tb\na\tb\0\n", {}, NulError, 2, 4, "NUL"),
    "truncated": ("a.tsv.gz", gzip.compress(b"a\tb\n" * 99)[:-9], {}, FileError, None, None, "too early"),
    "too few": ("a.tsv", "a\tb\n\nab\n", {}, ColumnError, 3, 3, "1 column instead of 2"),
    "too few at once": ("a.tsv", "ab\n", {}, ColumnError, 1, 3, "1 column instead of 2"),
    "too many": ("a.tsv", "a\tb\nä\tb\tc\n", {}, ColumnError, 2, 5, "3 columns instead of 2"),
    "wider than the first": ("a.tsv", "a\tb\na\tb\tc\n", PAIR, ColumnError, 2, 5, "as the first line has"),
    "column beyond": ("a.tsv", "a\tb\n", {"columns": {"text": 0, "label": 5}}, ColumnError, 1, 4, "column 5"),
    "column beyond the header": (
        "a.tsv",
        "a\tb\nx\ty\n",
        {"columns": {"text": "a", "label": 2}},
        ColumnError,
        1,
        4,
        "the line has 2 columns",
    ),
    "no such name": ("a.tsv", "text\tlable\na\tb\n", NAMED, ColumnError, 1, 11, "did you mean 'lable'"),
    "name twice": ("a.tsv", "text\tlabel\tlabel\na\tb\tc\n", NAMED, ColumnError, 1, 12, "2 of the header"),
    "narrower than the header": ("a.tsv", "text\tx\tlabel\na\tb\n", NAMED, ColumnError, 2, 4, "instead of 3"),
    "wrong delimiter": ("a.tsv", "a,b\n", {}, ColumnError, 1, 4, "--delimiter"),
    "empty field": ("a.tsv", "a\tb\na\t\n", {}, EmptyError, 2, 3, "label is empty"),
    "blank field": ("a.csv", "a,b\n \u00a0,b\n", {}, EmptyError, 2, 1, "text is empty"),
    "quoted nothing": ("a.csv", 'a,""\n', {}, EmptyError, 1, 3, "label is empty"),
    "empty in a long row": ("a.csv", '"a\nb","\nc", \n', {"roles": ("a", "b", "c")},
        EmptyError, 3, 4, "c is empty"),
    "label without text": ("a.txt", "1 a\n0 \n", PAIR | {"delimiter": "space"},
        ColumnError, 2, 2, "1 column"),
    "quote never closed": ("a.csv", 'a,b\nc,"d\ne,f\n', {}, SyntaxProblem, 2, 3, "never closed"),
    "csv too wide": ("a.csv", 'a,b\n"c\nd",e,f\n', {}, ColumnError, 3, 6, "3 columns instead of 2"),
    "json cut": ("a.jsonl", '{"text": "a", "label": "b"}\n{"text": "a\n', {},
        SyntaxProblem, 2, 10, "Unterminated"),
    "json comma": ("a.jsonl", '{"text": "a" "label": "b"}\n', {}, SyntaxProblem, 1, 14, "',' delimiter"),
    "json array file": ("a.json", '[\n{"text": "a"}\n]\n', {}, SyntaxProblem, 1, 2, "the file is one list"),
    "json list": ("a.jsonl", '["a", "b"]\n', {}, SyntaxProblem, 1, None, "no object"),
    "json string": ("a.jsonl", '"a"\n', {}, SyntaxProblem, 1, None, "no object"),
    "json twice": ("a.jsonl", '{"text": "a", "text": "b"}\n', {},
        SyntaxProblem, 1, None, "'text' stands twice"),
    "json NaN": ("a.jsonl", '{"text": "NaN", "label": NaN}\n', {}, SyntaxProblem, 1, 26, "NaN is no JSON"),
    "json infinity": ("a.jsonl", '{"x": [-Infinity]}\n', {}, SyntaxProblem, 1, 8, "-Infinity is no JSON"),
    "json null": ("a.jsonl", '{"text": null, "label": 1}\n', {}, SyntaxProblem, 1, None, "'text' is null"),
    "json value list": ("a.jsonl", '{"text": ["a"], "label": 1}\n', {}, SyntaxProblem, 1, None, "is a list"),
    "json value object": ("a.jsonl", '{"text": {}, "label": 1}\n', {}, SyntaxProblem, 1, None, "an object"),
    "json no key": ("a.jsonl", '{"txt": "a", "label": 1}\n', {}, ColumnError, 1, None, "did you mean 'txt'"),
    "json empty": ("a.jsonl", '{"text": " ", "label": 1}\n', {}, EmptyError, 1, None, "text is empty"),
    "json NUL": ("a.jsonl", '{"text": "\\u0000", "label": 1}\n', {}, NulError, 1, None, "'text' has a NUL"),
    "json surrogate": ("a.jsonl", '{"text": "\\ud83d", "label": 1}\n', {},
        SyntaxProblem, 1, None, "surrogate"),
    "json words no list": ("a.jsonl", '{"words": "a", "tags": ["O"]}\n', {"roles": TAGGED},
        SyntaxProblem, 1, None, "the value of 'words' is no list"),
    "json words missing": ("a.jsonl", '{"tokens": ["a"], "tags": ["O"]}\n', {"roles": TAGGED},
        ColumnError, 1, None, "there is no key 'word'.*Known: tags, tokens"),
    "json words and tags": ("a.jsonl", '{"words": ["a", "b"], "tags": ["O"]}\n', {"roles": TAGGED},
        UnbalancedError, 1, None, "1 tag for 2 words"),
    "json no words": ("a.jsonl", '{"words": [], "tags": []}\n', {"roles": TAGGED},
        EmptyError, 1, None, "no word"),
    "json empty word": ("a.jsonl", '{"words": ["a", ""], "tags": ["O", "O"]}\n', {"roles": TAGGED},
        EmptyError, 1, None, r"words\[1\] is empty"),
    "json word of words": ("a.jsonl", '{"words": [["a"]], "tags": ["O"]}\n', {"roles": TAGGED},
        SyntaxProblem, 1, None, r"the value of 'words\[0\]' is a list"),
    "json deep": ("a.jsonl", '{"text": ' + "[" * 200_000 + "\n", {}, SyntaxProblem, 1, None, "too deeply"),
    "one side empty": ("a.en", "a\nb\n", {"second": "x\n\n"},
        EmptyError, 2, None, "second:2: E406: label is"),
    "first side empty": ("a.en", "a\n\n", {"second": "x\ny\n"}, EmptyError, 2, None, "a.en:2: E406: text is"),
    "no separator": ("a.txt", "a ||| b\na b \n", BARS, ColumnError, 2, 4, r"no separator ' \|\|\| ': 'a b '"),
    "separator without its spaces": ("a.txt", "a|||b\n", BARS, ColumnError, 1, 6, "no separator"),
    "two separators": ("a.txt", "a ||| b ||| c\n", BARS, ColumnError, 1, 9, "2 separators"),
    "two that share a space": ("a.txt", "a ||| ||| c\n", BARS, ColumnError, 1, 7, "2 separators"),
    "three separators": ("a.txt", "IN: a OUT: b OUT: c OUT: d\n", SCAN, ColumnError, 1, 14, "3 separators"),
    "no prefix": ("a.txt", "IN: a OUT: b\nc OUT: d\n", SCAN, SyntaxProblem, 2, 1, "begin with 'IN: '"),
    "space before the prefix": ("a.txt", " IN: a OUT: b\n", SCAN, SyntaxProblem, 1, 1, "begin with 'IN: '"),
    "empty second side": ("a.txt", "a ||| b\na ||| \n", BARS, EmptyError, 2, 7, "target is empty"),
    "nothing after a separator": ("a.txt", "a |||\n", BARS, EmptyError, 1, 6, "target is empty"),
    "tab after a separator": ("a.txt", "a |||\t\n", BARS, EmptyError, 1, 6, "target is empty"),
    "empty first side": ("a.txt", " ||| b\n", BARS, EmptyError, 1, 1, "source is empty"),
    "nothing before a separator": ("a.txt", "||| b\n", BARS, EmptyError, 1, 1, "source is empty"),
    "nothing after a prefix": ("a.txt", "IN: OUT: b\n", SCAN, EmptyError, 1, 5, "source is empty"),
    "nothing at all between": ("a.txt", "IN: a OUT:\n", SCAN, EmptyError, 1, 11, "target is empty"),
    "a separator alone": ("a.txt", "|||\n", BARS, EmptyError, 1, 1, "source is empty"),
    "blank side": ("a.txt", "a ||| \u00a0\n", BARS, EmptyError, 1, 7, "target is empty"),
    "separated nothing": ("a.txt", "\n\n", BARS, EmptyError, None, None, "nothing to read"),
    "first longer": ("a.en", "a\nb\nc\n", {"second": "x\n"},
        UnbalancedError, 2, None, "a.en:2: .*has no line 2"),
    "second longer": ("a.en", "a\n", {"second": "x\n\ny\n"},
        UnbalancedError, 3, None, "second:3: .*no line 3"),
    "tags for words": ("a.in", "a b\nc d\n", TOKENS | {"second": "X Y\nZ\n"},
        UnbalancedError, 2, None, "1 tag for 2 words"),
    "no tags": ("a.in", "a b\n", TOKENS | {"second": "\nX\n"},
        UnbalancedError, 1, None, "0 tags for 2 words"),
    "no tag": ("a.conll", "a\tX\nb\n", TOKENS, ColumnError, 2, 2, "1 column instead of 2"),
    "empty tag": ("a.conll", "a\tX\nb\t\n", TOKENS, EmptyError, 2, 3, "tag is empty"),
    "empty word": ("a.conll", "a\tX\n\tX\n", TOKENS, EmptyError, 2, 1, "word is empty"),
    "space for tab": ("a.conll", "a\tX\nNew York\n", TOKENS, ColumnError, 2, 9, "1 column instead of 2"),
    "word with a space": ("a.conll", "a X\nNew York X\n", TOKENS,
        ColumnError, 2, 10, "3 columns instead of 2"),
    "more columns than named": (
        "a.conll",
        "a x X\nNew York x X\n",
        TOKENS | {"columns": {"tag": 2}},
        ColumnError,
        2,
        12,
        "as line 1 of the sentence has",
    ),
    "no such column": ("a.conll", "a X\n", TOKENS | {"columns": {"tag": 3}},
        ColumnError, 1, 4, "tag is column 3"),
    "tags where only words": ("a.conll", "a X\n", {"roles": ("word",)},
        ColumnError, 1, 3, "name the columns"),
    "tag in the last of four columns": ("a.conll", "a NN O X\n", TOKENS,
        ColumnError, 1, 6, "columns word=0,tag=3, or"),
    "a wider row below a header": ("a.csv", "text,label\na,b\nc,d,e\n", {},
        ColumnError, 3, 5, "give every line the same columns"),
    "no key in an object within": ("a.jsonl", '{"doc": {"text": "a"}, "label": "b"}\n',
        {"columns": {"text": "doc.body", "label": "label"}}, ColumnError, 1, None, "no key 'doc.body'"),
    "nine columns": ("a.conllu", word(1) + word(2).replace("\t_\n", "\n"), TOKENS,
        ColumnError, 2, 18, "instead of 10"),
    "eleven columns": ("a.conllu", word(1).strip() + "\tx\n", TOKENS,
        ColumnError, 1, 21, "11 columns instead"),
    "spaces in conllu": ("a.conllu", word(1).replace("\t", " "), TOKENS, ColumnError, 1, 20, "by tabs"),
    "id no number": ("a.conllu", word(1) + word("b"), TOKENS, SyntaxProblem, 2, 1, "the id 'b'"),
    "id empty": ("a.conllu", word(""), TOKENS, SyntaxProblem, 1, 1, "the id ''"),
    "blank line forgotten": ("a.conllu", word(1) + word(2) + word(1), TOKENS,
        SyntaxProblem, 3, 1, "id 1 where 3"),
    "no upos": ("a.conllu", "# x\n" + word(1, upos="_"), TOKENS,
        EmptyError, 2, 7, "column upos, which is missing"),
    "no xpos": ("a.conllu", word(1), TOKENS | {"columns": {"tag": "xpos"}}, EmptyError, 1, 9, "column xpos"),
    "no form": ("a.conllu", word(1, form=""), TOKENS, EmptyError, 1, 3, "word is empty"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_read_is_refused_with_its_place(tmp_path, case):
    name, data, options, kind, line, column, said = BROKEN[case]
    with pytest.raises(DataError) as caught:
        list(reading(tmp_path, name, data, **options) if name else read_fields(Source("none"), LABELLED))
    error = caught.value
    assert (type(error), error.line, error.column) == (kind, line, column)
    assert re.search(said, str(error))
    assert error.path
    assert error.remedy
    if line is not None and kind is not FileError:
        assert error.text is not None


MISTAKEN = {
    "format": ({"format": "jsonlines"}, "Known: columns, conllu"),
    "delimiter": ({"delimiter": "\\t"}, "must be tab, comma, space or a single character"),
    "quote as delimiter": ({"delimiter": '"'}, "must be tab"),
    "negative": ({"columns": {"text": 0, "label": -1}}, "label is -1, but columns are counted from 0"),
    "truth as column": ({"columns": {"text": True}}, "neither a number nor a name"),
    "role missing": (
        {"columns": {"text": 0, "lable": 1}},
        "a column is named for 'lable'; did you mean 'label'?",
    ),
    "number in json": ({"format": "jsonl", "columns": {"text": 0, "label": "b"}}, "name a key"),
    "second file of a csv": ({"target": "b", "format": "delimited"}, "not 'parallel'"),
    "no second file": ({"format": "parallel"}, "need 2 files, not 1"),
    "three roles": ({"target": "b", "roles": ("a", "b", "c")}, "need 3 files, not 2"),
    "wrong reader": ({"format": "conllu"}, "cannot be read for this; set one of delimited, jsonl"),
    "text of two files": ({"target": "b", "roles": ("text",)}, "cannot be read for this"),
    "text as parallel": ({"format": "parallel", "roles": ("text",)}, "set one of delimited, jsonl, lines"),
    "columns of text": ({"format": "lines", "columns": {"text": 1}, "roles": ("text",)}, "has no columns"),
    "two things in a line of text": ({"format": "lines"}, "is one thing, not text and label"),
    "unknown option": ({"format": "jsonl", "options": {"strict": 1}},
        "data.format_options has 'strict', unknown to JsonLines"),
    "tokens of a table": ({"format": "delimited", "roles": TAGGED}, "set one of columns, conllu, jsonl"),
    "number in json of words": ({"format": "jsonl", "roles": TAGGED, "columns": {"tag": 1}}, "name a key"),
    "tags of text": ({"format": "lines", "roles": TAGGED}, "need 2 files"),
    "two columns of words": ({"roles": TAGGED, "columns": {"word": "0+1"}}, "a word has one column"),
    "unknown token role": ({"roles": TAGGED, "columns": {"tga": 1}}, "did you mean 'tag'"),
    "no conllu name": ({"roles": TAGGED, "format": "conllu", "columns": {"tag": "pos"}},
        "did you mean 'xpos'"),
    "empty separator": ({"separator": ""}, "separator is ''; it must be some text within a line"),
    "separator of lines": ({"separator": "\n"}, "it must be some text within a line"),
    "empty prefix": ({"separator": "|", "prefix": ""}, "prefix is ''"),
    "prefix alone": ({"prefix": "IN: "}, "prefix is 'IN: ', but there is no separator"),
    "separated by nothing": ({"format": "separated"}, "the format 'separated' needs a separator"),
    "separator and format": ({"separator": "|", "format": "jsonl"}, "'|', and the format 'jsonl'"),
    "separator and columns": (PAIR | {"separator": "|"}, "'|', and named columns"),
    "separator and delimiter": ({"separator": "|", "delimiter": "|"}, "'|', and a delimiter"),
    "separator and a second file": ({"separator": "|", "second": "x\n"}, "'|', and a second file"),
    "three sides": ({"separator": "\t", "roles": ("a", "b", "c")}, "2 sides, not 3: a, b, c"),
    "text with a separator": ({"separator": "\t", "roles": ("text",)}, "cannot be read for this"),
    "tokens with a separator": ({"separator": "\t", "roles": TAGGED}, "cannot be read for this"),
    "no conllu number": ({"roles": TAGGED, "format": "conllu", "columns": {"tag": 10}}, "no column 10"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKEN)
def test_settings_that_cannot_be_used(tmp_path, case):
    options, said = MISTAKEN[case]
    with pytest.raises((ConfigError, ArgumentError), match=re.escape(said)):
        list(reading(tmp_path, "a.txt", "a\tb\n", **options))


LAYOUTS_OF_PAIRS = {
    "separator": ("a.txt", "{} ||| {}\n", {"separator": " ||| "}),
    "prefix": ("a.txt", "IN: {} OUT: {}\n", {"separator": " OUT: ", "prefix": "IN: "}),
    "tsv": ("a.tsv", "{}\t{}\n", {}),
    "csv": ("a.csv", "{},{}\n", {}),
    "jsonl": ("a.jsonl", '{{"source": "{}", "target": "{}"}}\n', {}),
    "parallel": ("a.en", "{}\n", {"second": "{}\n"}),
}


def written(layout, pairs):
    """Name, bytes and options of a file with these pairs in some layout."""
    name, line, options = LAYOUTS_OF_PAIRS[layout]
    if "second" in options:
        first, second = ("".join(line.format(pair[side]) for pair in pairs) for side in (0, 1))
        return name, first, {"roles": SIDES, "second": second}
    return name, "".join(line.format(*pair) for pair in pairs), {"roles": SIDES, **options}


@pytest.mark.parametrize("layout", LAYOUTS_OF_PAIRS)
def test_pairs_read_the_same_in_every_layout_E8(tmp_path, layout):
    pairs = [("walk twice", "I_WALK I_WALK"), ("läuft", "😀")]
    name, data, options = written(layout, pairs)
    repairs = Repairs()
    assert fields(tmp_path, name, data, repairs, **options) == pairs
    assert repairs == {}


@pytest.mark.parametrize("layout", LAYOUTS_OF_PAIRS)
@pytest.mark.parametrize(("pair", "role"), [(("", "b"), "source"), (("a", ""), "target")])
def test_an_empty_side_is_refused_with_its_place_E8(tmp_path, layout, pair, role):
    name, data, options = written(layout, [("a", "b"), pair, ("c", "d")])
    with pytest.raises(EmptyError, match=f"{role} is empty") as caught:
        fields(tmp_path, name, data, **options)
    file = "second" if (layout, role) == ("parallel", "target") else name
    assert (caught.value.path, caught.value.line) == (str(tmp_path / file), 2)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("layout", "change", "kind", "line", "said"),
    [
        ("separator", lambda data: data + "c\n", ColumnError, 3, "no separator"),
        ("prefix", lambda data: data + "IN: c\n", ColumnError, 3, "no separator"),
        ("tsv", lambda data: data + "c\n", ColumnError, 3, "1 column instead of 2, for source, target"),
        ("csv", lambda data: data + "c,d,e\n", ColumnError, 3, "3 columns instead of 2"),
        ("jsonl", lambda data: data + '{"source": "c"}\n', ColumnError, 3, "there is no key 'target'"),
        ("parallel", lambda data: data + "c\n", UnbalancedError, 3, "second has no line 3"),
    ],
)
def test_a_lacking_side_is_refused_with_its_place_E8(tmp_path, layout, change, kind, line, said):
    name, data, options = written(layout, [("a", "b"), ("a", "b")])
    with pytest.raises(kind, match=said) as caught:
        fields(tmp_path, name, change(data), **options)
    assert (caught.value.path, caught.value.line) == (str(tmp_path / name), line)
    assert caught.value.remedy


def test_all_mistakes_of_a_source_at_once():
    with pytest.raises(ConfigError, match=r"counted from 0; format is 'x'.*; delimiter is 'xx'"):
        Source("a", columns={"text": -1}, format="x", delimiter="xx")
    with pytest.raises(ConfigError, match=r"and named columns; .* and a delimiter; .* the format 'lines'"):
        Source("a", separator="|", columns={"text": 0}, delimiter="tab", format="lines")
    with pytest.raises(ConfigError, match="both files are standard input"):
        Source("-", target="-")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("text=1,label=0", {"text": 1, "label": 0}),
        (" word = 0 , tag = upos ", {"word": 0, "tag": "upos"}),
        ("text=a=b", {"text": "a=b"}),
        ("text=²", {"text": "²"}),
    ],
)
def test_columns_as_written(text, expected):
    assert parse_columns(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not of the form role=column"),
        ("text", "'text' is not of the form"),
        ("text=,=1", "'text=' is not of the form role=column; '=1' is not"),
        ("text=1,text=2", "'text' is given twice"),
        ("text=-1", "text is -1, but columns are counted from 0"),
        ("text=1,", "'' is not of the form"),
    ],
)
def test_columns_that_cannot_be_meant(text, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        parse_columns(text)


def test_a_record_makes_errors_with_its_place(tmp_path):
    (record,) = reading(tmp_path, "a.csv", '"a\nb",?\n')
    error = record.error(LabelError, "unknown label", field="label", remedy="known: x")
    assert (error.path, error.line, error.column, error.text) == (str(tmp_path / "a.csv"), 2, 4, "?")
    assert record.error(DataError, "no", text="shown").line == 1

    (record,) = reading(tmp_path, "a.conllu", "# x\n" + word(1, "a") + word("2-3") + word(2, "b"), **TOKENS)
    assert (record.line, record.lines) == (2, (2, 4))
    error = record.error(LabelError, "unknown tag", field="word", token=1)
    assert (error.line, error.text) == (4, "b")
    assert record.error(LabelError, "unknown tag", field="word").text == "a b"

    *_, record = reading(tmp_path, "a.in", "a\n\nb c\n", second="X\n\nY Z\n", **TOKENS)
    error = record.error(LabelError, "unknown tag", field="tag", token=1)
    assert (error.path, error.line, error.text) == (str(tmp_path / "second"), 3, "Z")
    assert record.error(LabelError, "unknown word", field="word", token=1).path == str(tmp_path / "a.in")


@pytest.mark.parametrize(
    ("name", "good", "bad", "options"),
    [
        ("a.tsv", "a\tb\n", "a\n", {}),
        ("a.csv", '"a",b\n', '"a"b\n', {}),
        ("a.jsonl", '{"text": "a", "label": "b"}\n', "{\n", {}),
        ("a.txt", "a ||| b\n", "a\n", BARS),
        ("a.txt", "a\n", b"\xff\n", {"roles": ("text",)}),
        ("a.conll", "a\tb\n\n", "a\n\n", TOKENS),
        ("a.conllu", word(1) + "\n", word("x") + "\n", TOKENS),
    ],
)
def test_records_come_before_the_error_behind_them(tmp_path, name, good, bad, options):
    bad = bad if isinstance(bad, bytes) else bad.encode()
    records = reading(tmp_path, name, good.encode() * 2 + bad + good.encode(), **options)
    first, second = next(records), next(records)
    assert isinstance(first, Record)
    assert first.fields == second.fields
    with pytest.raises(DataError) as caught:
        next(records)
    assert caught.value.line == second.line + (second.line - first.line)


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        ("a.tsv", "some words\tlabel\n" * 60_000, {}),
        ("a.csv", '"some ""words""",label\n' * 40_000, {}),
        ("a.conll", "word\tTAG\n\n" * 60_000, TOKENS),
        ("a.txt", "some words ||| others\n" * 60_000, BARS),
        ("a.txt", "some words in a line\n" * 60_000, {"roles": ("text",)}),
    ],
)
@pytest.mark.slow
def test_memory_stays_constant(tmp_path, name, data, options):
    records = reading(tmp_path, name, data, **options)
    tracemalloc.start()
    for _ in records:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_a_quote_or_a_sentence_cannot_swallow_a_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "LONGEST_QUOTE", 10)
    with pytest.raises(SyntaxProblem, match="never closed") as caught:
        list(reading(tmp_path, "a.csv", 'a,b\n"c,d\n' + "a,b\n" * 20 + '"e",f\n'))
    assert (caught.value.line, caught.value.column) == (2, 1)
    monkeypatch.setattr(sentences, "LONGEST_SENTENCE", 10)
    with pytest.raises(SyntaxProblem, match="put a blank line between sentences") as caught:
        list(reading(tmp_path, "a.conll", "a\tX\n" * 11, **TOKENS))
    assert caught.value.line == 11


@pytest.mark.parametrize(
    ("data", "kind", "line", "column", "text"),
    [
        ('a,b\n"two\nlines",c,d\n', ColumnError, 3, 10, 'lines",c,d'),
        ('x,text,"two\nlines",text\n', ColumnError, 2, 8, 'lines",text'),
        ('text,label\n"two\nlines",\n', EmptyError, 3, 8, 'lines",'),
    ],
)
def test_behind_a_quoted_line_end_the_place_is_that_of_the_cell(tmp_path, data, kind, line, column, text):
    names = None if data.startswith("a") else {"text": "text", "label": "label"}
    with pytest.raises(kind) as caught:
        list(reading(tmp_path, "a.csv", data, columns=names))
    assert (caught.value.line, caught.value.column, caught.value.text) == (line, column, text)


@pytest.mark.parametrize(
    ("name", "data", "options"),
    [
        (
            "a.tsv",
            "\x1b[31m\u2028" + "x" * 9000 + "\tlabel\n",
            {"columns": {"text": "text", "label": "label"}},
        ),
        ("a.csv", '"two\nlines",b\n', {"columns": {"text": "text", "label": "label"}}),
        ("a.jsonl", json.dumps({"x" * 9000: 1, "label\n": 2}), {}),
        ("a.jsonl", '{"%s": 1, "%s": 2}' % (("x" * 9000,) * 2), {}),
        ("a.conllu", word("9" * 9000), {"roles": TAGGED}),
    ],
)
def test_a_message_is_one_short_line_whatever_the_file_holds(tmp_path, name, data, options):
    with pytest.raises(DataError) as caught:
        list(reading(tmp_path, name, data, **options))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 600


def test_an_object_of_many_keys_is_read_at_once(tmp_path):
    """Looking for a key that stands twice takes as long as there are keys, not their square."""
    line = json.dumps({"text": "a", "label": "b"} | {f"word {number}": number for number in range(30_000)})
    start = time.process_time()
    json.loads(line)
    parsing, start = time.process_time() - start, time.process_time()
    [record] = reading(tmp_path, "a.jsonl", line)
    assert record.fields == {"text": "a", "label": "b"}
    assert time.process_time() - start < 60 * parsing  # some 2 times; the square takes 690


BLOCKS = """
from elman.errors import SyntaxProblem
from elman.text.files import open_lines
from elman.text.readers.base import Reader
from elman.text.records import Record


class Blocks(Reader):
    def __init__(self, *, mark="=="):
        self.mark = mark

    def read(self, source, roles, repairs):
        for line in open_lines(source.path, repairs):
            parts = line.text.split(self.mark)
            record = Record(dict(zip(roles, parts)), line.path, line.number)
            if len(parts) != len(roles):
                raise record.error(SyntaxProblem, f"{len(parts)} parts")
            yield record
"""


def test_a_users_reader_reads_what_it_says(tmp_path):
    (tmp_path / "mine.py").write_text(BLOCKS)
    own = {"format": f"{tmp_path / 'mine.py'}:Blocks"}
    assert fields(tmp_path, "a.x", "a==b\nc==d\n", **own) == [("a", "b"), ("c", "d")]
    assert fields(tmp_path, "a.x", "a|b\n", **own, options={"mark": "|"}) == [("a", "b")]
    assert fields(tmp_path, "a.x", "a\n", **own, roles=("text",)) == [("a",)]
    with pytest.raises(SyntaxProblem, match=r"a\.x:2: E\d+: 3 parts"):
        fields(tmp_path, "a.x", "a==b\nc==d==e\n", **own)
    with pytest.raises(EmptyError, match="nothing to read"):
        fields(tmp_path, "a.x", "", **own)
    with pytest.raises(ConfigError, match="cannot be read for this; set one of columns"):
        fields(tmp_path, "a.x", "a==b\n", **own, roles=TAGGED)
    with pytest.raises(ArgumentError, match=r"data\.format_options has 'marc', unknown to Blocks; did you"):
        fields(tmp_path, "a.x", "a==b\n", **own, options={"marc": "|"})


@pytest.mark.parametrize("name", READERS.names())
def test_every_reader_gives_records_of_lines_or_of_tokens(name):
    kind = READERS.find(name)
    assert kind.read is not Reader.read or kind.read_tokens is not Reader.read_tokens
    assert kind.paired == (name in ("parallel", "separated"))
