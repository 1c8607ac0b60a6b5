"""The worker's end of a ring, and of direct copies, against a client that may be hostile."""

from __future__ import annotations

import fcntl
import os
import random

import pytest
from helpers.ends import ended
from helpers.ring import (
    FROM_WORKER,
    HEAD,
    READER_SLEEPS,
    TAIL,
    TO_WORKER,
    RingClient,
    ring_session,
    ring_worker,
)
from helpers.waiting import wait_until
from worker.client import LEGACY, RIGHT_ENDS, session

from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.messages import Control, encode_message
from rgpu_common.wire.shm import Shm
from rgpu_common.wire.welcome import Welcome

MIB = 1 << 20
INVALID_VALUE = 1
NOT_SUPPORTED = 801
F_GET_SEALS = 1034
SHRINK_AND_GROW = 2 | 4


def done(client: RingClient, ticket: int) -> None:
    client.control.send(encode_message(Control.COPY_DONE, {"ticket": ticket}))


def begin_in(client: RingClient, dst: int, count: int, *, stream: int = LEGACY) -> int:
    values = client.call("rgpuCopyInDirect", dst=dst, bytes=count, stream=stream)
    return int(values["ticket"])


def begin_out(client: RingClient, src: int, count: int, *, stream: int = LEGACY) -> int:
    values = client.call("rgpuCopyOutDirect", src=src, bytes=count, stream=stream)
    return int(values["ticket"])


def test_a_session_over_the_ring() -> None:
    data = random.Random(1).randbytes(5 * MIB + 3)  # round the ring more than twice
    with ring_session() as client:
        address = client.alloc(len(data))
        client.upload(address, data)
        assert client.download(address, len(data)) == data


def test_a_client_that_declines_stays_on_the_socket() -> None:
    with ring_session(accept=False) as client:
        address = client.alloc(MIB)
        client.upload(address, bytes(MIB))
        assert client.download(address, MIB) == bytes(MIB)


@pytest.mark.parametrize("minor", [0, 1, 2])
def test_who_does_not_ask_gets_no_grant(minor: int) -> None:
    from worker.client import hello, worker

    wishes = (Wish(WishKey.WEIGHT, 1),) if minor else ()
    with worker() as client:
        welcome = client.open(hello(minor=minor, wishes=wishes))
        assert isinstance(welcome, Welcome)
        assert welcome.grants == ()


def test_what_the_memory_is() -> None:
    with ring_session() as client:
        for fd in client.descriptors:
            assert fcntl.fcntl(fd, F_GET_SEALS) & SHRINK_AND_GROW == SHRINK_AND_GROW
            for size in (0, os.fstat(fd).st_size + 4096):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, size)
        # Nothing but what was allocated is there: no code, no frames, no shared memory of kernels.
        device = client.descriptors[1]
        before = os.fstat(device).st_blocks * 512
        address = client.alloc(8 * MIB)
        client.upload(address, random.Random(2).randbytes(8 * MIB))
        client.download(address, 8 * MIB)
        assert before + 8 * MIB <= os.fstat(device).st_blocks * 512 < before + 16 * MIB


def test_no_device_memory_where_the_host_cannot_reach_it() -> None:
    with ring_worker(RGPU_EMU_TIMING="hostile:1") as client:
        welcome = client.start()
        assert welcome.grants == (Wish(WishKey.SHM, 1),)
        assert len(client.descriptors) == 1
        address = client.alloc(MIB)
        answer = client.result("rgpuCopyInDirect", dst=address, bytes=MIB, stream=LEGACY)
        assert answer.status == NOT_SUPPORTED


def test_no_direct_copy_without_a_grant() -> None:
    with session() as client:
        address = client.alloc(MIB)
        answer = client.result("rgpuCopyOutDirect", src=address, bytes=MIB, stream=LEGACY)
        assert answer.status == NOT_SUPPORTED


@pytest.mark.parametrize(
    ("ring", "word", "value"),
    [
        (TO_WORKER, TAIL, (1 << 64) - 1),
        (TO_WORKER, TAIL, 1 << 40),
        (FROM_WORKER, HEAD, 1 << 40),
        (FROM_WORKER, HEAD, 1 << 63),
    ],
)
def test_positions_that_make_no_sense_end_this_session(ring: int, word: int, value: int) -> None:
    with ring_session() as client:
        assert client.ring is not None
        # A command to answer, so that it looks at both rings.
        client.post("rgpuMemGetInfo")
        client.ring.set(ring, word, value)
        client.bell()
        if ring == FROM_WORKER:
            client.ring.set(FROM_WORKER, READER_SLEEPS, 1)
            client.send(b"")
            client.post("rgpuMemGetInfo")
        ended(client.process, RIGHT_ENDS)


def test_a_byte_more_than_a_ring_holds_ends_this_session_unread() -> None:
    with ring_session() as client:
        ring = client.ring
        assert ring is not None
        wait_until(lambda: ring.get(TO_WORKER, HEAD) == ring.get(TO_WORKER, TAIL))
        head = ring.get(TO_WORKER, HEAD)
        ring.set(TO_WORKER, TAIL, head + ring.bytes + 1)
        client.bell()
        ended(client.process, RIGHT_ENDS)
        assert ring.get(TO_WORKER, HEAD) == head


def test_nonsense_in_the_ring_ends_the_session_with_a_reason() -> None:
    with ring_session() as client:
        client.send(random.Random(3).randbytes(4096))
        assert "not a frame" in client.sticky()
        client.ended()


