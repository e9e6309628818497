"""Every test starts from the same seed; kernels and records are kept away from the user's folders."""

import os

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The file that takes longest comes first, so that no worker is left alone with it."""
    items.sort(key=lambda item: item.path.name != "test_kill.py")


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
