"""Settings of the two sides, what goes together, and the schedule of teacher forcing (rows E3, E6)."""

import itertools
import tomllib

import pytest

from elman.attention.base import Attention
from elman.config import Section, changed, describe, merge, parse_settings, read_toml, to_toml, validate
from elman.errors import ConfigError, UnknownNameError
from elman.registry import ATTENTIONS, register
from elman.tasks.seq2seq_settings import (
    DecoderModel,
    EncoderModel,
    Seq2SeqModel,
    Seq2SeqSettings,
    Seq2SeqText,
    Seq2SeqTraining,
    SideModel,
    SideText,
    forcing,
)
from tiny_tasks import ready

SCHEDULES = ("linear", "exponential", "inverse-sigmoid")


def settings(*pairs):
    """The settings of a command line."""
    return validate(Seq2SeqSettings, merge({"task": "seq2seq"}, parse_settings(pairs)))


def mistakes(*pairs):
    with pytest.raises(ConfigError) as caught:
        settings(*pairs)
    return str(caught.value)


# Two sides


def test_a_side_is_the_whole_where_it_says_nothing():
    text = settings(
        "text.unit=bpe", "text.lowercase=true", "text.vocabulary_size=900", "text.min_count=3"
    ).text
    for side in (text.side("source"), text.side("target")):
        assert (side.unit, side.lowercase, side.vocabulary_size, side.min_count) == ("bpe", True, 900, 3)


OWN = {
    "unit": "character",
    "unit_options": {"form": "NFC"},
    "lowercase": False,
    "min_count": 5,
    "vocabulary_size": 77,
    "vocabulary": ["a", "b"],
    "vectors": "own.txt",
    "tune_vectors": True,
}
WHOLE = {
    "unit": "word",
    "unit_options": {"form": "NFD"},
    "lowercase": True,
    "min_count": 2,
    "vocabulary_size": 99,
    "vocabulary": ["c"],
    "vectors": "whole.txt",
    "tune_vectors": False,
}


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("side", "other"), [("source", "target"), ("target", "source")])
def test_a_side_has_its_own_where_it_says_so(name, side, other):
    text = Seq2SeqText(**WHOLE, **{side: {name: OWN[name]}})
    assert text.side(side).model_dump() == WHOLE | {name: OWN[name]}
    assert text.side(other).model_dump() == WHOLE


def test_every_setting_of_a_text_can_be_a_sides_own():
    assert SideText.model_fields.keys() - Seq2SeqText().side("source").model_dump().keys() == {"remove"}
    assert set(OWN) == set(Seq2SeqText().side("source").model_dump())


def test_one_vocabulary_needs_the_same_unit_and_case():
    assert "text.shared is one vocabulary" in mistakes("text.shared=true", "text.target.unit=character")
    assert "same unit and case" in mistakes("text.shared=true", "text.source.lowercase=true")
    assert "same unit and case" in mistakes("text.shared=true", "text.target.vocabulary_size=50")
    assert settings("text.shared=true", "text.unit=word", "text.target.unit=word").text.shared
    assert settings("text.shared=true", "text.target.remove='[0-2]'").text.shared
    assert settings("text.target.unit=character").text.side("target").unit == "character"


@pytest.mark.parametrize("form", ["single", "naive"])
def test_one_network_needs_the_same_unit_and_case_E6(form):
    message = mistakes(f"model.form={form}", "text.target.unit=character")
    assert f"model.form '{form}' is one network with one vocabulary" in message
    same = settings(f"model.form={form}", "text.unit=character", "text.target.unit=character")
    assert same.model.form == form


def test_what_is_removed_is_a_regular_expression():
    text = settings("text.target.remove='[0-2]'").text
    assert (text.target.remove, text.source.remove) == ("[0-2]", None)
    for wrong in ("[", "[[a]", "(" * 5000, "a{99999999999}"):
        assert "text.target.remove: not a regular expression" in mistakes(f"text.target.remove='{wrong}'")


# Two networks


