"""Compiles the source of a session's kernels, in a process beside the session's worker.

`python -m rgpu_server.arrays.nvrtc_server --fd N`. The source is a tenant's, and NVRTC reads any
file that an `#include` names and quotes it in its log. So each source is compiled in a process of
its own that can open no file and no socket, and whose memory and processor time are bounded
(rgpu_emu/compile_sandbox.py). It gets CUDA's own headers with the source (headers.py). The server
only starts these processes: it passes bytes on and reads none of them. It ends with the socket.

A request is its length (4 bytes) and msgpack: source, file, options, name expressions. An answer is
its length, a status (1 byte) and msgpack. The first answer comes unasked: the measures that the
machine refused, as in a worker's READY. A byte comes before the first request, with the file of the
tenant's places if there is one. The processor time of all sources is charged to it: the tenant has
a burst, and beyond it sources are compiled with what nobody else on the machine wants.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import struct
import sys
import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import msgpack

from rgpu_emu.compile_sandbox import (
    EXIT_MEMORY,
    JobLimits,
    Report,
    enter_sandbox,
    limit_request,
    own_user,
    slow_down,
    trial,
)
from rgpu_emu.compile_schedule import Bounds
from rgpu_server.arrays.headers import Headers
from rgpu_server.arrays.nvrtc import Nvrtc, NvrtcMissingError, SourceError
from rgpu_server.arrays.places_file import Meter, PlacesFile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_REQUEST_BYTES: Final = 8 << 20
MOST_ANSWER_BYTES: Final = 32 << 20
LENGTH: Final = struct.Struct("<I")
_CHUNK: Final = 1 << 20
# A template may make the compiler work for ever, or fill any memory.
_MEMORY_BYTES: Final = 2 << 30
_SECONDS: Final = 60
# A job that gets only what nobody else wants may take as long.
_WALL_SECONDS: Final = Bounds.wall_seconds
_CHARGE_SECONDS: Final = 1.0
_PROCESSES: Final = 16
_WARM_UP: Final = b"__global__ void warm_up() {}"


class Status(IntEnum):
    """The first byte of an answer, and what follows.

    DONE: code, names, log. REFUSED: the compiler's log. FAILED: a sentence. REPORT: the measures
    that are missing.
    """

    DONE = 0
    REFUSED = 1
    FAILED = 2
    REPORT = 3


class _EndedError(Exception):
    """The worker has gone."""


class _Server:
    def __init__(self, line: socket.socket, limits: JobLimits) -> None:
        self._line = line
        self._limits = limits
        self._nvrtc: Nvrtc | None = None
        self._missing = ""
        try:
            self._nvrtc = Nvrtc()
        except NvrtcMissingError as error:
            self._missing = str(error)
        self._headers = Headers()
        self._warm = False
        self._meter: Meter | None = None

    def serve(self, report: str) -> None:
        self._answer(Status.REPORT, msgpack.packb(report))
        said, places, _, _ = socket.recv_fds(self._line, 1, 1)
        if not said:
            return
        if places:
            self._meter = Meter(PlacesFile(places[0]))
        while True:
            (size,) = LENGTH.unpack(self._take(LENGTH.size))
            if size > MOST_REQUEST_BYTES:
                return
            request = self._take(size)
            status, body = self._compile(request)
            self._answer(status, body)

    def _compile(self, request: bytes) -> tuple[int, bytes]:
        if self._nvrtc is None:
            return Status.FAILED, msgpack.packb(self._missing)
        if not self._warm:
            # What the compiler loads with its first source, all jobs then have.
            self._nvrtc.compile(_WARM_UP, "warm_up.cu", (), (), {})
            self._warm = True
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            _job(self._nvrtc, self._headers, request, self._limits, theirs)
        os.close(theirs)
        try:
            answer = self._read(ours, child)
        finally:
            # Also of a source whose client has gone.
            os.kill(child, signal.SIGKILL)
            _, code = os.waitpid(child, 0)
            os.close(ours)
            self._charge()
        if answer:
            return answer[0], answer[1:]
        return Status.FAILED, msgpack.packb(_why(os.waitstatus_to_exitcode(code)))

    def _charge(self, job: int = 0) -> None:
        """Charges the tenant, and slows down a job that runs beyond the burst."""
        if self._meter is not None and self._meter.charge(job) and job:
            slow_down(job)

    def _read(self, pipe: int, job: int) -> bytes:
        """Returns what a job wrote before its end; nothing if it took too long."""
        answer = bytearray()
        # Processor time is bounded by the kernel. The wall's is, for a job that does not get any.
        until = time.monotonic() + _WALL_SECONDS
        while len(answer) <= MOST_ANSWER_BYTES and (left := until - time.monotonic()) > 0:
            self._charge(job)
            wait = min(left, _CHARGE_SECONDS)
            ready, _, _ = select.select([pipe, self._line.fileno()], [], [], wait)
            if self._line.fileno() in ready and not self._line.recv(1, socket.MSG_PEEK):
                raise _EndedError
            if pipe in ready:
                part = os.read(pipe, _CHUNK)
                if not part:
                    return bytes(answer)
                answer += part
        return b""

    def _answer(self, status: int, body: bytes) -> None:
        self._line.sendall(LENGTH.pack(len(body) + 1) + bytes([status]) + body)

    def _take(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._line.recv(min(size - len(data), _CHUNK))
            if not part:
                raise _EndedError
            data += part
        return bytes(data)


def _why(code: int) -> str:
    if code == EXIT_MEMORY or code == -signal.SIGSEGV or code == -signal.SIGABRT:
        return "the compiler ran out of memory, or failed on this source; make the source smaller"
    return "the compiler took too long for this source; make the source smaller"


def _job(nvrtc: Nvrtc, headers: Headers, request: bytes, limits: JobLimits, pipe: int) -> None:
    """Compiles one source and writes the answer; never returns."""
    code = 1
    try:
        fields: Any = msgpack.unpackb(request)
        # The only files that a source can have are read before it is compiled.
        included = headers.of(fields[0])
        limit_request(pipe, limits, Report())
        _write(pipe, _answer_of(nvrtc, fields, included))
        code = 0
    except MemoryError:
        code = EXIT_MEMORY
    finally:
        os._exit(code)


def _answer_of(nvrtc: Nvrtc, fields: Sequence[Any], included: Mapping[str, bytes]) -> bytes:
    source, file, options, expressions = fields
    try:
        done = nvrtc.compile(source, file, options, expressions, included)
    except SourceError as error:
        return b"".join((bytes([Status.REFUSED]), msgpack.packb(str(error))))
    return b"".join((bytes([Status.DONE]), msgpack.packb([done.code, done.names, done.log])))


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves a worker until it has gone."""
    parser = argparse.ArgumentParser(prog="python -m rgpu_server.arrays.nvrtc_server")
    parser.add_argument("--fd", type=int, required=True, help="the connected socket")
    parser.add_argument("--memory", type=int, default=_MEMORY_BYTES, help="bytes of one job")
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="processor time of one job")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    report = Report()
    with socket.socket(fileno=given.fd) as line:
        limits = JobLimits(given.memory, given.seconds)
        server = _Server(line, limits)
        enter_sandbox(own_user(), _PROCESSES, report)
        # The jobs report to nobody: what one of them would lack is found out before any source.
        report.add(trial(limits))
        try:
            server.serve(report.text())
        except (_EndedError, OSError):
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
