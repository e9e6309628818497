"""The report opens offline and is right for short, long, cut and unfinished runs; so is the card."""

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

from elman.errors import RunError
from elman.presentation.card import write_card
from elman.presentation.curves import POINTS, curve, linear_ticks, log_ticks, tick_label
from elman.presentation.events import read_events
from elman.presentation.report import MOMENTS, ROWS, write_report
from elman.presentation.wording import network_name
from fake_run import CONFIG, DATA, fake_events, fake_run

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Checks that tags nest; keeps tags, attributes and texts."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open and self.open[-1] != "style":
            self.texts.append(text)


def charts_of(source):
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", source, re.DOTALL)]


def checked(run):
    """The report's source, after what must hold for every report."""
    path = write_report(run)
    assert path == run / "report.html"
    source = path.read_text(encoding="utf-8")
    page = Page(source)
    assert "</script" not in source
    assert not re.search(r"https?://|url\(|@import|<link|src=", source)
    words = " ".join(page.texts).lower().split()
    assert not {"nan", "inf", "-inf", "none"} & set(words)
    for chart in charts_of(source):
        for element in chart.iter():
            for name in ("x", "y", "cx", "cy", "width", "height", "d"):
                assert not re.search(r"nan|inf|e[+-]", element.get(name, ""))
                numbers = [float(n) for n in re.findall(r"-?\d+\.?\d*", element.get(name, ""))]
                assert all(-1 <= n <= 561 for n in numbers)
    assert [file.name for file in run.iterdir() if file.name.startswith(".")] == []
    return source


def test_a_whole_run(tmp_path):
    source = checked(fake_run(tmp_path / "tagger"))
    titles = re.findall(r"<figcaption><b>(.*?)</b>", source)
    assert titles == ["Loss", "Accuracy", "Learning rate", "Gradient norm"]
    tiles = dict(re.findall(r"<small>([^<]*)</small><b>(.*?)</b>", source))
    last = list(fake_events())[-1]
    assert tiles == {
        "best accuracy": f"{last['best']:.4f}",
        "best update": f"{last['best_update']:,}",
        "training time": "15 min 02 s",
        "parameters": "1.23 M",
        "tokens/s": tiles["tokens/s"],
    }
    assert 6500 < int(tiles["tokens/s"].replace(",", "")) < 6700
    assert "<h1>Tagger · bidirectional LSTM</h1>" in source
    assert "finished: all epochs done" in source
    assert "elman predict" in source
    assert "--resume" not in source
    assert "hidden = 200" in source
    assert "prefers-color-scheme: dark" in source
    assert "@media print" in source


def test_the_curves_lie_where_the_values_are(tmp_path):
    """Two updates, two values: the axis is read back from its own ticks."""
    events = [*fake_events(2, 1, 1)]
    events[1]["loss"], events[3]["loss"] = 1.0, 3.0
    loss = charts_of(checked(fake_run(tmp_path / "run", events)))[0]
    ticks = {
        float(t.text): float(t.get("y")) - 4
        for t in loss.iter("text")
        if t.get("text-anchor") == "end" and t.text[0].isdigit()
    }
    (low, at_low), *_, (high, at_high) = ticks.items()
    values = [
        low + (float(dot.get("cy")) - at_low) / (at_high - at_low) * (high - low)
        for dot in loss.findall("circle")
        if dot.get("class") == "dot train"
    ]
    assert values == pytest.approx([1.0, 3.0], abs=0.02)


def test_every_point_can_be_read(tmp_path):
    source = checked(fake_run(tmp_path / "run", fake_events(100, 10, 50)))
    assert re.search(r">update 50 · training \d\.\d{4} · validation \d\.\d{4}</text>", source)
    assert re.search(r">update 10 · training \d\.\d{4}</text>", source)  # no validation yet
    assert source.count('class="at"') == 10 + 2 + 10 + 10


def test_samples_are_escaped_and_keep_their_direction(tmp_path):
    source = checked(fake_run(tmp_path / "run"))
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; &quot;quoted&quot;" in source
    assert "<b>bold" not in source
    assert '<div dir="auto">ذهب/VERB الولد/NOUN إلى/ADP</div>' in source
    assert "猫/NOUN" in source
    hostile = [*fake_events(10, 5, 10)]
    hostile[-2]["samples"] = ["</td></table><script>alert(1)</script>\x00\x1b[1m"]
    text = checked(fake_run(tmp_path / "<i>run</i>", hostile, config=CONFIG + 'x = "</pre><script>"\n'))
    assert "<script" not in text
    assert "\x00" not in text


