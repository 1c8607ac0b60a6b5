"""Answers overtake bulk of other streams, and never the bytes that they stand for."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest
from helpers.server import Server
from worker.client import LEGACY, Client, Connection, hello

from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import Flags, Frame, Kind
from rgpu_common.wire.messages import Control, encode_message
from transport.lanes import RECORD, ByHand

MIB = 1 << 20
# Far more than sockets and the worker's queue hold, so that most of it waits until somebody reads.
BIG = 64 * MIB
MOST_RECORD = 512 << 10
NON_BLOCKING, BLOCKING = 1, 0
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(6, 24))]
HELLO = hello(lease_key="overtaking", memory_bytes=256 * MIB, wishes=(Wish(WishKey.RESUMABLE, 1),))


class Laned(Client):
    """A client whose frames travel in records."""

    def __init__(self, session: ByHand) -> None:
        control = Records(session.control)
        super().__init__(session.command, control, None)  # type: ignore[arg-type]
        self._records = Records(session.command)
        control.frame()  # ATTACHED
        self.order: list[Frame] = []

    def frame(self, seconds: float = 20.0) -> Frame:
        found = self._records.frame(seconds)
        self.order.append(found._replace(bulk=b""))
        return found

    def send(self, data: bytes) -> None:
        self._records.send(data)

    def landed(self, seq: int) -> bool:
        """All bytes of a delivery are here."""
        return any(
            one.header.seq == seq
            and one.header.kind is Kind.DELIVERY
            and one.header.flags == Flags.LAST
            for one in self.order
        )


class Records(Connection):
    """Reads and writes the records of one lane."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._sent = self._received = self._told = 0
        self._rest = b""

    def _read(self, count: int) -> bytes:
        while len(self._rest) < count:
            length, _, offset, _ = RECORD.unpack(super()._read(RECORD.size))
            assert offset == self._received
            self._received += length
            self._rest += super()._read(length)
            if self._received - self._told >= MIB:
                self._record(b"")
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def _record(self, data: bytes) -> None:
        self._told = self._received
        super().send(RECORD.pack(len(data), 0, self._sent, self._received) + data)
        self._sent += len(data)

    def send(self, data: bytes) -> None:
        for at in range(0, len(data), MOST_RECORD):
            self._record(data[at : at + MOST_RECORD])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[Laned]:
    session = ByHand(server.tcp, HELLO)
    session.command.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
    one = Laned(session)
    one.call("rgpuPrimaryRetain", ctx=10, device=0, flags=0)
    one.context = 10
    yield one
    one.control.send(encode_message(Control.BYE))
    session.close()


def deliver(client: Laned, src: int, count: int, stream: int) -> int:
    return client.post("rgpuCopyDtoHLater", src=src, pitch=0, width=count, height=1, stream=stream)


def streams(client: Laned, flags: int, *names: int) -> None:
    for name in names:
        client.post("rgpuStreamCreate", stream=name, flags=flags, priority=0)


@pytest.mark.parametrize("what", ["stream", "event", "copy"])
def test_an_answer_does_not_wait_for_bytes_of_another_stream(client: Laned, what: str) -> None:
    address = client.alloc(BIG)
    streams(client, NON_BLOCKING, 20, 21)
    client.post("rgpuEventCreate", event=30, flags=2)
    client.post("rgpuEventRecord", event=30, stream=21, version=1, flags=0)
    rows = {"src": address, "pitch": 0, "width": 64, "height": 1}
    name, operands = {
        "stream": ("rgpuStreamSynchronize", {"stream": 21}),
        "event": ("rgpuEventSynchronize", {"event": 30}),
        "copy": ("rgpuCopyDtoH", {"stream": 21, **rows}),
    }[what]
    later = deliver(client, address, BIG, 20)
    answer = client.wait(client.post(name, thread=2, **operands))  # type: ignore[arg-type]
    assert answer.status == 0
    assert not client.landed(later), "the answer came behind all of the bytes"
    assert client.result("rgpuStreamSynchronize", stream=20).status == 0
    assert client.landed(later)


