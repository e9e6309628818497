"""Every test starts from the same seed; kernels are compiled once a session, away from the user's cache."""

import os

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ.setdefault("ELMAN_CACHE", str(tmp_path_factory.mktemp("kernels")))


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(1)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tensors are small here; tests of threads ask for more of them."""
    torch.set_num_threads(1)