@pytest.mark.parametrize(
    ("pairs", "encoder", "decoder"),
    [
        ([], (None, None), (None, None)),
        (["model.hidden=8"], (8, None), (8, None)),
        (["model.hidden=8", "model.layers=3"], (8, 3), (8, 3)),
        (["model.hidden=[8, 4]"], ([8, 4], None), ([8, 4], None)),
        (["model.hidden=8", "model.decoder.layers=2"], (8, None), (8, 2)),
        (["model.hidden=8", "model.layers=2", "model.decoder.layers=1"], (8, 2), (8, 1)),
        (["model.hidden=8", "model.layers=2", "model.encoder.hidden=5"], (5, 2), (8, 2)),
        (["model.hidden=8", "model.layers=2", "model.encoder.hidden=[5, 6, 7]"], ([5, 6, 7], None), (8, 2)),
        (["model.hidden=[8, 4]", "model.encoder.hidden=5"], (5, 2), ([8, 4], None)),
        (["model.hidden=[8, 4]", "model.encoder.hidden=[3]"], ([3], None), ([8, 4], None)),
        (
            ["model.hidden=[8, 4]", "model.layers=2", "model.decoder.hidden=5", "model.decoder.layers=1"],
            ([8, 4], 2),
            (5, 1),
        ),
        (["model.encoder.hidden=5", "model.decoder.hidden=[6, 7]"], (5, None), ([6, 7], None)),
    ],
)
def test_width_and_depth_of_both_networks(pairs, encoder, decoder):
    model = settings(*pairs).model
    for side, expected in (("encoder", encoder), ("decoder", decoder)):
        network = model.network(side)
        assert (network.hidden, network.layers) == expected, side


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        (
            ["model.hidden=[8, 4]", "model.decoder.layers=1"],
            "the decoder gets 2 widths, [8, 4], but 1 layers",
        ),
        (
            ["model.hidden=[8, 4]", "model.encoder.layers=3"],
            "the encoder gets 2 widths, [8, 4], but 3 layers",
        ),
        (["model.hidden=[8]", "model.layers=2"], "the encoder gets 1 widths, [8], but 2 layers"),
        (["model.decoder.hidden=[4]", "model.decoder.layers=3"], "the decoder gets 1 widths, [4], but 3"),
    ],
)
def test_widths_and_layers_that_do_not_agree_are_named(pairs, message):
    assert mistakes(*pairs).startswith(f"E501: model: {message}")


def test_cells_and_directions_of_both_networks():
    model = settings(
        "model.cell=elman",
        "model.cell_options.activation=relu",
        "model.decoder.cell=gru",
        "model.decoder.cell_options={bias=false}",
        "model.zoneout=0.1",
        "model.dropout=0.25",
    ).model
    encoder, decoder = model.network("encoder"), model.network("decoder")
    assert (encoder.cell, encoder.cell_options, encoder.bidirectional) == (
        "elman",
        {"activation": "relu"},
        True,
    )
    assert (decoder.cell, decoder.cell_options, decoder.bidirectional) == ("gru", {"bias": False}, False)
    assert (encoder.zoneout, encoder.dropout) == (decoder.zoneout, decoder.dropout) == (0.1, 0.25)


@pytest.mark.parametrize(
    ("pairs", "both"),
    [
        ([], True),
        (["model.bidirectional=false"], False),
        (["model.encoder.bidirectional=false"], False),
        (["model.bidirectional=false", "model.encoder.bidirectional=true"], True),
        (["model.decoder.bidirectional=false"], True),
        (["model.form=single"], False),
        (["model.form=naive"], False),
    ],
)
def test_only_an_encoder_reads_in_both_directions(pairs, both):
    model = settings(*pairs).model
    assert model.network("encoder").bidirectional == both
    assert not model.network("decoder").bidirectional


def test_a_bidirectional_decoder_is_refused():
    assert mistakes("model.decoder.bidirectional=true") == (
        "E501: model.decoder.bidirectional: a decoder goes in one direction; "
        "it cannot read what it has not written"
    )


def test_a_tied_embedding_has_to_be_there():
    assert "has no embedding to tie" in mistakes("model.tied=true", "model.embedding=0")
    assert "has no embedding to tie" in mistakes("model.tied=all", "model.embedding=0")
    assert settings("model.tied=false", "model.embedding=0").model.tied is False
    assert settings("model.tied=true").model.tied is True


def test_one_embedding_for_all_needs_one_vocabulary():
    assert "model.tied 'all' needs one vocabulary for both sides; set text.shared = true" in mistakes(
        "model.tied=all"
    )
    assert settings("model.tied=all", "text.shared=true").model.tied == "all"
    assert settings("model.tied=all", "model.form=single").model.tied == "all"


# One network


@pytest.mark.parametrize("form", ["single", "naive"])
@pytest.mark.parametrize(
    ("pair", "name"),
    [
        ("model.encoder.hidden=3", "encoder"),
        ("model.decoder.cell=gru", "decoder"),
        ("model.attention=dot", "attention"),
        ("model.start=transform", "start"),
        ("model.start=zero", "start"),
        ("model.context=every-step", "context"),
        ("model.input_feeding=true", "input_feeding"),
        ("model.bidirectional=true", "bidirectional"),
    ],
)
def test_what_one_network_cannot_have_E6(form, pair, name):
    message = mistakes(f"model.form={form}", pair)
    expected = f"form {form!r} is one network that goes on; model.{name} would need two"
    assert message == f"E501: model: {expected}"
    settings(pair)  # two can


