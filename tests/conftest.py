"""Every test starts from the same seed; kernels and records are kept away from the user's folders."""

import os

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("ELMAN_CACHE", str(tmp_path_factory.mktemp("kernels")))


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
