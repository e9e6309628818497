"""The distribution elman-runtime in an environment that has no torch, nor elman itself."""

import json
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from test_onnx import exported, texts_of, trained

REPOSITORY = Path(__file__).resolve().parents[2]
NEEDED = ("numpy", "onnxruntime", "tokenizers")
ASK = """
import importlib.util, json, sys
assert importlib.util.find_spec("torch") is None and importlib.util.find_spec("pydantic") is None
from elman.runtime import load
for folder, texts in json.load(sys.stdin):
    print(json.dumps(load(folder, threads=1).predict(texts)))
"""


def linked(name, target):
    """What a distribution has, made visible in another environment without a copy."""
    for file in {path.parts[0] for path in distribution(name).files or () if ".." not in path.parts}:
        place = target / file
        if not place.exists():
            place.symlink_to(Path(distribution(name).locate_file(file)))


@pytest.mark.slow
def test_an_empty_environment_answers_as_the_models_do(tmp_path):
    wheels, home = tmp_path / "wheels", tmp_path / "environment"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", wheels, REPOSITORY / "runtime"]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = wheels.glob("elman_runtime-*.whl")
    venv.create(home, with_pip=False, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    install = [*pip, "install", "--no-deps", "--no-index", "--target", packages, wheel]
    subprocess.run(install, check=True, capture_output=True)
    [metadata] = packages.glob("elman_runtime-*.dist-info/METADATA")
    required = [line for line in metadata.read_text().split("\n") if line.startswith("Requires-Dist")]
    assert [line.split(": ")[1] for line in required] == [*NEEDED]
    for name in NEEDED:
        linked(name, packages)
    asked, expected = [], []
    for task in ("lm", "tag", "classify", "seq2seq", "class2seq"):
        folder = tmp_path / task
        folder.mkdir()
        predictor = trained(task, folder)
        asked.append((str(exported(predictor, folder)), texts_of(task)))
        expected.append(predictor.predict(texts_of(task)))
    program = [home / "bin" / "python", "-I", "-c", ASK]
    done = subprocess.run(program, input=json.dumps(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.split("\n") if line] == expected
