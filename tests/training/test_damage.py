"""Whatever happens to a file of a run: a numbered error, or the very same answer."""

import json
import os
import random
import re
import resource
import shutil
from contextlib import suppress

import pytest
from runs import change_settings, resume, set_back

from elman.cli.output import quietly
from elman.cli.training import train
from elman.errors import ElmanError, RunError
from elman.predictor import load
from elman.training.checkpoint import POINTERS, point
from elman.training.ties import read_settings
from tiny import LONG, elman, timeless, train_command, write_data

pytestmark = pytest.mark.slow  # the inner loop leaves it out

FEW = {
    "training.max_steps": 4,
    "training.validate_every": 2,
    "training.log_every": 1,
    "training.save_seconds": 1000.0,
}
TEXTS = ["the dog likes Rex often", "Rex Smith sees the cat"]
TEXT = "".join(f"{text}\n" for text in TEXTS).encode()


class Subject:
    """A small run, what it says and what it comes to, and copies of it to be treated badly."""

    def __init__(self, run, folder, *, ended):
        self.run = shutil.copytree(run, folder / "subject", symlinks=True)
        self.copied = folder / "copy"
        if not ended:
            set_back(self.run, 4)
            for pointer in POINTERS:
                point(self.run, pointer, "update-00000002")
        self.said, self.end = predicted(self.run), self.final(run)
        assert self.check(self.copy(), "nothing") == (True, True)

    def copy(self):
        if self.copied.exists():
            shutil.rmtree(self.copied)
        return shutil.copytree(self.run, self.copied, symlinks=True)

    def files(self, run=None):
        """By name in the folder, in a fixed order."""
        run = run or self.run
        found = (path for path in run.rglob("*") if path.is_file() and not path.is_symlink())
        return sorted(str(path.relative_to(run)) for path in found if not path.is_relative_to(run / "best"))

    def final(self, run):
        """Log and checkpoints."""
        found = timeless(run)
        return {part: found[part] for part in ("log", "last", "best")}

    def check(self, run, what):
        """Predicting and continuing end in a numbered error or as ever; says whether each came to its end."""
        said, went_on = predicted(run), continued(run)
        assert said in (None, self.said), what
        if went_on:
            assert self.final(run) == self.end, what
        return said is not None, went_on


def predicted(run):
    """What it answers; None is an error with a number, and anything else that goes wrong is raised."""
    with suppress(ElmanError):
        return load(run).predict(TEXTS, details=True)


def continued(run):
    """Did it come to its end? What goes wrong otherwise than with a number is raised."""
    with suppress(ElmanError):
        with quietly():
            train(None, run, resume=True)
        return True
    return False


def checked(answer):
    """Did a command do its work? If not, it has said why, with a number."""
    assert answer.code in (0, 2, 3, 5), answer.err
    assert answer.code == 0 or re.search(r"elman: (.*: )?E\d{3}: ", answer.err), answer.err
    return answer.code == 0


