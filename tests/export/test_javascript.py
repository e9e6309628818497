"""The same model as a page and as an ES module, in node and in browsers."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chromium
import firefox
from elman.export.exporting import export
from elman.export.html import MODEL
from elman.export.options import ExportOptions
from elman.export.parity import Line
from elman.predictor import Predictor
from export_models import LABELS, SOURCES, tiny

TOOLS = all(map(shutil.which, ("clang", "wasm-ld", "node")))
pytestmark = pytest.mark.skipif(not TOOLS, reason="needs clang, wasm-ld and node")
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("html", "seq2seq", {"decoding__beam": 3, "model__input_feeding": True, "model__cell": "gru"}),
    ("js", "tag", {"model__crf": True, "model__affixes": 2, "model__layers": 2}),
    ("html", "classify", {"model__pooling": "attention", "model__cell": "layer_norm_lstm"}),
    ("js", "lm", {"text__unit": "bpe", "text__vocabulary_size": 300, "model__cell": "elman"}),
    ("html", "class2seq", {}),
]
EXPLAIN = """
import { readFileSync } from "node:fs";
import { load } from "./model.mjs";
const model = await load();
const all = JSON.parse(readFileSync(0, "utf8")).map((text) => model.explain(text));
for (const one of all) for (const cell of one.cells) cell.values = [...cell.values];
process.stdout.write(JSON.stringify(all));
"""


def explained(module: str, texts: list[str], folder: Path) -> list[dict[str, Any]]:
    (folder / "model.mjs").write_text(module, encoding="utf-8")
    (folder / "explain.mjs").write_text(EXPLAIN, encoding="utf-8")
    given = json.dumps(texts).encode()
    done = subprocess.run(["node", "explain.mjs"], cwd=folder, input=given, capture_output=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def check_inside(predictor: Predictor, text: str, found: dict[str, Any]) -> None:
    """What an export tells about the way to an answer is what ``inspect`` tells."""
    seen = predictor.inspect(text)
    assert found["text"] == seen.answer
    strips = {(one.network, one.layer, one.direction == "←", one.name): one for one in seen.gates}
    assert strips
    told = 0
    for cell in found["cells"]:
        values = np.array(cell["values"]).reshape(-1, len(cell["names"]), cell["units"])
        for k, name in enumerate(cell["names"]):
            own = strips[cell["network"], cell["layer"] + 1, cell["direction"] == 1, name]
            assert own.kind == ("gate" if k < len(cell["names"]) - cell["states"] else "state")
            np.testing.assert_allclose(values[:, k], own.values, atol=1e-4)
            told += 1
    assert told == len(strips)
    steps = seen.unrolled[-1].steps
    written = found["written"]
    assert len(written) in (len(steps), 0)
    readable = [*predictor.task.text_fields.values()][-1].readable
    assert [one["token"] for one in written] == readable([step.output for step in steps[: len(written)]])
    for one, step in zip(written, steps, strict=False):
        assert one["probability"] == pytest.approx(step.probability, abs=1e-4)
        assert [chance for _, chance in one["top"]] == pytest.approx(
            [chance for _, chance in step.top[:5]], abs=1e-4
        )
        assert one["prompted"] == (seen.task == "lm" and step.t <= len(found["read"]))
    if seen.attention is not None:
        np.testing.assert_allclose(found["attention"], seen.attention.weights, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("to", "task", "settings"), MODELS, ids=[task for _, task, _ in MODELS])
def test_answers_and_what_led_to_them_are_the_models(
    tmp_path: Path, to: str, task: str, settings: dict[str, Any]
) -> None:
    predictor = tiny(task, **settings)
    texts = LABELS[:4] if task == "class2seq" else SOURCES[:7]
    proof = export(predictor, to, tmp_path / "out", ExportOptions("own"), [Line(text) for text in texts])
    assert proof.equal == proof.lines == len(texts)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == ({"own.html", "proof.json"} if to == "html" else {"own.js", "own.d.ts", "proof.json"})
    text = (tmp_path / "out" / ("own.html" if to == "html" else "own.js")).read_text(encoding="utf-8")
    if to == "html":
        assert "default-src 'none'" in text
        assert not re.search(r"(src|href)=\"(?!data:)", text)
        [text] = MODEL.findall(text)
    for one, found in zip(texts[:3], explained(text, texts[:3], tmp_path), strict=True):
        check_inside(predictor, one, found)


ODD = """
import { load } from "./model.mjs";
const model = await load(), said = [];
const odd = ["a\\ud800", "\\udc00b", "\\0", "x".repeat(70_000), "x ".repeat(1001)];
for (const text of odd) {
  try { said.push(model.answer(text).text); } catch (error) { said.push(`${error.name}: ${error.message}`); }
}
process.stdout.write(JSON.stringify([said, model.explain("a\\x1cb\\u3000\\ufeffc").read]));
"""


@pytest.mark.slow
def test_what_is_no_text_is_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    export(tiny("seq2seq", text__unit="word"), "js", folder, ExportOptions("model"), [Line("a bad day")])
    (folder / "model.mjs").write_text((folder / "model.js").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "odd.mjs").write_text(ODD, encoding="utf-8")
    done = subprocess.run(["node", "odd.mjs"], cwd=folder, capture_output=True, check=True)
    said, read = json.loads(done.stdout)
    long = "RangeError: longer than this model reads"
    assert said == ["RangeError: not UTF-8"] * 2 + ["RangeError: a NUL character", long, long]
    assert read == ["a", "b", "\ufeffc"]


BROWSERS = {"chromium": chromium.Chromium, "firefox": firefox.Firefox}
THERE = {"chromium": chromium.BROWSER, "firefox": firefox.BROWSER}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    predictor, folder = tiny("seq2seq"), tmp_path_factory.mktemp("page") / "out"
    export(predictor, "html", folder, ExportOptions("own"), [Line(text) for text in SOURCES[:7]])
    return folder / "own.html", [str(one) for one in predictor.predict(SOURCES[:7])]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*BROWSERS])
def test_a_browser_answers_as_the_model_and_loads_nothing(
    tmp_path: Path, page: tuple[Path, list[str]], name: str
) -> None:
    if THERE[name] is None:
        pytest.skip(f"needs {name}")
    path, expected = page
    browser = BROWSERS[name](tmp_path / "profile")
    try:
        browser.open(path.as_uri())
        browser.wait("window.elman")
        asked = json.dumps(SOURCES[:7])
        assert browser.ask(f"{asked}.map((text) => window.elman.answer(text).text)") == expected
        typed = "t => { t.value = '3 mai 2021'; t.dispatchEvent(new Event('input')); return 1; }"
        browser.ask(f"({typed})(document.getElementById('text'))")
        assert browser.ask("document.getElementById('answer').textContent") == expected[0]
        for section in ("attention", "unrolled", "gates"):
            browser.wait(f"document.querySelector('#{section} :is(svg, canvas)')")
        assert browser.ask("performance.getEntriesByType('resource').length") == 0
        if isinstance(browser, chromium.Chromium):
            assert browser.requests == [path.as_uri()]
            assert not browser.complaints
    finally:
        browser.close()
