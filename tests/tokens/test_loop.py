"""The token loop with workers that are real processes on real pages."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.loop import TokenLoop
from rgpu_server.tokens.page import Phase
from tokens.harness import Lease, Loop

TOKEN_OFFSET = 256


def test_who_is_alone_gets_the_device_until_it_is_recalled() -> None:
    with Loop() as loop:
        lease = loop.lease("a")
        worker = loop.worker(lease, "short")
        worker.tell()
        worker.hears("granted OPEN")
        worker.hears("released")
        generation = lease.token.read().generation
        for _ in range(20):  # no more messages: the grant stays as it is
            worker.tell()
            worker.hears("released")
        assert lease.token.read()[:2] == (Phase.OPEN, generation)
        # On a busy machine, reports from before the grant may still be unread.
        usage = loop.usage_when(lease, lambda usage: usage.grants > 0)
        assert usage.grants == 1


def test_two_leases_take_turns() -> None:
    with Loop() as loop:
        leases = [loop.lease("a", 0.5), loop.lease("b", 0.5)]
        workers = [loop.worker(lease) for lease in leases]
        for _ in range(5):
            for worker in workers:
                worker.hears("granted SLICE")
                worker.hears("released")
        for lease in leases:
            loop.usage_when(lease, lambda usage: usage.device_ns > 0)


def test_an_idle_holder_is_recalled_at_once() -> None:
    with Loop() as loop:
        idle, other = loop.lease("idle"), loop.lease("other")
        first = loop.worker(idle, "short")
        first.tell()
        first.hears("released")
        assert idle.token.read().phase is Phase.OPEN
        second = loop.worker(other)
        second.hears("granted")
        assert idle.token.read().phase in (Phase.NONE, Phase.RECALLED)
        first.tell()
        first.hears("granted SLICE")


def test_who_has_no_more_work_gives_the_device_back() -> None:
    with Loop() as loop:
        one, other = loop.worker(loop.lease("a"), "polite"), loop.worker(loop.lease("b"))
        one.hears("granted SLICE")
        one.tell()
        other.hears("granted OPEN")


def test_a_worker_that_is_killed_while_it_holds_stops_nobody() -> None:
    with Loop() as loop:
        victim, other = loop.worker(loop.lease("a"), "endless"), loop.lease("b")
        victim.hears("granted")
        survivor = loop.worker(other)
        victim.signal(signal.SIGKILL)
        survivor.hears("granted")


def test_a_worker_that_is_stopped_while_it_holds_is_fenced() -> None:
    with Loop() as loop:
        victim, other = loop.worker(loop.lease("a"), "endless"), loop.lease("b")
        victim.hears("granted")
        victim.signal(signal.SIGSTOP)
        survivor = loop.worker(other)
        survivor.hears("granted")
        assert victim.exited()
        noted, _ = loop.hear(say.Noted)
        assert isinstance(noted, say.Noted)
        assert noted.session == victim.session


def test_a_slot_that_a_worker_made_up_holds_no_device() -> None:
    with Loop() as loop:
        lease = loop.lease("a", 0.5)
        liar, other = loop.worker(lease, "short"), loop.worker(loop.lease("b", 0.5), "short")
        slot = 4096 + 1024 + 128 * 7
        deface(lease, slot, 99)  # a session
        deface(lease, slot + 64, 1)  # that works under some grant
        liar.tell()
        liar.hears("released")
        other.tell()
        other.hears("granted")


def test_a_worker_that_is_stopped_while_it_waits_stops_nobody() -> None:
    with Loop() as loop:
        lease = loop.lease("a", 0.9)
        loop.send(lease.message(paused=True))
        stopped, other = loop.worker(lease), loop.worker(loop.lease("b", 0.1))
        wait_until(lambda: lease.token.demand(0, slots=1).wanting == 1)
        other.hears("granted OPEN")
        stopped.signal(signal.SIGSTOP)
        loop.send(lease.message(paused=False))
        for _ in range(3):
            other.hears("released")
        stopped.signal(signal.SIGCONT)
        stopped.hears("granted")


def test_a_kernel_that_runs_for_ever_ends_its_session_while_others_wait() -> None:
    with Loop(max_kernel_ms=1500) as loop:
        victim, other = loop.worker(loop.lease("a"), "endless"), loop.lease("b")
        victim.hears("granted")
        survivor = loop.worker(other)
        survivor.hears("granted")
        assert victim.exited()
        said = victim.theirs.recv(4096)
        assert int.from_bytes(said[4:8], "little") == 702
        assert b"quota.max_kernel_seconds" in said


def test_processes_of_a_lease_share_its_turn() -> None:
    with Loop() as loop:
        lease = loop.lease("a", 0.5)
        pair = [loop.worker(lease), loop.worker(lease)]
        other = loop.worker(loop.lease("b", 0.5))
        for _ in range(3):
            for worker in (*pair, other):
                worker.hears("granted SLICE")
        pair[0].signal(signal.SIGKILL)
        for _ in range(3):
            pair[1].hears("granted SLICE")
            other.hears("granted SLICE")


def test_a_paused_lease_gets_nothing_until_it_goes_on() -> None:
    with Loop() as loop:
        lease = loop.lease("a")
        worker = loop.worker(lease)
        worker.hears("granted OPEN")
        loop.send(lease.message(paused=True))
        worker.hears("released")
        wait_until(lambda: lease.token.read().phase is Phase.NONE)
        loop.send(lease.message(paused=False))
        worker.hears("granted OPEN")


def test_a_cap_holds_for_who_is_alone() -> None:
    with Loop() as loop:
        lease = loop.lease("a", 0.0, 0.2)
        worker = loop.worker(lease)
        for _ in range(10):
            worker.hears("granted SLICE")
        loop.usage_when(lease, lambda usage: usage.throttled_ns > 0)


def test_a_daemon_that_breaks_the_protocol_is_left() -> None:
    with Loop() as loop:
        worker = loop.worker(loop.lease("a"))
        worker.hears("granted OPEN")
        loop.send(say.Told(1, 2))
        wait_until(lambda: _closed(loop))
        assert loop.process is not None
        assert loop.process.poll() is None  # it serves its worker


def _closed(loop: Loop) -> bool:
    try:
        while loop.channel.receive() is not None:
            pass
    except EOFError:
        return True
    return False


def test_the_loop_ends_with_the_last_worker_and_daemon() -> None:
    with Loop() as loop:
        worker = loop.worker(loop.lease("a"))
        worker.hears("granted OPEN")
        loop.channel.close()
        assert loop.process is not None
        wait_until(lambda: not loop.channel.waiting)
        assert loop.process.poll() is None
        worker.signal(signal.SIGKILL)
        assert loop.process.wait(60) == 0


def hand_over(loop: Loop) -> None:
    """Sends a new loop all leases and workers, as the daemon does."""
    loop.start()
    loop.send(loop.setup)
    for lease in loop.leases.values():
        loop.send(lease.message(), *lease.page.descriptors)
    for worker in loop.workers:
        loop.introduce(worker)
    loop.send(say.Start())


def test_a_new_loop_grants_nothing_before_the_old_ones_grants_have_drained() -> None:
    with Loop(max_kernel_ms=1500) as loop:
        holder = loop.worker(loop.lease("a"), "endless")
        holder.hears("granted OPEN")
        waiting = loop.worker(loop.lease("b"))
        loop.kill()
        hand_over(loop)
        waiting.hears("granted")
        assert holder.exited()  # it was recalled, had its time, and was ended


@pytest.mark.parametrize("phase", [6, 7])
def test_a_phase_that_there_is_not_counts_as_recalled(phase: int) -> None:
    with Loop() as loop:
        victim = loop.worker(loop.lease("a"), "short")
        other = loop.worker(loop.lease("b"))
        other.hears("granted OPEN")
        loop.kill()
        deface(victim.lease, TOKEN_OFFSET, phase)
        hand_over(loop)
        other.hears("released")
        other.hears("granted OPEN")
        victim.tell()
        victim.hears("granted SLICE")


def test_a_lease_whose_page_is_none_any_more_is_left_out() -> None:
    with Loop() as loop:
        victim = loop.worker(loop.lease("a"), "short")
        other = loop.worker(loop.lease("b"))
        other.hears("granted OPEN")
        loop.kill()
        deface(victim.lease, 0, 1)
        hand_over(loop)
        other.hears("released")
        other.hears("granted OPEN")
        assert b"the limits of this session's lease" in victim.theirs.recv(4096)
        noted, _ = loop.hear(say.Noted)
        assert isinstance(noted, say.Noted)
        assert noted.sentence.startswith("lease a is left out")
        loop.send(victim.lease.message(paused=True))
        loop.send(say.LeaseGone("a"))
        del loop.leases["a"]
        again = loop.lease("a")
        loop.worker(again, "greedy").hears("granted")
        victim.lease.page.close()


def test_a_lease_whose_page_cannot_be_mapped_is_left_out() -> None:
    with Loop() as loop:
        loop.hear(say.DeviceIs)
        refused = loop.leases["a"] = Lease("a")
        # A descriptor that only reads does not do for the loop, which writes grants.
        reading = refused.page.opened_to_read()
        loop.send(refused.message(), reading, *refused.page.descriptors[1:])
        os.close(reading)
        noted, _ = loop.hear(say.Noted)
        assert isinstance(noted, say.Noted)
        assert noted.sentence.endswith("Permission denied")
        victim = loop.worker(refused, "short")
        assert b"the limits of this session's lease" in victim.theirs.recv(4096)
        loop.worker(loop.lease("b")).hears("granted OPEN")


def deface(lease: Lease, at: int, value: int) -> None:
    """Overwrites a word of a lease's page, as a worker can."""
    ctypes.c_uint64.from_address(lease.page.address + at).value = value


