"""Streams that wait for their client do not keep the device from others, and come back in turn.

The server may let a kernel run for a minute: what ends those who do not give the device back must
not be what helps the others here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.server import Server

from quota.tenant import MS, Tenant, overlap, tenants
from rgpu_common.wire.messages import Control, Notice, encode_message

MIB = 1 << 20
HALF = {"share_request_ppm": 500_000, "memory_bytes": 128 * MIB}
VICTIM = {"lease_key": "v", **HALF}
SLOW = {"lease_key": "s", **HALF}
HOLDS = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config: Path = tmp_path_factory.mktemp("quota") / "rgpu.toml"
    config.write_text("[leases]\ngrace_seconds = 0.2\n")
    with Server("--config", str(config)) as running:
        yield running


def works(tenant: Tenant, seconds: float) -> int:
    """Launches for so long; how many kernels have run."""
    before = len(tenant.runs())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(20):
            tenant.hold(MS)
        tenant.synchronize()
    return len(tenant.runs()) - before


def ask_for_bytes(slow: Tenant, at: int, stream: int) -> None:
    """A copy from pinned memory, whose bytes the client is asked for, and kernels behind it."""
    slow.post(
        "rgpuCopyHtoDPull", dst=at, pitch=0, width=MIB, height=1, stream=stream
    )  # fmt: skip
    for _ in range(HOLDS):
        slow.hold(MS, stream=stream)


def answer(slow: Tenant, data: bytes) -> None:
    """What a client does whose network was slow."""
    left = len(data)
    while left:
        fields, _ = slow.notice(Notice.PULL)
        offset, size = int(fields["offset"]), int(fields["bytes"])
        left -= size
        slow.control.send(
            encode_message(
                Control.PULL_DATA,
                {"pull": fields["pull"], "offset": offset},
                bulk=data[offset : offset + size],
            )
        )


def test_one_whose_bytes_are_long_in_coming(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        for round_ in range(3):
            ask_for_bytes(slow, at, stream)
            assert works(victim, 0.5) > 0
            data = bytes([round_ + 1]) * MIB
            answer(slow, data)
            # Both have work now; neither runs while the other does.
            assert works(victim, 0.2) > 0
            slow.synchronize()
            assert slow.download(at, MIB) == data
        theirs = slow.runs()
        assert len(theirs) == 3 * HOLDS
        assert overlap(victim.runs(), theirs) == 0


def test_other_streams_go_on(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        waiting, going = slow.streams(2)
        ask_for_bytes(slow, at, waiting)
        for _ in range(5):
            assert works(victim, 0.1) > 0
            for _ in range(HOLDS):
                slow.hold(MS, stream=going)
            slow.call("rgpuStreamSynchronize", stream=going)
        answer(slow, bytes(MIB))
        theirs = slow.runs()
        assert len(theirs) == 6 * HOLDS
        assert overlap(victim.runs(), theirs) == 0


def test_much_that_waits_is_not_more_than_fits(server: Server) -> None:
    """What is launched behind a stream that waits is held back, or all of it would run at once."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        for _ in range(20):
            slow.hold(MS, stream=stream)  # it is known how long one takes
        slow.synchronize()
        ask_for_bytes(slow, at, stream)
        for _ in range(300):
            slow.hold(MS, stream=stream)
        assert works(victim, 1.0) > 0
        answer(slow, bytes(MIB))
        assert works(victim, 0.5) > 0
        theirs = slow.runs()
        assert len(theirs) == 20 + HOLDS + 300
        ours = victim.runs()
        assert overlap(ours, theirs) == 0


def test_one_that_does_not_read(server: Server) -> None:
    """Once everything that can be on its way is, it stands still, and keeps nobody."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(96 * MIB)
        for stream in slow.streams(2):
            for _ in range(3):
                slow.post(
                    "rgpuCopyDtoHLater", src=at, pitch=0, width=96 * MIB, height=1, stream=stream
                )
                slow.hold(2 * MS, stream=stream)
        assert works(victim, 1.0) > 0
        assert works(victim, 1.0) > 0
        theirs = slow.runs()
        assert len(theirs) == 6
        assert overlap(victim.runs(), theirs) == 0


def test_a_session_that_ends_while_its_stream_waits(server: Server) -> None:
    with tenants(server, VICTIM) as (victim,):
        for _ in range(3):
            with tenants(server, SLOW) as (slow,):
                at = slow.alloc(MIB)
                ask_for_bytes(slow, at, *slow.streams(1))
                assert works(victim, 0.2) > 0
            assert works(victim, 0.1) > 0


def test_a_stream_that_waits_is_destroyed(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        ask_for_bytes(slow, at, stream)
        assert works(victim, 0.2) > 0
        slow.post("rgpuStreamDestroy", stream=stream)
        assert works(victim, 0.2) > 0
        answer(slow, bytes(MIB))
        assert works(victim, 0.2) > 0
        slow.hold(MS)
        slow.synchronize()
        assert works(victim, 0.2) > 0
