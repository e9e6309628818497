"""Tiny runs for all tests of the server, and one server in a thread for most of them."""

import pytest

from served import Served, tiny_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    return tiny_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def served(runs):
    one = Served(runs)
    yield one
    one.close()


@pytest.fixture
def client(served):
    import httpx

    with httpx.Client(base_url=served.address, timeout=30) as one:
        yield one
