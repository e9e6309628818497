"""An export appears whole and proven, or not at all."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elman.errors import ArgumentError, ExportError, FileError
from elman.export import exporting
from elman.export.exporting import export, find_format
from elman.export.options import Answer, ExportOptions
from elman.export.parity import Line, Proof, accuracy, answer_of, check_proof, distance, in_one_line
from elman.export.refusal import check_exportable
from elman.tasks.predictions import Prediction, Written
from export_models import FREE_FORM, LABELS, SOURCES, tiny


@pytest.fixture(scope="module")
def classifier() -> Any:
    return tiny("classify")


def format_that(answers: Any) -> Any:
    """A format whose export answers as this function says."""

    def write(predictor: Any, folder: Path, options: ExportOptions) -> None:
        (folder / "model.txt").write_text("model")

    return SimpleNamespace(write=write, open_written=lambda folder: answers)


def lines() -> list[Line]:
    return [Line(text, label) for text, label in zip(SOURCES[:7], LABELS[:7], strict=True)]


@pytest.mark.slow
def test_an_export_that_answers_alike_stays_with_its_proof(
    classifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def same(texts: Any) -> list[Answer]:
        return [answer_of(one) for one in classifier.details(texts)]

    monkeypatch.setattr(exporting, "find_format", lambda name: format_that(same))
    proof = export(classifier, "c", tmp_path / "deep" / "out", ExportOptions(), lines())
    assert (proof.equal, proof.lines, proof.largest_difference) == (7, 7, 0.0)
    assert json.loads((tmp_path / "deep" / "out" / "proof.json").read_text())["equal"] == 7
    with pytest.raises(FileError, match="is there already"):
        export(classifier, "c", tmp_path / "deep" / "out", ExportOptions(), lines())


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["answer", "number", "count"])
def test_an_export_that_differs_leaves_nothing_behind(
    classifier: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    def differs(texts: Any) -> list[Answer]:
        found = [answer_of(one) for one in classifier.details(texts)]
        if wrong == "count":
            return found[:-1]
        numbers = tuple(number + 0.01 for number in found[0].log_probabilities)
        first = Answer("nothing", numbers) if wrong == "answer" else Answer(found[0].line, numbers)
        return [first, *found[1:]]

    monkeypatch.setattr(exporting, "find_format", lambda name: format_that(differs))
    with pytest.raises(ExportError):
        export(classifier, "c", tmp_path / "out", ExportOptions(), lines())
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_python_code_is_refused_by_its_name() -> None:
    free = tiny("classify", model__cell=FREE_FORM)
    with pytest.raises(ExportError, match="Ranked is a free-form cell"):
        check_exportable(free)
    metric = tiny("classify", training__metric=f"{Path(__file__).parent / 'metric.py'}:Own")
    with pytest.raises(ExportError, match=r"training\.metric is '.*metric.py:Own'"):
        check_exportable(metric)


def test_names_are_checked(classifier: Any, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="Known: c, html, js, onnx"):
        find_format("wasm")
    for options in (ExportOptions("1st"), ExportOptions("a-b"), ExportOptions(max_length=0)):
        with pytest.raises(ArgumentError):
            export(classifier, "c", tmp_path / "out", options, lines())
    assert not [*tmp_path.iterdir()]


def test_a_proof_allows_int8_half_a_point() -> None:
    proof = Proof(1000, 0, 990, 0.2, 1, 0.900, 0.904, 1.0, 1.0, 1.0)
    check_proof(proof, ExportOptions(int8=True))
    with pytest.raises(ExportError, match="10 of 1,000 answers differ"):
        check_proof(proof, ExportOptions())
    with pytest.raises(ExportError, match="without --int8"):
        check_proof(Proof(1000, 0, 990, 0.2, 1, 0.890, 0.904, 1.0, 1.0, 1.0), ExportOptions(int8=True))


def test_answers_are_compared_number_by_number() -> None:
    assert distance(Answer("a", (-1.0, -2.0)), Answer("a", (-1.0, -2.5))) == 0.5
    assert distance(Answer("a", (-90.0, -1.0)), Answer("a", (-99.0, -1.0)), least=-87.0) == 0.0
    assert distance(Answer("a", (-86.0,)), Answer("a", (-88.0,)), least=-87.0) == 2.0
    assert distance(Answer("a", (-1.0,)), Answer("a")) == float("inf")
    assert distance(Answer("a", (float("nan"),)), Answer("a", (-1.0,))) == float("inf")
    written = Prediction("a b", "x", "source", written=Written(["a", "b"], -1.5, "end"))
    assert answer_of(written) == Answer("a b", (-1.5,))
    assert accuracy([Answer("A B"), Answer("A")], ["A C", "A"], listed=True) == pytest.approx(2 / 3)
    assert accuracy([Answer("A")], [None], listed=False) is None


def test_a_text_of_several_lines_is_asked_as_one() -> None:
    assert in_one_line("\ufeffa\r\nb\nc\r\r") == "a\r b c"
