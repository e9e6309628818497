"""Runs that were trained, stopped and damaged."""

import shutil

from tiny import (
    elman,
)

SHORT = {
    "training.max_steps": 60,
    "training.validate_every": 20,
    "training.log_every": 5,
    "training.save_seconds": 1000.0,
}


def resume(run):
    return elman("train", "--out", run, "--resume")


def checkpoints(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def set_back(run, last=60):
    """As if a kill had come after the checkpoint before the last."""
    shutil.rmtree(run / "checkpoints" / f"update-{last:08d}")


def change_settings(run, before, after):
    """As a user does who means it: the first line goes."""
    path = run / "config.toml"
    lines = path.read_text(encoding="utf-8").split("\n")
    text = "\n".join(lines[lines[0].startswith("# sha256 ") :])
    assert before in text
    path.write_text(text.replace(before, after), encoding="utf-8")


def damage(folder):
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
