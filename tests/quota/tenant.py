"""Tenants that speak the wire protocol to a real server, and kernels that record when they ran.

A kernel holds the device for a set time without using a CPU and then writes its begin and end, by
the device's clock, into a log. All workers of a machine have the same clock. So tests compare what
happened on the device, not when the tenants got their answers.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from helpers.server import Server
from worker.client import LEGACY, SECONDS, Client, Connection, Gone, hello

from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import encode_hello
from rgpu_common.wire.refused import decode_refused
from rgpu_common.wire.welcome import Welcome, decode_welcome

MS = 1_000_000
SECOND = 1000 * MS
LOG_ENTRIES = 32768
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 ns, .param .u64 log)
{
  .reg .pred %p<2>; .reg .b32 %r<2>; .reg .b64 %d<8>;
  ld.param.u64 %d1, [ns];
  ld.param.u64 %d2, [log];
  mov.u64 %d3, %globaltimer;
  add.s64 %d4, %d3, %d1;
again:
  nanosleep.u32 100000;
  mov.u64 %d5, %globaltimer;
  setp.lt.u64 %p1, %d5, %d4;
  @%p1 bra again;
  atom.global.add.u32 %r1, [%d2], 1;
  setp.ge.u32 %p1, %r1, ENTRIES;
  @%p1 bra over;
  mul.wide.u32 %d6, %r1, 16;
  add.s64 %d7, %d2, %d6;
  st.global.u64 [%d7+16], %d3;
  st.global.u64 [%d7+24], %d5;
over:
  ret;
}
.visible .entry endless(.param .u64 ns, .param .u64 log)
{
  .reg .b64 %d<2>;
  ld.param.u64 %d1, [log];
again:
  nanosleep.u32 1000000;
  bra again;
}
""".replace(b"ENTRIES", b"%d" % LOG_ENTRIES)
HOLD, ENDLESS = 41, 42


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel on the device, by the device's clock in ns."""

    begin: int
    end: int


class Tenant(Client):
    """A session, opened at the front door."""

    def __init__(self, server: Server, **fields: object) -> None:
        self.address = server.unix.removeprefix("unix:")
        first = encode_hello(hello(**fields))
        super().__init__(self._connect(), None, None)  # type: ignore[arg-type]
        self.send(first)
        frame = self.frame()
        if frame.header.opcode == Handshake.REFUSED:
            self.socket.close()
            raise AssertionError(decode_refused(frame.head))
        self.welcome: Welcome = decode_welcome(frame.head)
        self.control = Connection(self._connect())
        self.control.send(encode_attach(Attach(self.welcome.session, self.welcome.secret)))
        assert self.control.frame().header.opcode == Handshake.ATTACHED
        self.call("rgpuPrimaryRetain", ctx=10, device=0, flags=0)
        self.context = 10
        self.log = 0

    def _connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made.settimeout(SECONDS)
        made.connect(self.address)
        return made

    def load(self) -> None:
        """The kernels and a log, cleared."""
        self.post("rgpuImagePut", image=39, offset=0, total=len(PTX) + 1, bulk=PTX + b"\0")
        self.call(
            "rgpuModuleLoad", module=40, image=39, options=b"", info_log_bytes=0, error_log_bytes=0
        )
        for name, function in ((b"hold", HOLD), (b"endless", ENDLESS)):
            self.call("rgpuModuleGetFunction", module=40, name=name, function=function)
        self.log = self.alloc(16 * (LOG_ENTRIES + 1))
        self.upload(self.log, bytes(16 * (LOG_ENTRIES + 1)))
        self.synchronize()

    def streams(self, count: int) -> list[int]:
        """So many new streams that do not wait for the legacy one."""
        made = list(range(100, 100 + count))
        for stream in made:
            self.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
        return made

    def hold(
        self,
        ns: int,
        *,
        stream: int = LEGACY,
        function: int = HOLD,
        threads: int = 1,
        client_thread: int = 1,
    ) -> None:
        """Launches a kernel that takes `ns` on the device."""
        self.post(
            "rgpuLaunch",
            thread=client_thread,
            function=function,
            kernel=0,
            grid_x=1,
            grid_y=1,
            grid_z=1,
            block_x=threads,
            block_y=1,
            block_z=1,
            shared_bytes=0,
            stream=stream,
            flags=0,
            params=struct.pack("<QQ", ns, self.log),
        )

    def synchronize(self) -> None:
        self.call("rgpuContextSynchronize", ctx=10)

    def runs(self) -> list[Run]:
        """Waits for all kernels; returns their log in order of their ends."""
        self.synchronize()
        data = self.download(self.log, 16 * (LOG_ENTRIES + 1))
        (count,) = struct.unpack_from("<I", data)
        assert count < LOG_ENTRIES
        pairs = struct.iter_unpack("<QQ", data[16 : 16 * (count + 1)])
        return sorted((Run(*pair) for pair in pairs), key=lambda run: run.end)

    def gone(self) -> str:
        """Waits until the server has closed the session; the sentence that it gave, or ""."""
        sentence = ""
        try:
            while True:
                frame = self.frame()
                self.take(frame)
                while self.notices:
                    notice, fields, _ = self.notices.pop()
                    if notice.name == "STICKY":
                        sentence = f"{frame.header.status}: {fields['sentence']}"
        except Gone:
            return sentence

    def close(self) -> None:
        self.socket.close()
        self.control.socket.close()


@contextmanager
def tenants(server: Server, *fields: dict[str, object]) -> Iterator[list[Tenant]]:
    """Sessions with loaded kernels, closed at the end."""
    made: list[Tenant] = []
    try:
        for one in fields:
            made.append(Tenant(server, **one))
            made[-1].load()
        yield made
    finally:
        for tenant in made:
            tenant.close()


@contextmanager
def in_thread(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Runs `work` in a thread beside the test. The yielded event tells it to stop."""
    over = threading.Event()
    thread = threading.Thread(target=work, args=(over,))
    thread.start()
    try:
        yield over
    finally:
        over.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


def union(runs: Sequence[Run], begin: int, end: int) -> int:
    """Device time within [begin, end) in which at least one of them ran."""
    total, covered = 0, begin
    for run in sorted(runs, key=lambda r: r.begin):
        first, last = max(run.begin, covered), min(run.end, end)
        if last > first:
            total, covered = total + last - first, last
    return total


def overlap(ours: Sequence[Run], theirs: Sequence[Run]) -> int:
    """Time in which kernels of both were on the device."""
    return sum(union(theirs, run.begin, run.end) for run in ours)


def part(runs: Sequence[Run], begin: int, end: int) -> float:
    """The part of [begin, end) in which one of them ran."""
    assert end > begin, "the work was over too early"
    return union(runs, begin, end) / (end - begin)


def shares(tenants: Sequence[Sequence[Run]], begin: int, end: int) -> list[float]:
    """Each tenant's part of the time within [begin, end) that the device worked.

    The device may be idle for a part of it where this machine is slow to wake a process: how much
    of the device is used is measured by `benchmarks.quota`, and here it must only be most of it.
    """
    assert end > begin, "the work was over too early"
    used = [union(runs, begin, end) for runs in tenants]
    assert sum(used) > 0.75 * (end - begin), used
    return [one / sum(used) for one in used]
