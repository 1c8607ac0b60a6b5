"""Quotas of running leases change, and what runs feels it within a second."""

from __future__ import annotations

import time

import pytest
from helpers.figures import figures
from helpers.server import Server
from helpers.waiting import wait_until

from quota.tenant import MS, SECOND, Tenant, overlap, part, shares, tenants, union
from rgpu_client.control import ControlClient, LeaseRequest, ResizeRequest
from rgpu_common.errors import ServerError
from rgpu_common.v1 import lease_pb2

pytestmark = pytest.mark.measures

MIB = 1 << 20
KERNEL = 2 * MS
HALF = {"share_request_ppm": 500_000, "memory_bytes": 64 * MIB}
# In windows of a second: one slice and what is in flight on each side, credit of a sleeper, noise.
NEAR = 0.12
OUT_OF_MEMORY = 2


def lease_of(control: ControlClient, key: str) -> lease_pb2.Lease:
    (found,) = (lease for lease in control.leases() if lease.key == key)
    return found


def resize(control: ControlClient, key: str, **what: object) -> None:
    control.resize(lease_of(control, key).lease_id, ResizeRequest(**what))  # type: ignore[arg-type]


def pass_by(ns: int) -> int:
    """Waits until the device's clock has advanced by `ns`; returns its time."""
    until = time.time_ns() + ns
    wait_until(lambda: time.time_ns() >= until)
    return time.time_ns()


def queue(tenant: Tenant, seconds: float) -> None:
    for _ in range(round(seconds * SECOND / KERNEL)):
        tenant.hold(KERNEL)


