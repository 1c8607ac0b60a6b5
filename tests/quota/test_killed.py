"""Programs that are killed while they have work on the device.

The server holds a session without a connection for a minute. Others do not wait for that if the
client's process is known to be dead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.server import Server, configured
from helpers.waiting import wait_until

from quota.tenant import MS, Tenant, tenants
from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint

MIB = 1 << 20
VICTIM = {"lease_key": "v", "share_request_ppm": 500_000, "memory_bytes": 64 * MIB}
CULPRIT = {"RGPU_LEASE": "a", "RGPU_MEMORY": "64MiB", "RGPU_SHARE": "0.5"}
GRACE_SECONDS = 60
SOON = 30.0  # seconds; the server waits twice as long for a client that may come back
START = """
import struct
from ctypes import byref, c_size_t, c_uint64, c_void_p
from quota.tenant import PTX
cuda.open()
log = cuda.alloc(1 << 20)
flag = cuda.alloc(4)
module = cuda.load(PTX + bytes(1))
hold, endless = (cuda.function(module, name) for name in ("hold", "endless"))
cuda("cuMemsetD8_v2", c_uint64(log), 0, c_size_t(1 << 20))
cuda("cuMemsetD8_v2", c_uint64(flag), 0, c_size_t(4))
def go():
    cuda.memory()
    print("go", flush=True)
    wait_for_line()
"""
ENDLESS = START + "cuda.launch(endless, 1, 1, 0, log)\ngo()\n"
VALUE = (
    START
    + """
cuda("cuStreamWaitValue32_v2", None, c_uint64(flag), 1, 1)
for _ in range(20):
    cuda.launch(hold, 1, 1, 2_000_000, log)
go()
"""
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = configured(
        tmp_path_factory.mktemp("quota"), resume_grace_seconds=GRACE_SECONDS, handshake_seconds=60
    )
    with Server("--config", config) as running:
        yield running


@pytest.fixture
def control(server: Server) -> Iterator[ControlClient]:
    with ControlClient(parse_endpoint(server.unix)) as client:
        yield client
        wait_until(lambda: not client.sessions())


def works_soon(victim: Tenant) -> None:
    begin = time.monotonic()
    victim.hold(2 * MS)
    victim.synchronize()
    assert time.monotonic() - begin < SOON


def leases(control: ControlClient) -> set[str]:
    return {session.lease_key for session in control.sessions()}


@pytest.mark.parametrize("resume", ["0", "1"])
@pytest.mark.parametrize("transport", ["unix", "shm"])
@pytest.mark.parametrize("source", [ENDLESS, VALUE], ids=["endless", "value"])
def test_a_process_of_this_machine_that_is_killed_keeps_nobody_waiting(
    server: Server, control: ControlClient, source: str, transport: str, resume: str
) -> None:
    """Also if its session would survive a cut."""
    with tenants(server, VICTIM) as (victim,):
        client = clients.start(server.address(transport), source, RGPU_RESUME=resume, **CULPRIT)
        assert client.stdout is not None
        assert client.stdout.readline() == "go\n", client.communicate()
        client.kill()
        client.communicate()
        works_soon(victim)
        wait_until(lambda: leases(control) == {"v"}, SOON)