def test_doorbells_without_a_reason_do_no_harm() -> None:
    with ring_session() as client:
        for _ in range(3000):
            client.bell()
        assert client.call("rgpuMemGetInfo")["total"]


@pytest.mark.parametrize("answer", [b"", b"\0" * 40, b"x" * 4096])
def test_a_client_that_does_not_answer_welcome(answer: bytes) -> None:
    with ring_worker() as client:
        assert isinstance(client.welcome(), Welcome)
        client.send(answer)
        client.socket.shutdown(1)
        ended(client.process, RIGHT_ENDS)


def test_what_follows_the_acceptance_on_the_socket_ends_it() -> None:
    with ring_worker() as client:
        assert isinstance(client.welcome(), Welcome)
        client.answer(Shm(1))
        client.send(b"more")
        # Either it came with the answer, and is refused, or it is taken for doorbells.
        client.socket.shutdown(1)
        ended(client.process, RIGHT_ENDS)


def test_a_direct_copy_each_way() -> None:
    data = random.Random(4).randbytes(3 * MIB)
    with ring_session() as client:
        assert client.device is not None
        address = client.alloc(len(data))
        at = client.memory_at(address)
        ticket = begin_in(client, address, len(data))
        client.device[at : at + len(data)] = data
        done(client, ticket)
        assert client.download(address, len(data)) == data
        client.upload(address, bytes(MIB))
        ticket = begin_out(client, address, len(data))
        assert client.device[at : at + len(data)] == bytes(MIB) + data[MIB:]
        done(client, ticket)


def test_what_comes_behind_a_direct_copy_waits_for_it() -> None:
    with ring_session() as client:
        assert client.device is not None
        address = client.alloc(2 * MIB)
        at = client.memory_at(address)
        client.upload(address, b"1" * 2 * MIB)
        ticket = begin_in(client, address, 2 * MIB)
        rows = {"pitch": 0, "height": 1, "stream": LEGACY, "width": 2 * MIB}
        client.post(
            "rgpuMemset", dst=address, element_bytes=1, value=50, synchronous=0, thread=2, **rows
        )
        waiting = client.post("rgpuStreamQuery", stream=LEGACY, version=1, notify=0, thread=3)
        assert client.wait(waiting).status == 600  # CUDA_ERROR_NOT_READY
        client.device[at : at + 2 * MIB] = b"3" * 2 * MIB
        assert client.device[at : at + 4] == b"3333"
        done(client, ticket)
        assert client.download(address, 2 * MIB) == b"2" * 2 * MIB


def test_a_direct_copy_waits_for_what_is_before_it() -> None:
    with ring_session() as client:
        flag, address = client.alloc(4), client.alloc(MIB)
        client.upload(flag, bytes(4))
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=21, flags=1, priority=0)
        client.wait_value(20, flag, 1)
        copy = client.post("rgpuCopyOutDirect", src=address, bytes=MIB, stream=20, thread=2)
        client.call("rgpuMemGetInfo", thread=3)
        assert copy not in client.replies
        client.write_value(21, flag, 1, thread=3)
        answer = client.wait(copy)
        assert answer.status == 0
        done(client, int(answer.values["ticket"]))


def test_memory_that_is_freed_meanwhile_stays_until_the_copy_is_done() -> None:
    with ring_session() as client:
        count = 64 * MIB
        free = client.call("rgpuMemGetInfo")["free"]
        address = client.alloc(count)
        ticket = begin_in(client, address, count)
        client.post("rgpuMemFree", dptr=address, thread=2)
        assert client.call("rgpuMemGetInfo", thread=3)["free"] <= free - count
        # Nobody else gets these addresses meanwhile.
        assert abs(client.alloc(count) - address) >= count
        done(client, ticket)
        wait_until(lambda: client.call("rgpuMemGetInfo", thread=3)["free"] >= free - count)


def test_addresses_that_are_not_the_sessions() -> None:
    with ring_session() as client:
        address = client.alloc(MIB)
        gone = client.alloc(MIB)
        client.post("rgpuMemFree", dptr=gone)
        for dst, count in (
            (0, MIB),
            (gone, MIB),
            (address - 4096, MIB),
            (address, MIB + 4096),
            (address, (1 << 64) - 1),
            (address, 0),
            ((1 << 64) - 4096, 8192),
        ):
            for name, field in (("rgpuCopyInDirect", "dst"), ("rgpuCopyOutDirect", "src")):
                answer = client.result(name, **{field: dst}, bytes=count, stream=LEGACY)
                assert answer.status == INVALID_VALUE, (name, dst, count)
        answer = client.result("rgpuCopyInDirect", dst=address, bytes=MIB, stream=999)
        assert answer.status == 400  # CUDA_ERROR_INVALID_HANDLE


@pytest.mark.parametrize("again", [False, True])
def test_a_ticket_that_is_none_ends_the_session(again: bool) -> None:
    with ring_session() as client:
        address = client.alloc(MIB)
        ticket = begin_in(client, address, MIB)
        if again:
            done(client, ticket)
        done(client, ticket if again else ticket + 1)
        assert "invalid or unexpected message" in client.sticky()
        client.ended()


def test_a_client_that_dies_in_a_direct_copy_leaves_no_worker() -> None:
    with ring_session() as client:
        begin_in(client, client.alloc(MIB), MIB)
        client.control.socket.close()
        ended(client.process, RIGHT_ENDS)