def test_a_new_loop_goes_on_with_the_workers_of_the_old_one() -> None:
    with Loop() as loop:
        workers = [loop.worker(loop.lease(name, 0.5)) for name in ("a", "b")]
        for worker in workers:
            worker.hears("granted SLICE")
        loop.kill()
        hand_over(loop)
        for _ in range(3):
            for worker in workers:
                worker.hears("released")
                worker.hears("granted SLICE")


def test_a_new_daemon_is_told_everything(tmp_path: Path) -> None:
    with Loop(tmp_path) as loop:
        lease = loop.lease("a")
        worker, dying = loop.worker(lease), loop.worker(lease, "short")
        worker.hears("granted")
        loop.usage(lease)
        loop.channel.close()
        dying.signal(signal.SIGKILL)
        assert dying.exited()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(str(tmp_path / "loop"))
        loop.channel = say.Channel(connection)
        loop.send(loop.setup)
        loop.send(say.Adopt())
        told, fds = loop.hear(say.LeaseIs)
        assert told == lease.message(ended=told.ended)  # type: ignore[union-attr]
        assert os.fstat(fds[0]).st_ino == os.fstat(lease.page.grants_fd).st_ino
        about, more = loop.hear(say.WorkerIs)
        assert isinstance(about, say.WorkerIs)
        assert (about.session, about.pid) == (worker.session, worker.process.pid)
        assert loop.hear(say.Told)[0] == say.Told(1, 1)
        say.close_all([*fds, *more])
        assert lease.token.gate(dying.slot).session == 0  # cleared by the loop
        loop.send(say.Start())
        other = loop.worker(loop.lease("b"))
        other.hears("granted SLICE")