@pytest.mark.parametrize(
    ("events", "charts"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([*fake_events(10, 20, 20, ended=False)], 0, id="a start"),
        pytest.param([*fake_events(10, 10, 20, ended=False)], 3, id="one update"),
        pytest.param([*fake_events(10, 20, 10, ended=False)], 2, id="one validation"),
        pytest.param([*fake_events(10, 20, 20)], 0, id="an end without a validation"),
        pytest.param([*fake_events(10, 10, 10)], 4, id="one of each"),
    ],
)
def test_short_runs(tmp_path, events, charts):
    run = fake_run(tmp_path / "run", events)
    source = checked(run)
    assert len(charts_of(source)) == charts
    assert ("Nothing has been recorded yet" in source) == (charts == 0)
    assert ("--resume" in source) == (not any(event["event"] == "end" for event in events))
    assert write_card(run).read_text(encoding="utf-8").startswith("# Tagger")


@pytest.mark.slow
def test_a_long_run_is_thinned(tmp_path):
    source = checked(fake_run(tmp_path / "run", fake_events(20_000, 1, 50)))
    assert len(source) < 600_000
    assert 'class="band train"' in source  # what the average hides
    assert source.count("<tr") <= ROWS + 3
    assert "100 of 400 validations" in source
    assert f'<td class="n">{20_000:,}</td>' in source


def test_thinning_keeps_range_and_end():
    events = [{"update": k, "loss": float(k % 7)} for k in range(1, 20_001)]
    points = curve(events, "loss")
    assert len(points) == POINTS
    assert points[-1].x == 20_000
    assert (points[0].low, points[0].high) == (0.0, 6.0)
    assert points[0].y == pytest.approx(3.0, abs=0.1)


def test_values_that_are_no_numbers_are_left_out(tmp_path):
    run = fake_run(tmp_path / "run", fake_events(100, 10, 50))
    log = run / "metrics.jsonl"
    text = re.sub(r'"loss": [\d.]+', '"loss": NaN', log.read_text(encoding="utf-8"), count=1)
    text = re.sub(r'"gradient_norm": [\d.]+', '"gradient_norm": 1e999', text, count=1)
    log.write_text(
        re.sub(r'"gradient_norm": [\d.]+,', '"gradient_norm": 0.0,', text, count=1), encoding="utf-8"
    )
    assert checked(run).count('class="at"') == 9 + 2 + 10 + 8  # strips of the four charts


def test_equal_and_extreme_values(tmp_path):
    for number, value in enumerate((0.0, 1.0, -3.0, 1e-9, 1e12)):
        events = [*fake_events(100, 10, 50)]
        for event in events:
            event.update(
                {name: value for name in ("loss", "accuracy", "rate", "gradient_norm") if name in event}
            )
        checked(fake_run(tmp_path / str(number), events))


@pytest.mark.parametrize("tail", ['{"event": "upd', '{"event": "validation", "samples": ["\udce9', "", "\n"])
def test_a_cut_last_line_is_left_out(tmp_path, tail):
    run = fake_run(tmp_path / "run", fake_events(100, 10, 50, ended=False))
    before = read_events(run / "metrics.jsonl")
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(tail.encode("utf-8", errors="surrogateescape"))  # a character may be cut as well
    assert read_events(run / "metrics.jsonl") == before
    checked(run)


def test_other_damage_is_named(tmp_path):
    run = fake_run(tmp_path / "run", fake_events(100, 10, 50), tail="{broken\n{}\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl:15 is damaged"):
        write_report(run)
    with pytest.raises(RunError, match=r"nowhere/metrics\.jsonl is missing"):
        write_report(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"config\.toml: "):
        write_report(fake_run(tmp_path / "other", config="task = "))


def test_a_metric_that_is_the_loss(tmp_path):
    """The best loss is marked on the loss; the next figure gets the second chart."""
    events = [*fake_events(100, 10, 50, metric="loss")]
    for event in events:
        if event["event"] == "validation":
            event["perplexity"] = event.pop("accuracy") * 1000
    source = checked(
        fake_run(tmp_path / "run", events, config='task = "lm"\n[model]\ncell = "coupled_lstm"\n')
    )
    assert "<b>Perplexity</b> <small>log scale</small>" in source
    assert source.count('<circle class="dot best"') == 2
    assert "<h1>Language model · coupled LSTM</h1>" in source
    assert "elman generate" in source


def test_a_counted_model_says_so(tmp_path):
    events = [*fake_events(10, 10, 10)]
    events[-1]["reason"] = "counted"
    run = fake_run(tmp_path / "run", events)
    assert "finished: counted, not trained" in checked(run)
    assert "finished: counted, not trained" in write_card(run).read_text(encoding="utf-8")


@pytest.mark.parametrize("reasons", [None, {}, [], "since"])
def test_reasons_that_a_run_does_not_keep_are_left_out(reasons, tmp_path):
    source = checked(fake_run(tmp_path / "run", data=DATA | {"reasons": reasons}))
    assert "Chosen for these data" not in source


