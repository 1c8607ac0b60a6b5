"""Servers that the tests of this folder share, and their addresses for the transport of each test.

The shim puts frames into a ring or into a stream of bytes: `shm` and `tcp` are one of each, and
every test runs over both. `make soak` runs them over all transports. The gateway of grpc passes on
the bytes of the same stream; tests/transport and tests/e2e test it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import pki
from helpers.agent import GRPC
from helpers.counts import repeated_over
from helpers.server import Server
from helpers.two_devices import Pair
from helpers.waiting import wait_until

from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint

TRANSPORTS = ["shm", "tcp", *repeated_over("unix", "tls", "grpc")]


@pytest.fixture(scope="package")
def running() -> Iterator[Server]:
    """A server for all tests that leave it running, with room for many leases.

    A test whose program asks for its own amount of memory, or is killed, names a lease of its own:
    the session of a killed program stays for a while. That is a second here, because the next test
    waits until it has ended; these tests cut no connection.
    """
    more = '[leases]\nmemory = "256MiB"\n[sessions]\nresume_grace_seconds = 1\n'
    config = pki.config(more=more)
    with Server(*GRPC, device="emulated:64GiB", tls=config) as server:
        yield server


@pytest.fixture(scope="package")
def control(running: Server) -> Iterator[ControlClient]:
    """Asks the server about its sessions."""
    with ControlClient(parse_endpoint(running.unix)) as client:
        yield client


@pytest.fixture(params=TRANSPORTS)
def server(running: Server, control: ControlClient, request: pytest.FixtureRequest) -> str:
    """The server's address for the transport of the test.

    Programs that name no lease share one, and so do a test's programs over several transports. A
    session ends a moment after its program. Its memory would be freed while the program of this
    test counts what is free.
    """
    wait_until(lambda: not control.sessions())
    return running.address(request.param)


@pytest.fixture(scope="package")
def pair() -> Iterator[Pair]:
    """Two servers with three devices, for all tests that leave them running."""
    with Pair() as two:
        yield two