@pytest.fixture(scope="module", autouse=True)
def no_waiting():
    """Nothing needs to reach the disk: no test here cuts the power."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="module")
def subjects(data, tmp_path_factory):
    """A tagger in the middle of its training, and a run of two sides and byte pairs that has ended."""
    found = {}
    for name in ("tag", "seq2seq"):
        folder = tmp_path_factory.mktemp(name)
        answer = elman(*train_command(name, data, folder / "run", FEW))
        assert answer.code == 0, answer.err
        found[name] = Subject(folder / "run", folder, ended=name == "seq2seq")
    return found


@pytest.mark.parametrize("name", ["tag", "seq2seq"])
def test_single_flipped_bits(name, subjects):
    subject, draw = subjects[name], random.Random(f"flip {name}")
    names = subject.files()
    outcomes = []
    for number in range(500 * LONG or 100):
        run = subject.copy()
        path = run / (names[number] if number < len(names) else draw.choice(names))
        content = bytearray(path.read_bytes())
        if not content:  # a lock
            continue
        bit = draw.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        outcomes.append(subject.check(run, f"bit {bit} of {path}"))
    assert {said for said, _ in outcomes} == {went_on for _, went_on in outcomes} == {True, False}


def special(path, kind):
    """Something that is no file in the place of one."""
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path.name)
        case "empty":
            path.touch()
        case "nested":
            path.write_text("[" * 100_000)


def test_any_file_in_the_place_of_any_other(subjects):
    subject, other = subjects["tag"], subjects["seq2seq"]
    others = [one.run / name for one in (subject, other) for name in one.files()]
    kinds = ["folder", "pipe", "device", "loop", "empty", "nested"]
    pairs = [(name, by) for name in subject.files() for by in (*others, *kinds)]
    for name, by in pairs if LONG else random.Random(1).sample(pairs, 100):
        run = subject.copy()
        (run / name).unlink()
        if isinstance(by, str):
            special(run / name, by)
        else:
            shutil.copy(by, run / name)
        subject.check(run, f"{by} in the place of {name}")


@pytest.mark.parametrize("kind", ["folder", "pipe", "device", "loop", "empty"])
@pytest.mark.parametrize(
    "name",
    ["best", "last", "checkpoints", "checkpoints/update-00000002", "cache", "cache/train", "cache/dev/words"],
)
@pytest.mark.slow
def test_something_else_in_the_place_of_a_folder(name, kind, subjects):
    subject = subjects["tag"]
    run = subject.copy()
    shutil.rmtree(run / name) if not (run / name).is_symlink() else (run / name).unlink()
    special(run / name, kind)
    subject.check(run, name)


def exchange(one, other):
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


@pytest.mark.parametrize("name", ["tag", "seq2seq"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("checkpoints/update-00000002", "checkpoints/update-00000004"),
        ("best", "last"),
        ("cache/train", "cache/dev"),
        ("config.toml", "data.json"),
        ("vocabulary.json", "data.json"),
    ],
)
def test_two_that_are_exchanged(name, one, other, subjects):
    subject = subjects[name]
    run = subject.copy()
    if (run / other).exists():
        exchange(run / one, run / other)
        subject.check(run, f"{one} and {other}")


def test_exchanged_checkpoints_are_named(data, tmp_path):
    run = tmp_path / "run"
    assert elman(*train_command("lm-sentence", data, run, FEW)).code == 0
    two, four = (run / "checkpoints" / f"update-0000000{update}" for update in (2, 4))
    exchange(two, four)
    for answer in (resume(run), elman("predict", run, stdin=TEXT)):
        assert answer.code == 5
        assert "is damaged: it is the checkpoint update-0000000" in answer.err
        assert "give it back its name" in answer.err


@pytest.mark.parametrize("part", ["examples", "words"])
def test_the_cache_of_another_part_or_run_is_made_again(part, subjects, data, tmp_path):
    subject = subjects["tag"]
    run = subject.copy()
    exchange(run / "cache" / "train" / part, run / "cache" / "dev" / part)
    answer = resume(run)
    assert answer.code == 0, answer.err
    for name in ("train", "dev"):
        place = run / "cache" / name
        assert f"{place} is missing, damaged or not of this run: it is made again" in answer.err
    assert subject.final(run) == subject.end

    other = tmp_path / "other"  # of the same data, but with other numbers
    assert elman(*train_command("tag", data, other, FEW | {"text.min_count": 9})).code == 0
    run = subject.copy()
    shutil.rmtree(run / "cache")
    shutil.copytree(other / "cache", run / "cache")
    assert "it is made again" in resume(run).err
    assert subject.final(run) == subject.end


@pytest.mark.parametrize("changed", [7, 2**31 - 1])
def test_an_exchanged_id_is_noticed_and_the_cache_made_again(changed, subjects):
    """Another word of the vocabulary, and one that no vocabulary has."""
    subject = subjects["tag"]
    run = subject.copy()
    path = run / "cache" / "train" / "examples" / "word.values"
    path.write_bytes(changed.to_bytes(4, "little") + path.read_bytes()[4:])
    answer = resume(run)
    assert answer.code == 0, answer.err
    assert f"{run / 'cache' / 'train'} is missing, damaged or not of this run: it is made again" in answer.err
    assert subject.final(run) == subject.end


def test_a_sound_cache_is_used(subjects):
    answer = resume(subjects["tag"].copy())
    assert answer.code == 0
    assert "made again" not in answer.err


# Settings.


def test_settings_that_were_changed_are_refused_unless_it_is_meant(subjects):
    subject = subjects["tag"]
    run = subject.copy()
    path = run / "config.toml"
    path.write_text(path.read_text().replace("seed = 1", "seed = 2"))
    for answer in (resume(run), elman("predict", run, stdin=TEXT)):
        assert answer.code == 5
        assert "config.toml was changed after Elman wrote it" in answer.err
        assert "delete its first line" in answer.err
    change_settings(run, "seed = 2", "seed = 3")
    for answer in (resume(run), elman("predict", run, stdin=TEXT)):
        assert answer.code == 5
        assert "training.seed is 3, the checkpoint has 1" in answer.err
    run = subject.copy()
    change_settings(run, "save_seconds = 1000.0", "save_seconds = 7.0")
    assert resume(run).code == 0
    assert elman("predict", run, stdin=TEXT).code == 0


def test_a_seal_that_is_damaged_is_no_seal_that_was_deleted(subjects):
    run = subjects["tag"].copy()
    path = run / "config.toml"
    content = path.read_bytes()
    for bit in range(8 * content.index(b"\n") + 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(RunError, match=r"was changed after Elman wrote it|is damaged"):
            read_settings(run)


def test_the_settings_of_another_run_are_named(subjects, data, tmp_path):
    other = tmp_path / "other"
    assert elman(*train_command("tag", data, other, FEW | {"training.clip": 0.5})).code == 0
    run = subjects["tag"].copy()
    shutil.copy(other / "config.toml", run / "config.toml")
    for answer in (resume(run), elman("predict", run, stdin=TEXT)):
        assert answer.code == 5
        assert "training.clip is 0.5, the checkpoint has 1.0" in answer.err


def test_a_file_that_changed_is_noticed_though_the_cache_is_there(tmp_path):
    folder, run = write_data(tmp_path), tmp_path / "run"
    assert elman(*train_command("lm-sentence", folder, run, FEW)).code == 0
    set_back(run, 4)
    path = folder / "lm.dev.txt"
    before = path.stat()
    path.write_text(path.read_text().replace("the", "eht", 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    answer = resume(run)
    assert answer.code == 5
    assert f"{path} has changed since the run began" in answer.err


# Links are not followed by what writes.


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        "metrics.jsonl",
        "report.html",
        "card.md",
        ".report.html.tmp",
        ".card.md.tmp",
        "cache/train/examples/lock",
        "cache/train/examples/meta.json",
        "cache/train/examples/word.values",
        "cache/train/examples/word.values.part",
        "cache/train/examples/meta.json.part",
        "checkpoints/.update-00000003.tmp-1",
        ".best.tmp-1",
    ],
)
def test_a_link_in_the_place_of_a_file_is_not_written_through(name, subjects, tmp_path):
    subject = subjects["tag"]
    run = subject.copy()
    target = tmp_path / "precious"
    target.write_bytes((run / name).read_bytes() if (run / name).exists() else b"precious")
    target.chmod(0o600)
    before = target.read_bytes()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    if name.startswith("cache"):
        (run / "cache" / "train" / "examples" / "tag.values").unlink()
    subject.check(run, name)
    assert target.read_bytes() == before


@pytest.mark.parametrize("name", [".config.toml.tmp", ".lock"])
def test_a_link_before_there_is_a_run_is_not_written_through(name, data, tmp_path):
    run, target = tmp_path / "run", tmp_path / "precious"
    run.mkdir()
    target.write_text("precious")
    (run / name).symlink_to(target)
    answer = elman(*train_command("lm-sentence", data, run, FEW))
    assert answer.code == (0 if name == ".config.toml.tmp" else 5), answer.err
    assert target.read_text() == "precious"


# No room.


@pytest.mark.parametrize("name", ["tag", "seq2seq"])
def test_no_room_for_larger_files_at_any_moment(name, data, tmp_path):
    """Encoding, settings, vocabularies, log, checkpoints and report hit the limit one after the other."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    command = train_command(name, data, tmp_path / "run", FEW)
    for room in (0, 100, 400, 900, 2000, 4000, 9000, 15_000, 30_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        try:
            answer = elman(*command, "--resume")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert checked(answer) or "File too large" in answer.err.splitlines()[-1]
    answer = elman(*command, "--resume")
    assert answer.code == 0, answer.err


# Log.


def test_a_changed_log_is_an_error_and_a_changed_closing_line_is_written_again(subjects):
    subject = subjects["seq2seq"]
    run = subject.copy()
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    end = json.loads(lines[-1])
    path.write_text("".join(lines[:-1]) + json.dumps(end | {"best": 99.0}) + "\n")
    assert resume(run).code == 0
    assert subject.final(run) == subject.end
    path.write_text("".join([lines[0].replace('"start"', '"stirt"'), *lines[1:]]))
    answer = resume(run)
    assert answer.code == 5
    assert f"{path} is not what it was at its checkpoint" in answer.err