def test_reasons_stand_beside_the_values(tmp_path):
    reasons = {"model.hidden": "since <b>9 %</b> are new", "training.minutes": "as you say", "a.b.c": "?"}
    page = Page(checked(fake_run(tmp_path / "run", data=DATA | {"reasons": reasons})))
    place = page.texts.index("Chosen for these data")
    assert {"model.hidden", "200", "since <b>9 %</b> are new", "as you say"} <= set(page.texts[place:])


def test_the_card(tmp_path):
    run = fake_run(tmp_path / "my tagger")
    path = write_card(run)
    assert path == run / "card.md"
    text = path.read_text(encoding="utf-8")
    assert f"| training | train.conllu | 12,544 | 204,577 | `{'ab' * 32}` |" in text
    assert f"| validation | dev.conllu | 2,001 |  | `{'cd' * 32}` |" in text
    assert "blank line skipped, 3 ×" in text
    assert "bidirectional LSTM, 1,234,567 parameters" in text
    assert "learning rate: 0.002" in text
    assert "vectors: glove.txt.gz" in text
    best = list(fake_events())[-1]
    assert f"At update {best['best_update']:,}, chosen by accuracy" in text
    assert f"| accuracy | {best['best']:.4f} |" in text
    assert "elman predict 'my tagger' FILE" in text
    assert "Trained on train.conllu, judged on dev.conllu." in text
    assert "/corpora" not in text
    assert str(tmp_path) not in text


def test_names_in_the_card_are_text(tmp_path):
    config = CONFIG.replace('"lstm"', '"<b>|lstm"').replace('"tag"', '"<i>"')
    data = {"train": {"path": "<u>", "sha256": "`<s>"}}
    events = fake_events(10, 5, 10, metric="<em>")
    assert "<" not in write_card(fake_run(tmp_path / "run", events, config=config, data=data)).read_text()


def test_the_card_names_parts_and_built_in_corpora(tmp_path):
    def card(name, data, config=CONFIG):
        return write_card(fake_run(tmp_path / name, data=data, config=config)).read_text(encoding="utf-8")

    held = {"path": "a/all|.tsv", "part": "held-out"}
    text = card("held", {"train": held | {"part": "kept"}, "dev": held})
    assert (
        "Trained on all\\|.tsv (all but the part held out), judged on all\\|.tsv (the part held out)." in text
    )
    built_in = {"train": {"path": "builtin:recall"}, "dev": {"path": "builtin:recall/dev"}}
    assert "Trained on builtin:recall, judged on builtin:recall/dev." in card("built-in", built_in)
    pair = {"train": {"path": "x/a.en", "target": "x/a.de"}, "dev": {"path": "b.en", "target": "b.de"}}
    assert "Trained on a.en and a.de, judged on b.en and b.de." in card("pair", pair)
    alone = card("alone", None, 'task = "tag"\n[data]\ntrain = "d/a.conllu"\n')
    assert "Trained on a.conllu, judged on a part of a.conllu." in alone
    assert "| training | a.conllu | 12,544 | 204,577 |  |" in alone


def test_names_of_networks():
    assert network_name({"cell": "hard_gate"}) == "hard gate"
    assert network_name({"network": "window", "window": 5}) == "window of 5"
    two = {"cell": "gru", "encoder": {"cell": "lstm", "bidirectional": True}, "decoder": {}}
    assert network_name(two) == "bidirectional LSTM → GRU"


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (0, 20_000), (0.8934, 0.8935), (-3, 5), (1e-9, 3e-9), (0, 3e11)]
)
def test_linear_ticks_are_round_and_inside(low, high):
    ticks = linear_ticks(low, high)
    assert 3 <= len(ticks) <= 9
    assert all(low - 1e-9 * (high - low) <= tick <= high + 1e-9 * (high - low) for tick in ticks)
    assert len({tick_label(tick) for tick in ticks}) == len(ticks)


@pytest.mark.parametrize(("low", "high"), [(0.9, 1.1), (0.3, 30), (1e-12, 1e12), (0.4, 2.2), (5e-4, 7e3)])
def test_log_ticks_are_inside_and_few(low, high):
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 9
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)
    assert len({tick_label(tick) for tick in ticks}) == len(ticks)


def test_watched_examples_are_drawn_small_and_escaped(tmp_path):
    events = list(fake_events())
    validations = [event for event in events if event["event"] == "validation"]
    one = {"source": ["<b>", "b"], "truth": ["b", "</s>"], "forced": ["b", "b"], "free": ["b", "</s>"]}
    for event in validations:
        event["watched"] = [one | {"weights": [[0.25, 0.75], [0.0, 1.0]]}]
    source = write_report(fake_run(tmp_path / "run", events)).read_text()
    page = Page(source)
    figures = [attributes for tag, attributes in page.tags if attributes.get("class") == "watched"]
    assert 1 <= len(figures) <= MOMENTS
    assert f"update {validations[-1]['update']:,}" in page.texts  # the last one is among them
    assert source.count('class="wrong"') == len(figures)  # one wrong token each, where the truth is fed
    assert "<b>b" not in source