def test_a_large_copy_of_another_thread_is_overtaken(client: Laned) -> None:
    address = client.alloc(BIG)
    streams(client, NON_BLOCKING, 20, 21)
    large = client.post(
        "rgpuCopyDtoH", src=address, pitch=0, width=BIG, height=1, stream=20, thread=2
    )
    assert client.result("rgpuStreamSynchronize", stream=21).status == 0
    assert large not in client.replies
    answer = client.wait(large)
    assert answer.status == 0
    assert len(answer.data) == BIG


class Model:
    """Computes which bytes must have landed before an answer, by CUDA's rules: streams, events, the
    legacy stream between blocking ones, and synchronous copies that are complete for all streams.
    """

    def __init__(self, client: Laned, seed: int) -> None:
        self.client = client
        self.random = random.Random(seed)
        self.kinds = {20: NON_BLOCKING, 21: NON_BLOCKING, 22: BLOCKING, 23: BLOCKING}
        for stream, flags in self.kinds.items():
            streams(client, flags, stream)
        self.kinds[LEGACY] = BLOCKING
        self.behind: dict[int, set[int]] = {stream: set() for stream in self.kinds}
        self.fenced: set[int] = set()
        self.events: dict[int, set[int]] = {}
        self.address = client.alloc(4 * MIB)
        self.waits: dict[int, set[int]] = {}

    def enter(self, stream: int) -> None:
        """A command comes into the stream."""
        mine = self.behind[stream]
        if stream == LEGACY:
            for other, kind in self.kinds.items():
                if kind == BLOCKING:
                    mine |= self.behind[other]
        elif self.kinds[stream] == BLOCKING:
            mine |= self.behind[LEGACY]
        mine |= self.fenced

    def step(self) -> None:
        choice = self.random.choice(
            ["deliver", "deliver", "set", "fence", "record", "wait", "sync"]
        )
        getattr(self, choice)(self.random.choice(list(self.kinds)))

    def deliver(self, stream: int) -> None:
        self.enter(stream)
        count = self.random.choice([64, 300_000, 4 * MIB])
        self.behind[stream].add(deliver(self.client, self.address, count, stream))

    def set(self, stream: int, synchronous: int = 0) -> None:
        self.enter(stream)
        rows = {"pitch": 0, "width": 64, "height": 1}
        self.client.post(
            "rgpuMemset", dst=self.address, element_bytes=1, value=0, stream=stream,
            synchronous=synchronous, **rows,
        )  # fmt: skip

    def fence(self, stream: int) -> None:
        self.set(stream, synchronous=1)
        self.fenced |= self.behind[stream]

    def record(self, stream: int) -> None:
        self.enter(stream)
        event = 30 + self.random.randrange(3)
        if event not in self.events:
            self.client.post("rgpuEventCreate", event=event, flags=2)
        self.client.post("rgpuEventRecord", event=event, stream=stream, version=1, flags=0)
        self.events[event] = set(self.behind[stream])

    def wait(self, stream: int) -> None:
        if not self.events:
            return
        self.enter(stream)
        event = self.random.choice(list(self.events))
        self.client.post("rgpuStreamWaitEvent", stream=stream, event=event, flags=0)
        self.behind[stream] |= self.events[event]

    def sync(self, stream: int) -> None:
        thread = 2 + len(self.waits)
        if self.events and self.random.random() < 0.3:
            event = self.random.choice(list(self.events))
            seq = self.client.post("rgpuEventSynchronize", event=event, thread=thread)
            self.waits[seq] = set(self.events[event])
            return
        seq = self.client.post("rgpuStreamSynchronize", stream=stream, thread=thread)
        self.waits[seq] = set(self.behind[stream])

    def settle(self) -> None:
        """Reads all answers and looks at each whether it came too early."""
        while self.waits:
            self.client.take(self.client.frame())
            for seq in self.client.replies.keys() & self.waits.keys():
                assert self.client.replies.pop(seq).status == 0
                early = {one for one in self.waits.pop(seq) if not self.client.landed(one)}
                assert not early, f"the answer to {seq} came before the bytes of {early}"


@pytest.mark.parametrize("seed", SEEDS)
def test_an_answer_never_comes_before_bytes_that_it_stands_for(client: Laned, seed: int) -> None:
    model = Model(client, seed)
    for _ in range(6):
        for _ in range(25):
            model.step()
        model.settle()
