"""Every test starts from the same seed; kernels and records are kept away from the user's folders."""

import os
from pathlib import Path

import pytest
import torch

from elman.tensors import scratch

LONG = ("system", "fuzz", "recurrence", "bench", "corpora", "inspection")  # the inner loop leaves them out


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="the first case of each test that takes a moment")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("quick") and collection_path.name in LONG else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The file that takes longest comes first, so that no worker is left alone with it.

    The inner loop (``make quick``) takes one case of each test, and none that takes long.
    """
    items.sort(key=lambda item: item.path.name != "test_kill.py")
    if config.getoption("quick"):
        first = {(item.path, getattr(item, "originalname", item.name)): item for item in reversed(items)}
        kept = [item for item in first.values() if not any(map(item.get_closest_marker, ("slow", "gpu")))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = reversed(kept)


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kept away from the user's, and one for all workers: none compiles what another has."""
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "kernels"
    os.environ.setdefault("ELMAN_CACHE", str(folder))


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Code that tests train with, here and in other processes, is remembered away from the user's record."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(1)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tensors are small here; tests of threads ask for more of them."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def memory_that_is_watched() -> None:
    """Under a sanitizer every tensor has memory of its own, whose ends it knows."""
    if "sanitize" in os.environ.get("ELMAN_CFLAGS", ""):
        scratch.KEPT = 0
