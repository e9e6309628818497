"""The same model as a page and as an ES module."""

import shutil
from pathlib import Path

import pytest

from elman.export.exporting import export
from elman.export.options import ExportOptions
from elman.export.parity import Line
from export_models import LABELS, SOURCES, tiny

TOOLS = all(map(shutil.which, ("clang", "wasm-ld", "node")))
pytestmark = pytest.mark.skipif(not TOOLS, reason="needs clang, wasm-ld and node")


@pytest.mark.slow
@pytest.mark.parametrize("to", ["html", "js"])
def test_answers_are_the_models(tmp_path: Path, to: str) -> None:
    predictor = tiny("seq2seq") if to == "html" else tiny("tag", model__crf=True, model__affixes=2)
    proof = export(
        predictor, to, tmp_path / "out", ExportOptions("own"), [Line(text) for text in SOURCES[:7]]
    )
    assert proof.equal == proof.lines == 7
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == ({"own.html", "proof.json"} if to == "html" else {"own.js", "own.d.ts", "proof.json"})
    if to == "html":
        page = (tmp_path / "out" / "own.html").read_text(encoding="utf-8")
        assert "http://" not in page
        assert "https://" not in page
        assert "default-src 'none'" in page


@pytest.mark.slow
def test_a_class_writes_in_a_page(tmp_path: Path) -> None:
    lines = [Line(label) for label in LABELS[:4]]
    proof = export(tiny("class2seq"), "html", tmp_path / "out", ExportOptions("model"), lines)
    assert proof.equal == proof.lines == 4
