"""A server for the whole module, over each transport."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import pki
from helpers.agent import GRPC
from helpers.server import Server


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server(*GRPC, device="emulated:1GiB", tls=pki.config()) as server:
        yield server


@pytest.fixture(params=["unix", "shm", "tcp", "tls", "grpc"])
def server(running: Server, request: pytest.FixtureRequest) -> str:
    """The server's address for the transport of the test."""
    return running.address(request.param)
