"""What the first line of a table is taken for, and what a user is told to say."""

import shlex

import pytest

from elman.text.files import Repairs
from elman.text.headers import unnamed_columns
from elman.text.records import Source

LABELLED = 10 * [["a long and fine text", "good"], ["another long text", "bad"]]


NAMES = [["Review text", "Stars given"], ["Review", "Grade"], ["what's new", "is it?"]]


@pytest.mark.parametrize("names", NAMES)
def test_what_is_suggested_can_be_pasted(names):
    repairs = Repairs()
    is_header, _ = unnamed_columns(Source("a.tsv"), ("text", "label"), [names, *LABELLED], repairs)
    (said,) = repairs.notes
    assert not is_header
    words = shlex.split(said[said.index("; --columns") + 2 : said.index(" reads it")])
    assert words == ["--columns", f"text={names[0]},label={names[1]}"]
