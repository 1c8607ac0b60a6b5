"""A server with an emulated device and every transport, shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import pki
from helpers.agent import GRPC
from helpers.server import HAS_UCX, UCX, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC, *(UCX if HAS_UCX else ()), tls=pki.config()) as running:
        yield running
