"""Tenants that want more than their share: each gets its share and no more, and no other
gets less.
"""

from __future__ import annotations

import pytest
from helpers.figures import figures
from helpers.server import Server

from quota.tenant import MS, SECOND, Tenant, in_thread, overlap, part, tenants, union
from rgpu_client.control import ControlClient

pytestmark = pytest.mark.measures

MIB = 1 << 20
KERNEL = 2 * MS
# One slice and what is in flight, on both sides (facts of the scheduler: L = 10 + 5/2 ms), and the
# credit of 100 ms of whoever slept before.
BOUND = 2 * 15 * MS + 100 * MS
# The time that a cap lets through at once, and the time that parallel kernels use beyond a slice,
# which is paid back afterwards.
CAP_BOUND = 25 * MS + 100 * MS
# Threads of a busy machine come late.
NOISE = 0.1
HALF = {"share_request_ppm": 500_000, "memory_bytes": 64 * MIB}


def judge(victim: Tenant, adversaries: list[Tenant], share: float = 0.5) -> None:
    """While the victim had work, the adversaries had at most their share, and it had its own."""
    ours = victim.runs()
    begin, end = ours[0].begin, ours[-1].end
    theirs = [run for adversary in adversaries for run in adversary.runs()]
    window = end - begin
    taken, got = union(theirs, begin, end), union(ours, begin, end)
    assert overlap(ours, theirs) == 0
    assert taken > 0
    slack = BOUND + NOISE * window
    with figures():
        assert taken <= share * window + slack, (taken / MS, got / MS, window / MS)
        assert got >= (1 - share) * window - slack, (taken / MS, got / MS, window / MS)


def work(victim: Tenant, kernels: int = 300) -> None:
    """Queues the victim's work, in a stream and without waiting."""
    for _ in range(kernels):
        victim.hold(KERNEL)


def test_64_streams(server: Server) -> None:
    with tenants(server, {"lease_key": "v", **HALF}, {"lease_key": "a", **HALF}) as (victim, other):
        streams = other.streams(64)
        for _ in range(150):
            for stream in streams:
                other.hold(KERNEL, stream=stream)
            work(victim, 2)
        assert len(victim.runs()) == 300
        assert len(other.runs()) == 64 * 150
        judge(victim, [other])


def test_32_processes_of_one_lease(server: Server) -> None:
    many = [{"lease_key": "a", **HALF}] * 32
    with tenants(server, {"lease_key": "v", **HALF}, *many) as (victim, *others):
        for other in others:
            for _ in range(150):
                other.hold(KERNEL)
        work(victim)
        assert [len(other.runs()) for other in others] == [150] * 32
        judge(victim, others)


def test_one_that_never_synchronises(server: Server) -> None:
    """Thousands of commands at once: the worker holds back a bounded number, and the others wait in
    the client.
    """
    with tenants(server, {"lease_key": "v", **HALF}, {"lease_key": "a", **HALF}) as (victim, other):

        def flood(_: object) -> None:
            for _ in range(5000):
                other.hold(KERNEL // 8)

        with in_thread(flood):
            work(victim)
            victim.synchronize()
        assert len(other.runs()) == 5000
        judge(victim, [other])


def test_one_that_wakes_at_the_worst_times(server: Server) -> None:
    """The tenant wants the device again as soon as it may cut its neighbour's slice, and uses very
    little.
    """
    small = {"share_request_ppm": 300_000, "memory_bytes": 64 * MIB}
    large = {"share_request_ppm": 700_000, "memory_bytes": 64 * MIB}
    with tenants(server, {"lease_key": "v", **large}, {"lease_key": "a", **small}) as (
        victim,
        other,
    ):

        def nibble(over: object) -> None:
            while not over.wait(0.005):  # type: ignore[attr-defined]
                other.hold(20_000)
                other.synchronize()

        with in_thread(nibble):
            work(victim, 500)
            ours = victim.runs()
        with figures():
            assert len(other.runs()) > 10
            assert part(ours, ours[0].begin, ours[-1].end) >= 0.7


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_a_cap_holds_for_one_that_is_alone(server: Server, share: float) -> None:
    ppm = round(share * 1e6)
    capped = {"share_request_ppm": ppm, "share_limit_ppm": ppm, "memory_bytes": 64 * MIB}
    with tenants(server, {"lease_key": "a", **capped}) as (other,):
        streams = other.streams(8)
        for number in range(round(3 * SECOND * share / KERNEL)):
            other.hold(KERNEL, stream=streams[number % 8])
        runs = other.runs()
        begin, end = runs[0].begin, runs[-1].end
        with figures():
            assert union(runs, begin, end) <= (share + 0.02) * (end - begin) + CAP_BOUND


def test_charged_is_what_ran(server: Server, control: ControlClient) -> None:
    with tenants(server, {"lease_key": "v", **HALF}, {"lease_key": "a", **HALF}) as (victim, other):
        for _ in range(100):
            victim.hold(KERNEL)
            other.hold(KERNEL)
        ran = [union(t.runs(), 0, 1 << 63) for t in (victim, other)]
        charged = {u.lease_key: u.usage.busy_ns for u in control.usage()}
        with figures():
            for key, ns in zip("va", ran, strict=True):
                assert ns <= charged[key] * 1.02 + 5 * MS
                assert charged[key] <= ns * 1.5 + 50 * MS


def test_a_kernel_that_outlasts_the_loops_reports_counts_whole(server: Server) -> None:
    """The kernel counts against the limit of its tenant, which is alone, so that no other tenant
    waits.
    """
    lease = {"lease_key": "long", "memory_bytes": 64 << 20, "share_limit_ppm": 500_000}
    with tenants(server, lease) as (tenant,):
        for ns in (2500 * MS, MS):
            tenant.hold(ns)
            tenant.synchronize()
        long, short = tenant.runs()
    assert long.end - long.begin >= 2500 * MS
    assert short.begin - long.end >= 2000 * MS
