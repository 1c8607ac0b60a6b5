"""A worker's side of the process that compiles its kernels (nvrtc_server.py)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgpack

from rgpu_common.errors import WorkerError
from rgpu_server.arrays.nvrtc import Compiled, SourceError
from rgpu_server.arrays.nvrtc_server import LENGTH, MOST_ANSWER_BYTES, MOST_REQUEST_BYTES, Status
from rgpu_server.arrays.places import Places

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_START_SECONDS = 60
# As long as a request of the compiler of PTX waits (rgpu_emu/compile_schedule.py).
_WAIT_SECONDS = 600.0
_CHUNK = 1 << 20
# The process keeps the environment that a clean worker has.
_KEPT = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LANG")


class CompilerLostError(RuntimeError):
    """The process that compiles has ended, or did not answer in time."""


class SourceCompiler:
    """Compiles CUDA C++ in a process beside this one. Callable in any thread, one at a time."""

    def __init__(
        self, memory_bytes: int = 2 << 30, seconds: int = 60, wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        """Starts the process, which a worker does before it gives up its rights.

        Args:
            memory_bytes: bounds the address space of one compilation.
            seconds: bounds the processor time of one compilation.
            wait_seconds: bounds the wait for a place.

        Raises:
            CompilerLostError: it cannot be started.
        """
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._report: str | None = None
        self._places: Places | None = None
        self._file = -1
        self._begun = False
        self._line, theirs = socket.socketpair()
        # A confined process cannot change this any more: Python does it by ioctl.
        self._line.setblocking(False)
        self._until = 0.0
        command = [sys.executable, "-m", "rgpu_server.arrays.nvrtc_server"]
        command += ["--fd", f"{theirs.fileno()}", "--memory", f"{memory_bytes}"]
        command += ["--seconds", f"{seconds}"]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={name: os.environ[name] for name in _KEPT if name in os.environ},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except OSError as error:
            self._line.close()
            raise CompilerLostError(f"the compiler of kernels cannot be started: {error}") from None
        finally:
            theirs.close()

    def report(self) -> str:
        """Waits until the process is there. Returns the isolation that it lacks, in the words of a
        worker's READY.

        Raises:
            CompilerLostError: it has ended.
        """
        with self._lock:
            return self._reported()

    def share(self, places: int) -> None:
        """From now on compiles only at one of the tenant's places, which its sessions share, and
        charges the tenant's budget. Called before the first source.

        places: the file of the places, as `AssignFds` has it; -1: there are none to wait for.
        """
        self._file = places
        self._places = Places(places) if places >= 0 else None

    def compile(
        self, source: bytes, file: str, options: Sequence[str], expressions: Sequence[str] = ()
    ) -> Compiled:
        """Compiles a source. The arguments are those of `Nvrtc.compile`.

        Raises:
            SourceError: the source has an error; the text is the compiler's log.
            ValueError: the source is too long.
            CompilerLostError: the process has ended.
            RuntimeError: the compiler took too long, or too much memory, or is not installed, or no
                place became free in time.
        """
        request: bytes = msgpack.packb([source, file, list(options), list(expressions)])
        if len(request) > MOST_REQUEST_BYTES:
            raise ValueError(f"the source of a kernel has at most {MOST_REQUEST_BYTES >> 20} MiB")
        with self._lock:
            self._reported()
            with self._place():
                status, body = self._asked(request)
        if status == Status.REFUSED:
            raise SourceError(body)
        if status != Status.DONE:
            raise RuntimeError(body)
        code, names, log = body
        return Compiled(code, names, log)

    def close(self) -> None:
        """Ends the process. A worker need not call it: the process ends with its socket."""
        self._line.close()
        self._process.wait(_START_SECONDS)

    def _reported(self) -> str:
        if self._report is None:
            self._until = time.monotonic() + _START_SECONDS
            _, self._report = self._received()
        return self._report

    def _place(self) -> contextlib.AbstractContextManager[None]:
        if self._places is None:
            return contextlib.nullcontext()
        return self._places.place(self._wait_seconds)

    def _asked(self, request: bytes) -> tuple[int, Any]:
        # The other end has a bound of its own for each source.
        self._until = time.monotonic() + _WAIT_SECONDS + _START_SECONDS
        if not self._begun:
            self._begun = True
            self._try(self._begin, select.POLLOUT)
        rest = memoryview(LENGTH.pack(len(request)) + request)
        while rest:
            rest = rest[self._try(partial(self._line.send, rest), select.POLLOUT) :]
        return self._received()

    def _begin(self) -> int:
        """Sends the file of the tenant's places, if there is one."""
        return socket.send_fds(self._line, [b"p"], [self._file] if self._file >= 0 else [])

    def _received(self) -> tuple[int, Any]:
        (size,) = LENGTH.unpack(self._take(LENGTH.size))
        if not 0 < size <= MOST_ANSWER_BYTES + 1:
            raise self._lost()
        answer = self._take(size)
        return answer[0], msgpack.unpackb(answer[1:])

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            most = min(size - len(data), _CHUNK)
            data += self._try(partial(self._line.recv, most), select.POLLIN)
        return bytes(data)

    def _try(self, call: Callable[[], _T], event: int) -> _T:
        """Calls the socket when it is ready. Nothing comes of it: the process is lost."""
        poll = select.poll()
        poll.register(self._line, event)
        while (left := self._until - time.monotonic()) > 0:
            if not poll.poll(left * 1000):
                continue
            try:
                got = call()
            except BlockingIOError:
                continue
            except OSError:
                break
            if got:
                return got
            break
        raise self._lost()

    def _lost(self) -> CompilerLostError:
        # What comes late would be taken for the answer to the next source.
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_RDWR)
        return CompilerLostError(
            "the compiler of this session's kernels has ended; open a new session"
        )


def first_report() -> str:
    """Returns the isolation report of a process started only for that; raises WorkerError."""
    try:
        compiler = SourceCompiler()
        with contextlib.closing(compiler):
            return compiler.report()
    except (CompilerLostError, subprocess.TimeoutExpired) as error:
        raise WorkerError(f"the compiler of CUDA C++ could not be started: {error}") from None