def test_a_lease_that_signals_without_end_delays_nobody() -> None:
    with Loop() as loop:
        noisy = loop.lease("noisy")
        one, other = loop.worker(loop.lease("a")), loop.worker(loop.lease("b"))
        stop = threading.Event()

        def flood() -> None:
            # On a busy machine the loop and the workers come first, or there would be no turns.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
            while not stop.is_set():
                os.eventfd_write(noisy.page.signal_fd, 1)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            for _ in range(5):
                one.hears("granted SLICE")
                other.hears("granted SLICE")
        finally:
            stop.set()
            thread.join()


def test_a_daemon_that_does_not_read_gets_no_queue_of_reports() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel, loop = say.Channel(ours), TokenLoop(daemon=theirs)
    try:
        channel.send(say.Setup((0,), 60_000))
        loop._daemons._said()
        there = loop._daemons._channel
        assert there is not None
        ticks = 0
        while not there.waiting:
            loop._tick(time.monotonic_ns())
            ticks += 1
        for _ in range(100):
            loop._tick(time.monotonic_ns())
        assert len(there._waiting) == 1
        heard = 0
        while channel.receive() is not None:
            heard += 1
        assert heard == ticks - 1
        # The message that was kept is sent, and then new ones.
        for _ in range(2):
            loop._tick(time.monotonic_ns())
        assert [channel.receive() is not None for _ in range(3)] == [True, True, False]
    finally:
        channel.close()
        loop.close()
