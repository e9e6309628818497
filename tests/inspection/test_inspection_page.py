"""The page of an inspection: one file, of bounded size, that shows the numbers on the screen of a browser."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch

from elman.inspection.inspection import Question, inspect
from elman.inspection.saving import page, save
from elman.inspection.watching import Clamp
from tiny_tasks import DATA, TEXTS, descend, ready

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")


def screen(path, *, script="", width=1200, dark=False):
    """The document after its scripts have run, and what they complained of; ``script`` runs last."""
    if script:
        text = path.read_text(encoding="utf-8").replace("</body>", f"<script>{script}</script></body>")
        path = path.with_name("acted.html")
        path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [
            BROWSER,
            *(
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                "--disable-background-networking",
            ),
            *("--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", f"--window-size={width},900"),
            *(["--blink-settings=preferredColorScheme=0"] if dark else []),
            f"--user-data-dir={path.parent / 'profile'}",
            "--dump-dom",
            path.as_uri(),
        ],
        capture_output=True,
        check=True,
        timeout=120,
    )
    complaints = re.findall(r"CONSOLE.*", done.stderr.decode(errors="replace"))
    return done.stdout.decode("utf-8"), complaints


def plain_text(document):
    body = re.sub(r"<(script|style)[^>]*>.*?</\1>", "", document, flags=re.S)
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", body)))


def strip_of(found, packed):
    [strip] = [one for one in found.gates if (one.place, one.name) == (packed["place"], packed["name"])]
    return strip


def made(name, folder, settings=None, question=None, data=None):
    one = ready(name, folder, settings, data)
    descend(one, 40)
    return inspect(one.task, one.model, question or Question(TEXTS[name][0]), run=f"runs/{name}")


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("name", DATA)
def test_what_was_found_is_on_the_screen(name, tmp_path):
    found = made(name, tmp_path)
    save(tmp_path / "page.html", [found])
    document, complaints = screen(tmp_path / "page.html")
    text = plain_text(document)
    assert complaints == []
    assert 'data-ready="yes"' in document
    assert not re.search(r"\[object|undefined|NaN", text)
    told = json.loads(json.dumps(found.as_json()))
    assert told["gradients"][0]["sentence"] in text
    numbers = {float(one) for one in re.findall(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text)}
    assert {told["gradients"][0]["rate"] or 1.0, told["influence"]["error"]} <= numbers
    first = told["unrolled"][0]["steps"][0]
    assert "t = 1: " in text
    for token, chance in first["top"][:2]:
        assert token in text
        assert float(f"{100 * chance:.3g}") in numbers
    for section in (
        "The network unrolled",
        "Gates and states",
        "The gradient through time",
        "How a gate writes",
    ):
        assert section in text
    assert ("Attention step by step" in text) == (name == "seq2seq")
    assert ("The search" in text) == (name not in ("tag", "classify"))
    assert "8 11 3" in text  # what the hard gate writes
    assert f"{told['gates'][0]['name']} {told['gates'][0]['kind']}" in text
    assert document.count('role="img"') >= 4  # each with a name for those who do not see it
    assert all('aria-label="' in tag for tag in re.findall(r"<(?:canvas|svg)[^>]*role=.img.[^>]*>", document))


@needs_browser
@pytest.mark.slow
def test_the_player_goes_with_keys_and_slider(tmp_path):
    found = made("class2seq", tmp_path, question=Question("it", "is raining cats"))
    save(tmp_path / "page.html", [found])
    press = """{
      const box = document.querySelector("#unrolled .card > div:last-child");
      const key = name => box.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
      key("ArrowRight"); key("ArrowRight"); key("ArrowLeft");
      document.body.dataset.where = document.querySelector(".where").textContent;
      const slider = document.querySelector("#unrolled input");
      slider.value = 4; slider.dispatchEvent(new Event("input"));
      document.body.dataset.end = document.querySelector(".where").textContent;
      const canvas = document.querySelector("#gates canvas");
      for (const name of ["ArrowDown", "ArrowRight"])
        canvas.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
      document.body.dataset.said = document.getElementById("said").textContent;
      document.querySelector("#gates details").open = true; }"""
    document, complaints = screen(tmp_path / "page.html", script=press)
    assert complaints == []
    where, end, said = (
        unescape(re.search(rf'data-{name}="([^"]*)"', document)[1]) for name in ("where", "end", "said")
    )
    steps = found.unrolled[0].steps
    assert where.startswith("t = 2: truth fed: is, out comes raining")
    assert end.startswith("t = 4: truth fed: cats, out comes </s>")
    strip = found.gates[0]
    unit = strip.order[0] + 1
    value = round(float(strip.values[1, unit - 1]), 3)
    assert said.startswith(f"{strip.name} of unit {unit} at 2, is: {value:g}")
    assert f">{value:g}</td>" in document  # the same number in the table as under the keys
    assert strip.values.shape[0] == len(steps)


@needs_browser
@pytest.mark.slow
def test_two_stand_side_by_side(tmp_path):
    one = ready("lm", tmp_path, {"decoding.max_length": 3})
    plain = inspect(one.task, one.model, Question("the cat"), run="runs/a")
    held = inspect(one.task, one.model, Question("the cat", clamps=[Clamp("c", 3, 0.0)]), run="runs/a")
    save(tmp_path / "page.html", [plain, held])
    document, complaints = screen(tmp_path / "page.html", dark=True)
    assert complaints == []
    assert "unit 3 of c is held at 0" in plain_text(document)
    assert document.count('class="where"') == 2
    assert "original" in plain_text(document)


HOSTILE = (
    "</script><script>document.title='caught'</script> <b>&amp; \u2028 שלום עולם مرحبا 漢字 नमस्ते 🙂 \\u003c"
)


@needs_browser
@pytest.mark.slow
def test_text_of_any_script_is_text(tmp_path):
    one = ready("tag", tmp_path, data="".join(f"{word}\tA\nx\tB\n\n" for word in HOSTILE.split(" ")))
    found = inspect(one.task, one.model, Question(HOSTILE))
    save(tmp_path / "page.html", [found])
    document, complaints = screen(tmp_path / "page.html")
    assert complaints == []
    assert "<title>caught" not in document
    text = plain_text(document)
    for word in ("שלום", "مرحبا", "漢字", "नमस्ते", "🙂", "<b>&amp;"):
        assert word in text
    assert 'dir="auto"' in document
    assert 'class="tokens" dir="ltr"' in document  # its first letters are Latin
    assert document.count("<bdi>") > 5  # a word of one direction among others keeps to itself


def test_the_page_needs_nothing_else(tmp_path):
    text = page([made("seq2seq", tmp_path)])
    assert not re.search(r"(?:src|href)=[\"'](?!#)", text)
    assert not re.search(
        r"@import|url\((?!#)|fetch\(|XMLHttpRequest|WebSocket|https?://(?!www\.w3\.org/2000/svg)", text
    )
    assert "default-src 'none'" in text


@pytest.mark.parametrize(("tokens", "most"), [(5, 1.5e6), (40, 1.5e6), (200, 8e6)])
@pytest.mark.slow
def test_a_page_is_not_too_large(tokens, most, tmp_path):
    settings = {"model.hidden": 256, "model.layers": 2, "model.bidirectional": True}
    one = ready("tag", tmp_path, settings)
    text = " ".join((["the", "Cat", "sees", "a", "dog"] * 40)[:tokens])
    found = inspect(one.task, one.model, Question(text))
    size = len(page([found]).encode())
    assert size < most, size
    assert sum(np.size(strip.values) for strip in found.gates) == tokens * 2 * 2 * 6 * 256


@pytest.mark.parametrize("factor", [1, 1e7])
def test_numbers_are_rounded_alike_in_page_and_json(factor, tmp_path):
    import base64

    found = made("lm", tmp_path)
    found = replace(found, gates=[replace(one, values=factor * one.values) for one in found.gates])
    told = found.as_json()
    data = json.loads(re.search(r'id="data">(.*?)</script>', page([found]), re.S)[1])[0]
    for strip, packed in zip(told["gates"], data["gates"], strict=True):
        numbers = np.frombuffer(base64.b64decode(packed["values"]), "<i2").reshape(len(packed["tokens"]), -1)
        shown = numbers / 10.0 ** packed["decimals"]
        assert abs(shown).max() > 0.9 * abs(strip_of(found, packed).values).max()
        np.testing.assert_array_equal(shown, np.array(strip["values"])[:, packed["units"]])
    assert {key: value for key, value in data.items() if key != "gates"} == {
        key: value for key, value in told.items() if key != "gates"
    }


@pytest.mark.slow
def test_a_long_text_does_not_take_long(tmp_path):
    """200 tokens, two layers of 256 units: a few seconds a part; a busy machine gets more."""
    import time

    one = ready("lm", tmp_path, {"model.hidden": 256, "model.layers": 2, "decoding.max_length": 2})
    text = " ".join(["the cat sees a dog"] * 40)
    for part, most in (("unrolled", 3), ("gates", 3), ("gradients", 15), ("influence", 3), ("neighbours", 3)):
        began = time.process_time()
        inspect(one.task, one.model, Question(text, parts=[part]))
        assert time.process_time() - began < 2 * most
    assert torch.get_num_threads() >= 1


@needs_browser
@pytest.mark.slow
def test_a_page_of_hundreds_of_tokens_is_drawn(tmp_path):
    """A matrix has more numbers then than a function takes arguments."""
    found = made("lm", tmp_path)
    tokens = [f"w{n}" for n in range(480)]
    flow = replace(found.gradients[0], matrix=np.eye(480) + 1e-3, tokens=tokens, outputs=tokens)
    part = replace(found.influence, occlusion=-np.eye(480), tokens=tokens, outputs=tokens)
    part = replace(part, attributions=np.linspace(-2, 2, 480))
    save(tmp_path / "page.html", [replace(found, gradients=[flow], influence=part)])
    document, complaints = screen(tmp_path / "page.html")
    assert complaints == []
    assert 'data-ready="yes"' in document
    text = plain_text(document)
    assert "≤ 0.0010 1.0" in text
    assert "−2 2" in text


@needs_browser
@pytest.mark.slow
def test_tokens_without_ink_are_seen(tmp_path):
    words = ["a", "\0", "\u202e", "\u200d", "\u0301", "b\u00a0c", "👩\u200d👧"]
    one = ready("tag", tmp_path)
    save(tmp_path / "page.html", [inspect(one.task, one.model, Question(" ".join(words)))])
    document, complaints = screen(tmp_path / "page.html")
    assert complaints == []
    [steps] = re.findall(r'<div class="tokens".*?</div>', document)[:1]
    shown = [unescape(one) for one in re.findall(r"<bdi>(.*?)</bdi>", steps)]
    assert shown == ["a", "U+0000", "U+202E", "U+200D", "◌\u0301", "b U+00A0 c", "👩\u200d👧"]


@needs_browser
@pytest.mark.slow
def test_tokens_of_a_text_from_the_right_stand_from_the_right(tmp_path):
    one = ready("tag", tmp_path, data="שלום\tA\nעולם\tB\n\nעולם\tB\n")
    save(tmp_path / "page.html", [inspect(one.task, one.model, Question("שלום עולם"))])
    ask = "{ document.body.dataset.places = [...document.querySelectorAll('.tokens span')]"
    ask += ".map(one => one.getBoundingClientRect().left).join(' ');"
    ask += "document.body.dataset.ways = [...document.querySelectorAll('.tokens small')]"
    ask += ".map(one => getComputedStyle(one).direction).join(' '); }"
    document, _ = screen(tmp_path / "page.html", script=ask)
    first, second, *_ = map(float, re.search(r'data-places="([^"]*)"', document)[1].split())
    assert first > second
    # Numbers stand from the left, or the sign of a negative one comes after it.
    assert set(re.search(r'data-ways="([^"]*)"', document)[1].split()) == {"ltr"}
