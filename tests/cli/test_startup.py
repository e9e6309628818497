"""Commands import only what they need, and look for no garbage meanwhile."""

import gc
import subprocess
import sys

import pytest

from elman.cli.startup import quick_imports
from tiny import elman, train_command, write_data

FEW = {"training.max_steps": 2, "training.validate_every": 2}
PROBE = """
import gc, sys
from elman.cli.main import run
try: run()
except SystemExit: pass
names = "matplotlib sacrebleu tokenizers jinja2 rich torch._dynamo triton".split()
print(*(name for name in names if name in sys.modules), file=sys.stderr)
print(gc.isenabled(), gc.get_freeze_count() > 100_000, file=sys.stderr)
"""


@pytest.mark.slow
def test_a_prediction_imports_no_more_than_it_needs(tmp_path):
    run = tmp_path / "run"
    assert elman(*train_command("tag", write_data(tmp_path), run, FEW)).code == 0
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "predict", run], input=b"the dog\n", capture_output=True, check=True
    )
    assert len(done.stdout.split(b"\n")) == 2
    assert done.stderr.decode().split("\n")[:2] == ["", "True True"]


@pytest.mark.parametrize("enabled", [True, False])
def test_where_torch_is_there_already_nothing_changes(enabled):
    before = gc.get_freeze_count()
    try:
        if not enabled:
            gc.disable()
        with quick_imports():
            assert gc.isenabled() is enabled
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert gc.get_freeze_count() <= before  # nothing was frozen; what was may have gone meanwhile
