"""A job: a sandboxed process that has one list of inputs and answers requests about them."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import struct
import sys
from typing import TYPE_CHECKING, Final

from rgpu_common.wire.compiler import MessageType
from rgpu_emu.compile_job import Work
from rgpu_emu.compile_sandbox import (
    EXIT_MEMORY,
    Report,
    limit_request,
    processor_seconds,
    slow_down,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_emu.compile_sandbox import JobLimits

MAX_NAME_BYTES: Final = 64 << 10  # fits into a socket's buffer, so that a request never blocks
MAX_ANSWER_BYTES: Final = 256 << 20
_REQUEST: Final = struct.Struct("<II")
_ANSWER: Final = struct.Struct("<Q")
_CHUNK: Final = 1 << 20


class JobDiedError(Exception):
    """The job ended without an answer. `code` is that of os.waitstatus_to_exitcode."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the compiler failed on this module (status {code})")
        self.code = code


class Job:
    """The job as its parent process sees it."""

    def __init__(self, inputs: Sequence[bytes], limits: JobLimits, *, slow: bool) -> None:
        """Starts the process; OSError if the machine has no process or descriptor left."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            _child(inputs, limits, theirs.fileno())
        theirs.close()
        ours.setblocking(False)
        self.sock = ours
        self._output = bytearray()
        self._spent = -1.0  # set when the process has ended
        if slow:
            self.slow_down()

    def ask(self, kind: int, body: bytes) -> None:
        """Sends a request: LOAD with its key, LOWER with the entry's name, or LINK."""
        message = _REQUEST.pack(kind, len(body)) + body
        if self.sock.send(message) != len(message):
            raise BlockingIOError

    def read(self) -> bytes | None:
        """Reads bytes that have arrived, and returns the answer when it is complete; else None.

        Raises:
            JobDiedError: the job has ended without an answer, or its answer is too long.
        """
        try:
            data = self.sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data = b""
        self._output += data
        if not data or len(self._output) > MAX_ANSWER_BYTES:
            raise JobDiedError(self.end())
        if len(self._output) < _ANSWER.size:
            return None
        (size,) = _ANSWER.unpack_from(self._output)
        if len(self._output) < _ANSWER.size + size:
            return None
        answer = bytes(self._output[_ANSWER.size :])
        self._output.clear()
        return answer

    def processor_seconds(self) -> float:
        """Returns the processor time of the process so far. It has no children."""
        if self._spent >= 0:
            return self._spent
        return processor_seconds(self.pid)

    def slow_down(self) -> None:
        """Makes the process run only when the machine has nothing else to do."""
        slow_down(self.pid)

    def end(self) -> int:
        """Kills the process and returns its exit status. The status is its own if it ended before
        the signal.
        """
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status, usage = os.wait4(self.pid, 0)
        self._spent = usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status)


def _child(inputs: Sequence[bytes], limits: JobLimits, fd: int) -> None:
    """Answers requests until the socket is closed; never returns."""
    code = 1
    try:
        limit_request(fd, limits, Report())
        _answer(Work(inputs), fd)
        code = 0
    except MemoryError:
        code = EXIT_MEMORY
    finally:
        if code == 1:
            sys.excepthook(*sys.exc_info())
        os._exit(code)


def _answer(work: Work, fd: int) -> None:
    while head := _take(fd, _REQUEST.size):
        kind, size = _REQUEST.unpack(head)
        body = _take(fd, size)
        if kind == MessageType.LOAD:
            answer = work.loaded(body)
        elif kind == MessageType.LINK:
            answer = work.linked()
        else:
            answer = work.lowered(body.decode("utf-8", "replace"))
        rest = memoryview(_ANSWER.pack(len(answer)) + answer)
        while rest:
            rest = rest[os.write(fd, rest) :]
        gc.collect()
        gc.freeze()  # the module stays, so later collections need not visit it


def _take(fd: int, count: int) -> bytes:
    """Returns exactly `count` bytes; b"" if the input ends before."""
    data = b""
    while len(data) < count:
        more = os.read(fd, count - len(data))
        if not more:
            return b""
        data += more
    return data
