"""A tenant that destroys contexts behind its running work: no kernel runs beside another lease."""

from __future__ import annotations

import pytest
from helpers.server import Server

from quota.tenant import MS, PTX, Tenant, in_thread, overlap, tenants

MIB = 1 << 20
VICTIM = {"lease_key": "v", "share_request_ppm": 900_000, "memory_bytes": 64 * MIB}
TAKER = {
    "lease_key": "a",
    "share_request_ppm": 100_000,
    "share_limit_ppm": 100_000,
    "memory_bytes": 64 * MIB,
}
LONG = 300 * MS
ROUNDS = 3
PER_THREAD = 2  # the default stream of the client's thread


def open_context(taker: Tenant, ctx: int) -> int:
    """Creates a context with the kernels and two streams; returns its first handle."""
    first = 100 * ctx
    taker.call("rgpuContextCreate", ctx=ctx, device=0, flags=0)
    taker.context = ctx
    taker.post("rgpuImagePut", image=first, offset=0, total=len(PTX) + 1, bulk=PTX + b"\0")
    taker.call(
        "rgpuModuleLoad", module=first + 1, image=first, options=b"", info_log_bytes=0,
        error_log_bytes=0,
    )  # fmt: skip
    taker.call("rgpuModuleGetFunction", module=first + 1, name=b"hold", function=first + 2)
    taker.call("rgpuFunctionLoad", function=first + 2, load=1)
    for stream in (first + 3, first + 4):
        taker.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
    return first


def behind_the_end(taker: Tenant, ctx: int) -> None:
    """Launches a long kernel while the end of its context waits for a short one."""
    first = open_context(taker, ctx)
    taker.hold(3 * MS, function=first + 2, stream=first + 3)
    ended = taker.post("rgpuContextDestroy", ctx=ctx, thread=2)
    taker.hold(LONG, function=first + 2, stream=first + 4)
    taker.context = 10
    taker.wait(ended)


def in_a_thread_that_is_gone(taker: Tenant, ctx: int) -> None:
    """Ends the thread whose default stream has a long kernel, and then the context."""
    first = open_context(taker, ctx)
    taker.hold(LONG, function=first + 2, stream=PER_THREAD, client_thread=3)
    taker.post("rgpuThreadGone", gone=3)
    taker.context = 10
    taker.call("rgpuContextDestroy", ctx=ctx)


@pytest.mark.parametrize("end", [behind_the_end, in_a_thread_that_is_gone])
def test_no_kernel_outlives_the_turn_in_which_its_context_ends(server: Server, end: object) -> None:
    assert callable(end)
    with tenants(server, VICTIM, TAKER) as (victim, taker):

        def work(over: object) -> None:
            while not over.is_set():  # type: ignore[attr-defined]
                for _ in range(20):
                    victim.hold(2 * MS)
                victim.synchronize()

        with in_thread(work):
            for number in range(ROUNDS):
                end(taker, 1000 + number)
            theirs = taker.runs()
        ours = victim.runs()
    assert len(theirs) >= ROUNDS
    assert len(ours) >= 20
    assert overlap(ours, theirs) == 0
