"""What a shell is told when somebody presses the tab key."""

import pytest

from tiny import elman

SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs by several names, and what is none."""
    for name in ("runs/names", "runs/dates", "runs/two words", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.toml").touch()
        if name != "other":
            (tmp_path / name / "metrics.jsonl").touch()
    monkeypatch.chdir(tmp_path)


def completed(line, monkeypatch, shell="bash"):
    """The words that a line may go on with."""
    monkeypatch.setenv("_ELMAN_COMPLETE", f"complete_{shell}")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    code, out, err = elman()
    assert (code, err) == (0, "")
    return out.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("elman co", ["compare", "corpora"]),
        ("elman train cla", ["class2seq", "classify"]),
        ("elman train lm --baseline ", ["bag", "ngram", "window"]),
        ("elman predict ", ["runs/dates", "runs/names"]),
        ("elman predict runs/n", ["runs/names"]),
        ("elman evaluate runs/names x --against runs/d", ["runs/dates"]),
        ("elman predict runs/names --format js", ["jsonl"]),
        ("elman predict oth", []),  # the shell completes files
        ("elman predict runs/names fi", []),
    ],
)
def test_words_are_completed(line, words, folder, monkeypatch):
    assert completed(line, monkeypatch) == words


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_served(shell, folder, monkeypatch):
    assert "runs/names" in " ".join(completed("elman predict runs/n", monkeypatch, shell))
    monkeypatch.setenv("_ELMAN_COMPLETE", f"source_{shell}")
    code, out, err = elman()
    assert (code, err) == (0, "")
    assert f"_ELMAN_COMPLETE=complete_{shell}" in out