def test_all_that_one_network_cannot_have_is_said_at_once_E6():
    message = mistakes(
        "model.form=single", "model.attention=dot", "model.start=zero", "model.decoder.layers=2"
    )
    assert message.endswith("model.decoder, model.attention, model.start would need two")


@pytest.mark.parametrize("form", ["single", "naive"])
def test_what_one_network_can_have_E6(form):
    model = settings(
        f"model.form={form}",
        "model.attention=none",
        "model.start=copy",
        "model.bidirectional=false",
        "model.hidden=[4, 5]",
        "model.tied=true",
    ).model
    assert model.network("encoder") == model.network("decoder")
    assert model.network("encoder").hidden == [4, 5]


# Attention


@pytest.mark.parametrize("name", ["none", *ATTENTIONS.names()])
def test_every_score_is_known_by_its_name(name):
    assert settings(f"model.attention={name}").model.attention == name


def test_an_unknown_score_lists_the_near_ones():
    message = mistakes("model.attention=additve")
    assert message.startswith("E501: model.attention: no attention named 'additve'; did you mean 'additive'?")
    assert message.endswith("none is no attention")


def test_a_score_that_is_not_there_is_found_before_training(tmp_path):
    with pytest.raises(UnknownNameError, match=r"'nowhere\.py:Score' cannot be loaded"):
        ready("seq2seq", tmp_path, {"model.attention": "nowhere.py:Score"})


def test_a_users_score_is_known(monkeypatch):
    monkeypatch.setattr(ATTENTIONS, "_added", dict(ATTENTIONS._added))
    register("mine", type("Mine", (Attention,), {}))
    assert settings("model.attention=mine").model.attention == "mine"


# Written and read


WRITTEN = [
    [],
    ["model.form=single"],
    ["model.form=naive", "model.attention=none", "model.start=copy"],
    ["model.encoder.hidden=[3, 4]", "model.encoder.bidirectional=false", "model.decoder.cell=gru"],
    ["model.decoder.cell_options={bias=false}", "model.attention_options={width=3}"],
    ["model.attention=location", "model.attention_options={filters=2, reach=1}", "model.tied=true"],
    ["model.tied=all", "text.shared=true", 'data.columns={"🙂 é\\""=1}'],
    ["text.source.unit=bpe", "text.target.vocabulary=['é\"', '🙂', '\\']", "text.target.remove='\\d'"],
    ["training.teacher_forcing=0.25", "training.teacher_forcing_schedule=linear", "evaluation.metrics=[]"],
]


@pytest.mark.parametrize("comments", [False, True])
@pytest.mark.parametrize("pairs", WRITTEN, ids=lambda pairs: ", ".join(pairs) or "defaults")
def test_what_is_written_is_read_back(pairs, comments, tmp_path):
    config, path = settings(*pairs), tmp_path / "config.toml"
    path.write_text(to_toml(config, comments=comments), encoding="utf-8")
    again = validate(Seq2SeqSettings, read_toml(path), path)
    assert again == config
    assert to_toml(again, comments=comments) == path.read_text(encoding="utf-8")


def test_tables_in_tables_are_written_with_their_whole_name():
    class Inner(Section):
        depth: int = 3

    class Middle(Section):
        inner: Inner = Inner()
        depth: int = 2

    class Outer(Section):
        middle: Middle = Middle()
        depth: int = 1

    text = to_toml(Outer())
    assert text == "depth = 1\n\n[middle]\ndepth = 2\n\n[middle.inner]\ndepth = 3\n"
    assert validate(Outer, tomllib.loads(text)) == Outer()


def test_a_changed_copy_keeps_its_sides():
    config = settings("model.encoder.hidden=3", "model.form=two", "text.target.unit=character")
    other = changed(config, {"model.decoder.hidden": 4, "model.start": "copy", "model.attention": "dot"})
    assert other.model.encoder == config.model.encoder
    assert other.model.decoder == DecoderModel(hidden=4)
    assert other.text == config.text
    one = changed(settings("model.form=single"), {"model.start": "copy", "model.attention": "none"})
    assert not one.model.bidirectional


