"""The compiler's loop.

One thread waits on all connections of one tenant. Jobs, sandboxed processes of one module each,
work on the requests. So a request that crashes LLVM, hangs or uses up memory ends only its own job.
`compile_schedule` decides which job works on which request, and bounds all jobs together.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from rgpu_common.texts import process_end
from rgpu_common.wire.compiler import MessageType
from rgpu_common.wire.frame import WireError
from rgpu_emu.compile_cache import ModuleStore, ObjectCache
from rgpu_emu.compile_connection import Connection
from rgpu_emu.compile_process import Job, JobDiedError
from rgpu_emu.compile_requests import Request, read_request
from rgpu_emu.compile_sandbox import (
    EXIT_MEMORY,
    JobLimits,
    Report,
    keep_folder,
)
from rgpu_emu.compile_schedule import Bounds, Decision, Give, Refuse, Schedule, Slow, Start
from rgpu_emu.ptx.errors import (
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY,
    PtxError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parts of the memory bound: stored modules, and all jobs together. The rest is for messages on
# their way.
_STORE_PART: Final = 1 / 16
_JOBS_PART: Final = 3 / 4
# Part of a request's time in which its message must arrive while other connections wait to send
# theirs.
_MESSAGE_PART: Final = 1 / 10


class Compiler:
    """The server loop of one tenant."""

    def __init__(self, bounds: Bounds, memory_bytes: int, cache: ObjectCache) -> None:
        self._selector = selectors.DefaultSelector()
        self._bounds = bounds
        self._schedule = Schedule(bounds, time.monotonic())
        part = int(memory_bytes * _JOBS_PART) // bounds.processes
        self.limits = JobLimits(part, math.ceil(bounds.job_seconds))
        self._modules = ModuleStore(int(memory_bytes * _STORE_PART))
        self._cache = cache
        self._connections: set[Connection] = set()
        # _floor: the connection that may send a long message. _floor_until: its deadline, which
        # counts only while _floor_wanted, which is True if other connections want the floor.
        self._floor: Connection | None = None
        self._floor_until = 0.0
        self._floor_wanted = False
        self._requests: dict[int, Request] = {}
        self._jobs: dict[int, Job] = {}
        self._works_on: dict[int, int] = {}  # job -> request
        self._last_request = 0
        self._listener: socket.socket | None = None
        self._settled = False

    def serve(self, sock: socket.socket) -> None:
        """Adds a connected socket."""
        connection = Connection(sock)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)

    def accept_on(self, listener: socket.socket) -> None:
        """Adds the SOCK_SEQPACKET socket on which connected sockets arrive."""
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, None)

    def run(self) -> None:
        """Serves until the listener and the last connection have closed."""
        while self._listener is not None or self._connections:
            for key, events in self._selector.select(self._timeout()):
                if key.data is None:
                    self._accept()
                elif isinstance(key.data, int):
                    self._on_job(key.data)
                elif key.data in self._connections:
                    self._on_socket(key.data, events)
            self._go_on()
        for number in list(self._jobs):
            self._end(number)

    def _go_on(self) -> None:
        """Handles requests and decisions until nothing more can be done now."""
        self._pass_floor()
        while True:
            self._measure()
            for connection in list(self._connections):
                with self._closing(connection):
                    self._work(connection)
            decisions = self._schedule.decide(time.monotonic())
            for decision in decisions:
                self._do(decision)
            if not decisions:
                break
        self._pass_floor()

    # --- sockets ----------------------------------------------------------------------------------
    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            data, descriptors, _, _ = socket.recv_fds(self._listener, 4096, 4)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, descriptors = b"", []
        if not data and not descriptors:
            self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None  # the daemon has gone; running sessions go on
            return
        if not descriptors:
            return
        self.serve(socket.socket(fileno=descriptors[0]))
        if self._settled:
            return
        # A tenant's first session comes with its folder, and with the time that an earlier compiler
        # spent.
        self._settled = True
        folder = descriptors[1] if len(descriptors) > 1 else -1
        self._cache.use(folder)
        keep_folder(folder, Report())
        with contextlib.suppress(ValueError):
            self._schedule.owe(float(data), time.monotonic())

    def _on_socket(self, connection: Connection, events: int) -> None:
        with self._closing(connection):
            if events & selectors.EVENT_WRITE:
                connection.flush()
            if events & selectors.EVENT_READ:
                connection.receive(floor=connection is self._floor)
            self._watch(connection)

    @contextlib.contextmanager
    def _closing(self, connection: Connection) -> Iterator[None]:
        """Closes the connection if the block finds it broken or finds a violation of the
        protocol.
        """
        try:
            yield
        except (WireError, OSError) as error:
            if isinstance(error, WireError):
                print(f"rgpu compiler: connection ended: {error}", file=sys.stderr)
            self._close(connection)

    def _watch(self, connection: Connection) -> None:
        wanted = connection.events(floor=connection is self._floor)
        known = self._selector.get_map().get(connection.sock)
        if known is None and wanted:
            self._selector.register(connection.sock, wanted, connection)
        elif known is not None and not wanted:
            self._selector.unregister(connection.sock)
        elif known is not None and known.events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _pass_floor(self) -> None:
        """Gives the floor to one connection with a long message, and to the next when a job works
        on that message.
        """
        now = time.monotonic()
        holder = self._floor
        if holder is not None and not holder.wants_floor():
            waiting = holder.request and holder.request not in self._works_on.values()
            holder = self._floor = holder if waiting else None
        wanting = [c for c in self._connections if c is not holder and c.wants_floor()]
        if wanting and holder is not None and holder.wants_floor() and now >= self._floor_until:
            print("rgpu compiler: connection ended: its message came too late", file=sys.stderr)
            self._close(holder)
        if wanting and self._floor is None:
            self._floor = wanting.pop()
            self._floor_until = now + self._bounds.wall_seconds * _MESSAGE_PART
        self._floor_wanted = bool(wanting)
        for connection in self._connections:
            self._watch(connection)

    def _timeout(self) -> float | None:
        now = time.monotonic()
        wake = self._schedule.wake(now)
        if not self._floor_wanted or self._floor is None or not self._floor.wants_floor():
            return wake
        left = max(self._floor_until - now, 0.0)
        return left if wake is None else min(wake, left)

    def _close(self, connection: Connection) -> None:
        self._connections.discard(connection)
        if self._floor is connection:
            self._floor = None
        if connection.request:
            self._measure()
            self._end(self._schedule.withdraw(connection.request))
            self._requests.pop(connection.request, None)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.sock.close()
        if not self._connections:
            for number in self._schedule.retire():
                self._end(number)

    # --- requests ---------------------------------------------------------------------------------
    def _work(self, connection: Connection) -> None:
        """Takes requests of a connection until one must wait for a job."""
        while (taken := connection.take()) is not None:
            request = read_request(connection, *taken, self._modules)
            if request is None:
                continue
            cached = self._cache.get(request.cache_key) if request.cache_key else None
            if cached is not None:
                connection.send(request.reply, cached)
                continue
            self._last_request += 1
            connection.request = self._last_request
            self._requests[self._last_request] = request
            self._schedule.ask(self._last_request, request.key, time.monotonic())
        self._watch(connection)

    def _answer(self, number: int, body: bytes) -> None:
        request = self._requests.pop(number, None)
        if request is None or request.connection not in self._connections:
            return
        request.connection.request = 0
        with self._closing(request.connection):
            request.connection.send(request.reply, body)

    # --- jobs -------------------------------------------------------------------------------------
    def _do(self, decision: Decision) -> None:
        if isinstance(decision, Start):
            self._end(decision.instead)
            self._start(decision)
        elif isinstance(decision, Give):
            self._ask(decision.job, decision.request)
        elif isinstance(decision, Slow):
            if decision.job in self._jobs:
                self._jobs[decision.job].slow_down()
        else:
            self._refuse(decision)

    def _start(self, decision: Start) -> None:
        request = self._requests[decision.request]
        try:
            job = Job(request.inputs, self.limits, slow=decision.slow)
        except OSError as error:
            self._schedule.failed(decision.job)
            sentence = f"the machine has no process for the compiler ({error}): try again"
            failure = PtxError(sentence, result=CUDA_ERROR_OUT_OF_MEMORY)
            self._answer(decision.request, request.fail(failure))
            return
        self._jobs[decision.job] = job
        self._selector.register(job.sock, selectors.EVENT_READ, decision.job)
        self._ask(decision.job, decision.request)

    def _ask(self, number: int, asked: int) -> None:
        self._works_on[number] = asked
        request = self._requests[asked]
        # A job that has died is noticed when its answer is read.
        with contextlib.suppress(OSError):
            self._jobs[number].ask(request.kind, request.body)

    def _refuse(self, decision: Refuse) -> None:
        self._end(decision.job)
        request = self._requests.get(decision.request)
        if request is not None:
            error = PtxError(decision.sentence, result=CUDA_ERROR_NOT_SUPPORTED)
            self._answer(decision.request, request.fail(error))

    def _on_job(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is None:
            return
        try:
            body = job.read()
        except JobDiedError as error:
            self._died(number, error)
            return
        if body is None:
            return
        self._schedule.measured(number, job.processor_seconds(), time.monotonic())
        self._schedule.answered(number, time.monotonic())
        asked = self._works_on.pop(number)
        request = self._requests.get(asked)
        if request is not None and request.cache_key and body[:4] == b"\0\0\0\0":
            self._cache.put(request.cache_key, body)
        self._answer(asked, body)

    def _died(self, number: int, error: JobDiedError) -> None:
        job = self._jobs.pop(number)
        self._selector.unregister(job.sock)
        job.sock.close()
        asked = self._works_on.pop(number, 0)
        self._schedule.measured(number, job.processor_seconds(), time.monotonic())
        print(f"rgpu compiler: a job died: {process_end(error.code)}", file=sys.stderr)
        if self._schedule.died(number) or asked not in self._requests:
            return
        request = self._requests[asked]
        what = (
            f"kernel '{request.body.decode()}'" if request.kind is MessageType.LOWER else "module"
        )
        sentence = (
            f"the compiler's process ended with status {error.code} at the {what}: a defect of the "
            "emulated device's compiler, or more memory than it may have; make the kernel smaller, "
            "or report it to rgpu together with the PTX"
        )
        failure = PtxError(sentence, result=CUDA_ERROR_NOT_SUPPORTED)
        if error.code == EXIT_MEMORY:
            sentence = "the compiler ran out of memory"
            failure = PtxError(sentence, result=CUDA_ERROR_OUT_OF_MEMORY)
        self._answer(asked, request.fail(failure))

    def _measure(self) -> None:
        now = time.monotonic()
        for number in self._schedule.busy():
            if number in self._jobs:
                self._schedule.measured(number, self._jobs[number].processor_seconds(), now)

    def _end(self, number: int) -> None:
        job = self._jobs.pop(number, None)
        self._works_on.pop(number, None)
        if job is not None:
            self._selector.unregister(job.sock)
            job.sock.close()
            job.end()
