"""Streams that wait for their client do not keep the device from others, and come back in turn."""

from __future__ import annotations

from helpers.server import Server

from quota.tenant import MS, overlap, tenants
from quota.waits.slow import HOLDS, MIB, SLOW, VICTIM, answer, ask_for_bytes, holds, works


def test_one_whose_bytes_are_long_in_coming(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        for round_ in range(3):
            ask_for_bytes(slow, at, stream)
            holds(slow, stream)
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
        holds(slow, waiting)
        for _ in range(5):
            assert works(victim, 0.1) > 0
            holds(slow, going)
            slow.call("rgpuStreamSynchronize", stream=going)
        answer(slow, bytes(MIB))
        theirs = slow.runs()
        assert len(theirs) == 6 * HOLDS
        assert overlap(victim.runs(), theirs) == 0


def test_much_that_waits_is_not_more_than_fits(server: Server) -> None:
    """Launches after a wait of their stream are held back; otherwise they would all run at once."""
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        holds(slow, stream, 20)  # it is known how long one takes
        slow.synchronize()
        ask_for_bytes(slow, at, stream)
        holds(slow, stream, HOLDS + 300)
        assert works(victim, 1.0) > 0
        answer(slow, bytes(MIB))
        assert works(victim, 0.5) > 0
        theirs = slow.runs()
        assert len(theirs) == 20 + HOLDS + 300
        ours = victim.runs()
        assert overlap(ours, theirs) == 0


def test_one_that_does_not_read(server: Server) -> None:
    """When as many bytes as possible are on their way, the session waits and delays no other."""
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
                (stream,) = slow.streams(1)
                ask_for_bytes(slow, at, stream)
                holds(slow, stream)
                assert works(victim, 0.2) > 0
            assert works(victim, 0.1) > 0


def test_a_stream_that_waits_is_destroyed(server: Server) -> None:
    with tenants(server, VICTIM, SLOW) as (victim, slow):
        at = slow.alloc(MIB)
        (stream,) = slow.streams(1)
        ask_for_bytes(slow, at, stream)
        holds(slow, stream)
        assert works(victim, 0.2) > 0
        slow.post("rgpuStreamDestroy", stream=stream)
        assert works(victim, 0.2) > 0
        answer(slow, bytes(MIB))
        assert works(victim, 0.2) > 0
        slow.hold(MS)
        slow.synchronize()
        assert works(victim, 0.2) > 0