def test_a_complete_file_has_every_setting_in_its_table():
    text = to_toml(settings(), comments=True)
    tables = [line[1:-1] for line in text.split("\n") if line.startswith("[")]
    expected = ["data", "text", "text.source", "text.target", "model", "model.encoder", "model.decoder"]
    assert tables == [*expected, "training", "decoding", "evaluation"]
    named, table = set(), ""
    for line in text.split("\n"):
        if line.startswith("["):
            table = f"{line[1:-1]}."
        elif " = " in line:
            named.add(table + line.removeprefix("# ").partition(" = ")[0])
    assert named == {key for key, *_ in describe(Seq2SeqSettings)}
    assert tomllib.loads(text)["model"]["encoder"] == {"network": "rnn", "network_options": {}}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("model.encoder.hiden=3", "model.encoder.hiden is unknown; did you mean 'hidden'?"),
        ("model.decoder.sell=gru", "model.decoder.sell is unknown; did you mean 'cell'?"),
        ("text.source.lower_case=true", "text.source.lower_case is unknown; did you mean 'lowercase'?"),
        ("text.targt.unit=word", "text.targt is unknown; did you mean 'target'?"),
        ("evaluation.metric=[]", "evaluation.metric is unknown; did you mean 'metrics'?"),
        ("model.encoder.hidden=0", "model.encoder.hidden is 0: "),
        ("model.decoder.layers=two", "model.decoder.layers is 'two': "),
        (
            "model.decoder=gru",
            "model.decoder: a table of settings stands here, not 'gru'; a cell is set by its key cell",
        ),
        (
            "model.encoder=bag",
            "model.encoder: a table of settings stands here, not 'bag'; a cell is set by its key cell",
        ),
        ("model.form=three", "model.form is 'three': "),
        ("training.teacher_forcing=1.5", "training.teacher_forcing is 1.5: "),
        ("training.teacher_forcing_schedule=sigmoid", "training.teacher_forcing_schedule is 'sigmoid': "),
        (
            "evaluation.metrics=['rouge']",
            "evaluation.metrics[0]: no metric named 'rouge'; Known: bleu, chrf, ter",
        ),
    ],
)
def test_a_mistake_is_named_with_its_whole_key(pair, message):
    assert mistakes(pair).startswith(f"E501: {message}")


def test_a_mistake_in_an_inner_table_is_named_with_its_line(tmp_path):
    path = tmp_path / "my.toml"
    path.write_text(
        'task = "seq2seq"\n\n[model]\nhidden = 3\n\n[model.encoder]\ncel = "gru"\n', encoding="utf-8"
    )
    with pytest.raises(ConfigError) as caught:
        validate(Seq2SeqSettings, read_toml(path), path)
    assert f"{path}:7: model.encoder.cel is unknown; did you mean 'cell'?" in str(caught.value)


def test_all_mistakes_of_both_sides_at_once():
    message = mistakes("model.encoder.hiden=3", "model.decoder.bidirectional=true", "text.source.unit=letter")
    assert message.startswith("E501: 3 mistakes")
    for key in ("model.encoder.hiden", "model.decoder.bidirectional", "text.source.unit"):
        assert key in message


def test_sides_say_nothing_until_asked():
    for kind in (SideText, SideModel, DecoderModel):
        assert all(value is None for value in kind().model_dump().values())
    assert EncoderModel().model_dump(exclude_none=True) == {"network": "rnn", "network_options": {}}
    assert (Seq2SeqModel().encoder, Seq2SeqModel().decoder) == (EncoderModel(), DecoderModel())


# Teacher forcing


def schedule(name, p):
    return Seq2SeqTraining(teacher_forcing=p, teacher_forcing_schedule=name)


@pytest.mark.parametrize("p", [0.0, 0.001, 0.1, 0.35, 0.7, 1.0])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_falls_from_one_to_its_end_E3(name, p):
    training = schedule(name, p)
    assert forcing(training, 0.0) == 1.0
    assert forcing(training, 1.0) == p
    values = [forcing(training, step / 200) for step in range(201)]
    assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(values))
    assert all(p <= value <= 1 for value in values[:-1])
    if p < 1:
        assert len({round(value, 9) for value in values}) == 201
    else:
        assert set(values) == {1.0}  # so that all steps can be computed at once
    assert forcing(training, -0.5) == 1.0  # before and after, as at the ends
    assert forcing(training, 1.5) == p


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_a_constant_is_constant_E3(p):
    assert {forcing(schedule("constant", p), x) for x in (0.0, 0.2, 0.9, 1.0)} == {p}
    assert forcing(Seq2SeqTraining(), 0.5) == 1.0


def test_the_shapes_of_the_schedules_E3():
    assert forcing(schedule("linear", 0.2), 0.25) == pytest.approx(0.8)
    assert forcing(schedule("exponential", 0.25), 0.5) == pytest.approx(0.5)
    assert forcing(schedule("exponential", 0.0), 0.5) == pytest.approx(0.1)  # on its way to a hundredth
    assert forcing(schedule("inverse-sigmoid", 0.2), 0.5) == pytest.approx(0.6)
    early, late = (forcing(schedule("inverse-sigmoid", 0.0), x) for x in (0.1, 0.9))
    assert early > 0.97  # flat at both ends, unlike a line
    assert late < 0.03
