"""A token loop as a process, spoken to as the daemon does, and workers that are only gates."""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from helpers.ends import ended, killed
from typing_extensions import Self

from rgpu_server.core.model import PPM, Quota
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.page import Phase, TokenView
from rgpu_server.workers.pages import LeasePage

WORKER = Path(__file__).with_name("worker.py")
DEADLINE_SECONDS = 60.0


class Worker:
    """A running worker; `lines` has its output."""

    def __init__(self, lease: Lease, session: int, mode: str) -> None:
        self.session, self.lease = session, lease
        self.slot = next(s for s in range(56) if s not in lease.slots)
        lease.slots.add(self.slot)
        lease.page.take(self.slot, session)
        fds = tuple(lease.page.descriptors)
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, (*fds, self.slot)), mode],
            pass_fds=fds,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.control, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put("ended")

    def hears(self, wanted: str) -> None:
        """Waits until it has said a line that begins so."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (line := self.lines.get(timeout=max(deadline - time.monotonic(), 0.01))
                   ).startswith(wanted):  # fmt: skip
            assert line != "ended" or wanted == "ended", f"it ended before it said {wanted!r}"

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def exited(self) -> bool:
        return bool(select.select([self.pidfd], [], [], DEADLINE_SECONDS)[0])

    def close(self) -> None:
        killed(self.process)
        self._reader.join(DEADLINE_SECONDS)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.control.close()
        self.theirs.close()
        os.close(self.pidfd)


class Lease:
    """A lease with its page, as the daemon holds it."""

    def __init__(self, name: str, request: float = 0.0, limit: float = 1.0) -> None:
        self.name = name
        self.shares = int(request * PPM), int(limit * PPM)
        self.page = LeasePage(Quota(1 << 30))
        self.token = TokenView(self.page.address)
        # As the daemon does: a page without a heartbeat looks as if the loop were gone, and its
        # workers then run without a token.
        self.token.heartbeat(time.monotonic_ns())
        self.token.write(Phase.NONE, 0)
        self.slots: set[int] = set()

    def message(self, **changed: object) -> say.LeaseIs:
        fields: dict[str, object] = {
            "lease": self.name, "tenant": "", "device": 0, "request_ppm": self.shares[0],
            "limit_ppm": self.shares[1], "weight": 1, "priority": 0, "paused": False,
            "ended": self.page.ended.numbers(), "record": f"record of {self.name}", **changed,
        }  # fmt: skip
        return say.LeaseIs(**fields)  # type: ignore[arg-type]


class Loop:
    """`with Loop() as loop:` runs one; leases and workers live as long as this does."""

    def __init__(self, state: Path | None = None, max_kernel_ms: int = 60_000) -> None:
        self.state = state
        self.setup = say.Setup((0,), max_kernel_ms)
        self.leases: dict[str, Lease] = {}
        self.workers: list[Worker] = []
        self.heard: list[say.Message] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.sessions = 0

    def __enter__(self) -> Self:
        self.start()
        self.send(self.setup)
        self.send(say.Start())
        return self

    def start(self) -> None:
        """A process, and no message yet."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "rgpu_server.tokens", "--fd", str(theirs.fileno())]
        if self.state is not None:
            command += ["--state", str(self.state)]
        self.process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), cwd="/")
        theirs.close()
        self.channel = say.Channel(ours)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.close()
        self.channel.close()
        assert self.process is not None
        try:
            ended(self.process)
        finally:
            for lease in self.leases.values():
                lease.page.close()

    def send(self, message: say.Message, *fds: int) -> None:
        self.channel.send(message, fds)
        assert not self.channel.waiting

    def lease(self, name: str, request: float = 0.0, limit: float = 1.0) -> Lease:
        lease = self.leases[name] = Lease(name, request, limit)
        self.send(lease.message(), *lease.page.descriptors)
        return lease

    def worker(self, lease: Lease, mode: str = "greedy") -> Worker:
        self.sessions += 1
        worker = Worker(lease, self.sessions, mode)
        self.workers.append(worker)
        self.introduce(worker)
        return worker

    def introduce(self, worker: Worker) -> None:
        message = say.WorkerIs(
            worker.session, worker.lease.name, worker.slot, worker.process.pid, "record"
        )
        self.send(message, worker.pidfd, worker.control.fileno())

    def hear(self, kind: type, seconds: float = DEADLINE_SECONDS) -> tuple[say.Message, list[int]]:
        """Returns the next message of a kind; other messages are kept in `heard`."""
        deadline = time.monotonic() + seconds
        while True:
            got = self.channel.receive()
            if got is None:
                left = deadline - time.monotonic()
                assert left > 0, f"no {kind.__name__} came; came: {self.heard[-5:]}"
                select.select([self.channel], [], [], left)
            elif isinstance(got[0], kind):
                return got
            else:
                self.heard.append(got[0])

    def usage(self, lease: Lease, seconds: float = DEADLINE_SECONDS) -> say.UsageIs:
        """The next usage of a lease."""
        while True:
            message, _ = self.hear(say.UsageIs, seconds)
            assert isinstance(message, say.UsageIs)
            if message.lease == lease.name:
                return message

    def usage_when(self, lease: Lease, holds: Callable[[say.UsageIs], bool]) -> say.UsageIs:
        """The first usage of a lease of which this holds. Reports that are older than what the test
        has seen may be unread.
        """
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds(usage := self.usage(lease)):
            assert time.monotonic() < deadline, f"the last usage was {usage}"
        return usage

    def kill(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.channel.close()
