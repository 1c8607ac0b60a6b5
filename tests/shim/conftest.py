"""A server for the whole module, over both transports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.server import Server


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as server:
        yield server


@pytest.fixture(params=["unix", "tcp"])
def server(running: Server, request: pytest.FixtureRequest) -> str:
    """Its address."""
    return running.address(request.param)