def test_a_share_is_resized(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF}, {"lease_key": "b", **HALF}) as (a, b):
        queue(a, 1.6)
        queue(b, 2.6)
        begin = pass_by(SECOND)
        resize(control, "a", share_request_ppm=100_000)
        resize(control, "b", share_request_ppm=900_000)
        done = time.time_ns()
        quota = {lease.key: lease.quota.share_request_ppm for lease in control.leases()}
        assert quota == {"a": 100_000, "b": 900_000}
        runs = [tenant.runs() for tenant in (a, b)]
        assert overlap(*runs) == 0
        # Within a second, and from then on as long as both have work.
        last = min(r[-1].end for r in runs)
        with figures():
            assert last > done + SECOND
            before = shares(runs, begin - SECOND // 2, begin)
            after = shares(runs, done + SECOND // 2, last)
            assert before == pytest.approx([0.5, 0.5], abs=NEAR)
            assert after == pytest.approx([0.1, 0.9], abs=NEAR)


def test_a_limit_is_resized(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF, "share_request_ppm": 200_000}) as (a,):
        queue(a, 1.6)
        begin = pass_by(SECOND // 2)
        resize(control, "a", share_limit_ppm=300_000)
        at = pass_by(SECOND)
        assert lease_of(control, "a").quota.share_limit_ppm == 300_000
        resize(control, "a", share_limit_ppm=1_000_000)
        runs = a.runs()
        with figures():
            assert part(runs, begin - SECOND // 4, begin) > 0.8
            assert part(runs, begin + 50 * MS, at) <= 0.3 + 0.1
            assert part(runs, at + 300 * MS, runs[-1].end) > 0.8


def test_memory_below_use_takes_nothing_away(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF}) as (a,):
        held = [a.alloc(16 * MIB) for _ in range(3)]
        queue(a, 0.2)
        resize(control, "a", memory_bytes=32 * MIB)
        lease = lease_of(control, "a")
        assert lease.quota.memory_bytes == 32 * MIB
        assert lease.used_memory_bytes >= 48 * MIB
        info = a.call("rgpuMemGetInfo")
        assert (info["free"], info["total"]) == (0, 32 * MIB)
        for _ in range(2):
            assert a.result("rgpuMemAlloc", bytes=512).status == OUT_OF_MEMORY
            a.post("rgpuMemFree", dptr=held.pop())
            a.synchronize()
        assert a.result("rgpuMemAlloc", bytes=8 * MIB).status == 0
        assert len(a.runs()) == 100
        resize(control, "a", memory_bytes=8 * MIB, kill=True)
        assert "was made smaller than the memory that it held" in a.gone()


def test_pause_stops_and_resume_goes_on(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF}, {"lease_key": "b", **HALF}) as (a, b):
        at = a.alloc(4096)
        queue(a, 1.0)
        a.post(
            "rgpuMemset", dst=at, pitch=0, element_bytes=1, value=7, width=4096, height=1,
            stream=1, synchronous=0,
        )  # fmt: skip
        queue(b, 0.5)
        pass_by(SECOND // 4)
        lease = lease_of(control, "a").lease_id
        assert control.pause(lease).lease.state == lease_pb2.LEASE_STATE_PAUSED
        paused = time.time_ns()
        # Questions are answered, and the other one goes on alone.
        assert a.call("rgpuMemGetInfo")["total"] == 64 * MIB
        assert len(b.runs()) == 250
        resumed = pass_by(SECOND // 4)
        control.resume(lease)
        runs = a.runs()
        assert len(runs) == 500
        assert a.download(at, 4096) == bytes([7]) * 4096
        with figures():
            assert b.runs()[-1].end > paused
            # Work that was on the device at the pause (5 ms of it, and one kernel) drains.
            assert not [run for run in runs if paused + 50 * MS < run.begin < resumed]
            assert [run for run in runs if run.begin > resumed]


def test_a_paused_lease_that_begins(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF}) as (a,):
        lease = lease_of(control, "a").lease_id
        control.pause(lease)
        queue(a, 0.1)
        sync = a.post("rgpuContextSynchronize", ctx=10)
        a.call("rgpuMemGetInfo")
        pass_by(200 * MS)
        assert sync not in a.replies
        control.resume(lease)
        assert a.wait(sync).status == 0
        assert len(a.runs()) == 50


def test_drain_lets_what_runs_go_on(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "a", **HALF}) as (a,):
        control.drain()
        try:
            with pytest.raises(AssertionError, match="drained"):
                Tenant(server, lease_key="late", **HALF)
            with pytest.raises(ServerError, match="drained"):
                control.grant(LeaseRequest(key="late", memory_bytes=MIB))
            queue(a, 0.1)
            assert len(a.runs()) == 50
        finally:
            control.undrain()
        with tenants(server, {"lease_key": "late", **HALF, "share_request_ppm": 0}) as (late,):
            queue(late, 0.1)
            assert len(late.runs()) == 50


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"priority": 10}, {}, (0.8, 0.2)),
        ({"weight": 5}, {"weight": 1}, (0.7, 0.3)),
    ],
)
def test_priority_and_weight_shape_the_surplus(
    server: Server,
    control: ControlClient,
    one: dict[str, int],
    other: dict[str, int],
    expected: tuple[float, float],
) -> None:
    """Both have a request of 20 %; 60 % are lent."""
    ask = {"share_request_ppm": 200_000, "memory_bytes": 64 * MIB, "tenant": "vip"}
    with tenants(server, {"lease_key": "a", **ask}, {"lease_key": "b", **ask}) as (a, b):
        for key, what in (("a", one), ("b", other)):
            resize(control, key, **what)
        queue(a, 1.6)
        queue(b, 1.0)
        runs = a.runs(), b.runs()
        begin = max(r[0].begin for r in runs) + SECOND // 4
        end = min(r[-1].end for r in runs)
        with figures():
            assert end > begin + SECOND // 2
            assert shares(runs, begin, end) == pytest.approx(expected, abs=NEAR)


def test_best_effort_gets_what_is_left(server: Server) -> None:
    whole = {"lease_key": "a", "share_request_ppm": 1_000_000, "memory_bytes": 64 * MIB}
    with tenants(server, whole, {"lease_key": "b", "memory_bytes": 64 * MIB}) as (a, b):
        queue(b, 1.0)
        queue(a, 1.0)
        ours, theirs = a.runs(), b.runs()
        begin, end = ours[0].begin, ours[-1].end
        assert len(theirs) == 500
        with figures():
            # Half a percent, and what its first kernels took.
            assert union(theirs, begin, end) <= 0.05 * (end - begin) + 30 * MS
            assert part(theirs, end, theirs[-1].end) > 0.8
