"""A tenant at the array seam and one at the driver seam share a device by their shares."""

from __future__ import annotations

import signal
import time
from threading import Thread

import pytest
from helpers.ends import ended
from helpers.figures import figures
from helpers.waiting import wait_until
from quota.tenant import MS, SECOND, overlap, part, shares
from tokens.harness import Loop

from arrays.leases import ArrayTenant, array_tenant, driver_tenant

pytestmark = pytest.mark.measures

KERNEL = 2 * MS
# Over three seconds.
NEAR = 0.02


def test_shares_hold_between_the_seams() -> None:
    with Loop() as loop:
        with (
            array_tenant(loop, loop.lease("arrays", 0.3)) as arrays,
            driver_tenant(loop, loop.lease("driver", 0.7)) as driver,
        ):
            # The driver's first: the client of arrays waits when it is far ahead of the node.
            for _ in range(1100):
                driver.hold(KERNEL)
            for _ in range(1100):
                arrays.hold(KERNEL)
            theirs, ours = driver.runs(), arrays.runs()
        assert len(ours) == len(theirs) == 1100
        assert overlap(ours, theirs) == 0
        begin = max(ours[0].begin, theirs[0].begin) + SECOND // 4
        end = min(ours[-1].end, theirs[-1].end)
        with figures():
            assert end > begin + 2 * SECOND
            assert shares([ours, theirs], begin, end) == pytest.approx([0.3, 0.7], abs=NEAR)


def test_an_idle_session_gives_its_share_back() -> None:
    with Loop() as loop:
        lease = loop.lease("arrays", 0.3)
        with (
            array_tenant(loop, lease) as arrays,
            driver_tenant(loop, loop.lease("driver", 0.7)) as driver,
        ):
            for _ in range(300):
                driver.hold(KERNEL)
            for _ in range(20):
                arrays.hold(KERNEL)
            ours, theirs = arrays.runs(), driver.runs()
            demand = arrays.demand()
            assert (demand.active, demand.wanting) == (0, 0)
            last = ours[-1].end
            alone = [run for run in theirs if run.begin > last]
            # The session is still there, and computes when it wants to.
            arrays.hold(KERNEL)
            assert len(arrays.runs()) == 21
        assert overlap(ours, theirs) == 0
        with figures():
            assert alone, "the session was idle before the other one was"
            assert part(alone, alone[0].begin, alone[-1].end) > 0.8


def _issue(tenant: ArrayTenant, operations: int) -> None:
    for _ in range(operations):
        tenant.hold(KERNEL)
    tenant.issuer.flush()


def test_a_paused_lease_is_held_back() -> None:
    with Loop() as loop:
        lease = loop.lease("arrays", 0.3)
        with (
            array_tenant(loop, lease) as arrays,
            driver_tenant(loop, loop.lease("driver", 0.7)) as driver,
        ):
            arrays.hold(KERNEL)
            assert len(arrays.runs()) == 1
            loop.send(lease.message(paused=True))
            # It has taken the message when it answers a later one.
            loop.usage(loop.lease("later"))
            # A thread of its own, because the client waits when it is far ahead of the node.
            issuing = Thread(target=_issue, args=(arrays, 50))
            issuing.start()
            for _ in range(50):
                driver.hold(KERNEL)
            assert len(driver.runs()) == 50
            wait_until(lambda: arrays.demand().wanting == 1)
            resumed = time.time_ns()
            loop.send(lease.message(paused=False))
            issuing.join(60)
            assert not issuing.is_alive()
            ours = arrays.runs()
        assert len(ours) == 51
        assert len([run for run in ours if run.begin >= resumed]) >= 49


def test_a_session_that_is_held_back_ends_with_its_client() -> None:
    with Loop() as loop:
        lease = loop.lease("arrays", 0.3)
        loop.send(lease.message(paused=True))
        with array_tenant(loop, lease) as arrays:
            arrays.hold(KERNEL)
            arrays.issuer.flush()
            wait_until(lambda: arrays.demand().wanting == 1)
            arrays.issuer.close()
            assert arrays.process.wait(30) == 0


def test_a_worker_that_is_killed_stops_nobody() -> None:
    with Loop() as loop:
        lease = loop.lease("arrays", 0.5)
        with driver_tenant(loop, loop.lease("driver", 0.5)) as driver:
            with array_tenant(loop, lease) as arrays:
                arrays.hold(3600 * SECOND)
                arrays.issuer.flush()
                wait_until(lambda: arrays.demand().active == 1)
                arrays.process.send_signal(signal.SIGKILL)
                arrays.process.wait()
                for _ in range(50):
                    driver.hold(KERNEL)
                assert len(driver.runs()) == 50
            with array_tenant(loop, loop.lease("again", 0.3)) as again:
                again.hold(KERNEL)
                assert len(again.runs()) == 1


def test_an_operation_that_never_ends_is_ended_while_others_wait() -> None:
    with (
        Loop(max_kernel_ms=1500) as loop,
        driver_tenant(loop, loop.lease("driver", 0.5)) as driver,
        array_tenant(loop, loop.lease("arrays", 0.5)) as arrays,
    ):
        arrays.hold(3600 * SECOND)
        arrays.issuer.flush()
        wait_until(lambda: arrays.demand().active == 1)
        driver.hold(KERNEL)
        assert len(driver.runs()) == 1
        # It ends itself when it is told to; the loop kills a worker that does not do so soon.
        ended(arrays.process, (1, -signal.SIGKILL))
        # It was told why: its gate lived on while the operation ran.
        said = arrays.control.recv(4096)
        assert b"quota.max_kernel_seconds" in said


def test_sessions_of_one_lease_share_its_turn() -> None:
    with Loop() as loop:
        lease = loop.lease("arrays", 0.5)
        with (
            array_tenant(loop, lease) as one,
            array_tenant(loop, lease) as other,
            driver_tenant(loop, loop.lease("driver", 0.5)) as driver,
        ):
            for _ in range(400):
                driver.hold(KERNEL)
            for _ in range(400):
                one.hold(KERNEL)
                other.hold(KERNEL)
            theirs, ours = driver.runs(), one.runs() + other.runs()
        assert (len(theirs), len(ours)) == (400, 800)
        assert overlap(ours, theirs) == 0
        begin = max(min(run.begin for run in ours), theirs[0].begin) + SECOND // 4
        end = min(max(run.end for run in ours), theirs[-1].end)
        with figures():
            assert shares([ours, theirs], begin, end) == pytest.approx([0.5, 0.5], abs=3 * NEAR)
