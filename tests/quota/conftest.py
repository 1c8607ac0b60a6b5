"""A server whose leases end soon, and the check that each test leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.ends import left_files
from helpers.server import Server
from helpers.waiting import wait_until

from quota.tenant import tenants
from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint

CONFIG = """
[leases]
grace_seconds = 0.2
[sessions]
resume_grace_seconds = 0.2
handshake_seconds = 60
[quota]
max_kernel_seconds = 1.5
[tenants.vip]
max_priority = 10
max_weight = 9
"""


OF_A_PROCESS = 3  # pidfd, control socket, log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("quota") / "rgpu.toml"
    config.write_text(CONFIG)
    with Server("--config", str(config)) as running:
        yield running


@pytest.fixture(scope="module")
def control(server: Server) -> Iterator[ControlClient]:
    with ControlClient(parse_endpoint(server.unix)) as client:
        yield client


def loop_of(server: Server) -> int:
    """The process id of the server's token loop."""
    (found,) = server.called("-m rgpu_server.tokens")
    return found


def has_loop(server: Server) -> bool:
    """True if the token loop is found among the server's processes."""
    try:
        return loop_of(server) > 0
    except ValueError:
        return False


def descriptors(pid: int) -> int:
    """Returns how many descriptors a process has, without those of the processes that it watches:
    the idle compilers of some tenants stay, and the spare one comes two seconds later.
    """
    found = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(link))
    return len(found) - OF_A_PROCESS * found.count("anon_inode:[pidfd]")


@pytest.fixture(autouse=True)
def nothing_is_left(server: Server, control: ControlClient) -> Iterator[None]:
    """Server and loop live on with as many descriptors as before, and serve; sessions, leases and
    workers are gone.
    """
    assert server.process is not None
    wait_until(lambda: has_loop(server))
    loop = loop_of(server)

    def held() -> tuple[int, ...]:
        """Waits until no lease and no session is left; returns the numbers of descriptors, and of
        files that nobody has: other tests have files too.
        """
        assert server.process is not None
        wait_until(lambda: not control.leases() and not control.sessions())
        wait_until(lambda: len(server.children()) == 2)  # warm ones
        return descriptors(server.process.pid), descriptors(loop), len(left_files())

    with tenants(server, {"lease_key": "first"}):
        pass
    before = held()
    yield
    assert server.process.poll() is None, "the daemon ended"
    assert loop_of(server) == loop, "the token loop ended"
    # A warm worker may be counted as there before the daemon has all of its descriptors.
    most = before[0] + OF_A_PROCESS, *before[1:]
    wait_until(lambda: all(now <= then for now, then in zip(held(), most, strict=True)))
