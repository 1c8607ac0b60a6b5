"""The PTX compiler process: `python -m rgpu_emu.compiler --fd N | --accept-fd N`.

One thread waits on all connections.  Every request is worked on in a forked child, so that a
request that crashes LLVM, hangs or eats memory ends alone; requests of different connections run
side by side.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from rgpu_emu import __version__, compile_job
from rgpu_emu.compile_cache import DEFAULT_LIMIT_BYTES, ModuleStore, ObjectCache
from rgpu_emu.compile_protocol import (
    HEADER,
    LINK,
    LINKED,
    LOAD,
    LOADED,
    LOWER,
    LOWERED,
    MAX_BODY_BYTES,
    ProtocolError,
    message,
    parse_inputs,
    parse_lower,
)
from rgpu_emu.compile_sandbox import EXIT_MEMORY, REQUEST_SECONDS, enter_sandbox, spawn
from rgpu_emu.lower.abi import KERNEL_ABI
from rgpu_emu.lower.codegen import host
from rgpu_emu.ptx.errors import (
    CUDA_ERROR_NOT_FOUND,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_OUT_OF_MEMORY,
    PtxError,
)

# Children at work at a time, each with memory and a CPU of its own; further requests wait.
MAX_CHILDREN: Final = max(2, min(os.cpu_count() or 2, 8))
_CHUNK: Final = 1 << 20
Failure = Callable[[PtxError], bytes]


@dataclass(eq=False)
class Request:
    """A child at work."""

    reader: int
    pid: int
    deadline: float
    reply: int
    fail: Failure
    cache_key: str
    output: bytearray = field(default_factory=bytearray)


@dataclass(eq=False)
class Connection:
    """One session's socket; its requests are answered in order, so it has at most one child."""

    sock: socket.socket
    cache: ObjectCache
    incoming: bytearray = field(default_factory=bytearray)
    outgoing: bytearray = field(default_factory=bytearray)
    request: Request | None = None


@lru_cache(maxsize=1)
def emitter_version() -> str:
    """Names this compiler: its release and its own text, so that no object of another is used."""
    digest = hashlib.sha256(__version__.encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def module_key(inputs: list[bytes]) -> bytes:
    """Names a list of inputs, for this emitter on this machine."""
    digest = hashlib.sha256(f"{emitter_version()} {KERNEL_ABI} {host().fingerprint()}".encode())
    for data in inputs:
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.digest()


class Compiler:
    """The server loop."""

    def __init__(self, cache_root: Path | None, limit_bytes: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._modules = ModuleStore()
        self._cache_root, self._limit = cache_root, limit_bytes
        self._connections: set[Connection] = set()
        self._listener: socket.socket | None = None

    def serve(self, sock: socket.socket, namespace: str) -> None:
        """Adds a connected socket."""
        sock.setblocking(False)
        connection = Connection(
            sock, ObjectCache(self._cache_root, namespace, limit_bytes=self._limit)
        )
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
                elif isinstance(key.data, Connection) and key.data in self._connections:
                    self._on_socket(key.data, events, is_child=key.fileobj is not key.data.sock)
            self._end_overdue()
            self._work_on_waiting()

    def _timeout(self) -> float | None:
        deadlines = [c.request.deadline for c in self._connections if c.request is not None]
        return max(min(deadlines) - time.monotonic(), 0.0) if deadlines else None

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
            self._listener = None  # a daemon that has gone does not end the sessions that run
            return
        for descriptor in descriptors:
            self.serve(socket.socket(fileno=descriptor), data.decode("utf-8", "replace"))

    def _on_socket(self, connection: Connection, events: int, *, is_child: bool) -> None:
        try:
            if is_child:
                self._on_child(connection)
            else:
                if events & selectors.EVENT_WRITE:
                    self._flush(connection)
                if events & selectors.EVENT_READ:
                    self._receive(connection)
            self._work(connection)
        except (ProtocolError, OSError) as error:
            if isinstance(error, ProtocolError):
                print(f"rgpu compiler: connection ended: {error}", file=sys.stderr)
            self._close(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            data = connection.sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise ConnectionResetError
        connection.incoming += data
        if len(connection.incoming) > MAX_BODY_BYTES + HEADER.size:
            raise ProtocolError("a message is too large")

    def _work(self, connection: Connection) -> None:
        """Starts the next request if one is there, none is being worked on and a child is free."""
        while (
            connection.request is None
            and len(connection.incoming) >= HEADER.size
            and sum(c.request is not None for c in self._connections) < MAX_CHILDREN
        ):
            kind, zero, size = HEADER.unpack_from(connection.incoming)
            if zero or size > MAX_BODY_BYTES:
                raise ProtocolError("a message header is wrong")
            if len(connection.incoming) < HEADER.size + size:
                return
            body = bytes(connection.incoming[HEADER.size : HEADER.size + size])
            del connection.incoming[: HEADER.size + size]
            self._handle(connection, kind, body)

    def _handle(self, connection: Connection, kind: int, body: bytes) -> None:
        if kind == LOAD:
            inputs = parse_inputs(body)
            key = module_key(inputs)
            self._modules.put(key, inputs)
            self._start(
                connection,
                LOADED,
                key.hex() + ".load",
                lambda: compile_job.loaded(inputs, key),
                lambda error: compile_job.failed_load(error, key),
            )
        elif kind == LOWER:
            self._lower(connection, *parse_lower(body))
        elif kind == LINK:
            inputs = parse_inputs(body)
            self._start(
                connection, LINKED, "", lambda: compile_job.linked(inputs), compile_job.failed_link
            )
        else:
            raise ProtocolError(f"{kind} is no request")

    def _lower(self, connection: Connection, key: bytes, name: str) -> None:
        inputs = self._modules.get(key)
        if inputs is None:
            error = PtxError(
                "the compiler no longer has this module: load it again", result=CUDA_ERROR_NOT_FOUND
            )
            self._send(connection, LOWERED, compile_job.failed_lower(error))
            return
        found = inputs
        cache_key = hashlib.sha256(key + name.encode()).hexdigest() + ".obj"
        self._start(
            connection,
            LOWERED,
            cache_key,
            lambda: compile_job.lowered(found, name),
            compile_job.failed_lower,
        )

    def _start(
        self,
        connection: Connection,
        reply: int,
        cache_key: str,
        job: Callable[[], bytes],
        fail: Failure,
    ) -> None:
        cached = connection.cache.get(cache_key) if cache_key else None
        if cached is not None:
            self._send(connection, reply, cached)
            return
        try:
            reader, pid = spawn(job)
        except OSError as error:
            sentence = f"the machine has no process for the compiler ({error}): try again"
            body = fail(PtxError(sentence, result=CUDA_ERROR_OUT_OF_MEMORY))
            self._send(connection, reply, body)
            return
        deadline = time.monotonic() + REQUEST_SECONDS
        connection.request = Request(reader, pid, deadline, reply, fail, cache_key)
        self._selector.register(reader, selectors.EVENT_READ, connection)

    def _on_child(self, connection: Connection) -> None:
        request = connection.request
        if request is None:
            return
        try:
            data = os.read(request.reader, _CHUNK)
        except BlockingIOError:
            return
        if data:
            request.output += data
            return
        status = self._reap(connection)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            body = bytes(request.output)
            if request.cache_key and body[:4] == b"\0\0\0\0":
                connection.cache.put(request.cache_key, body)
        elif code == EXIT_MEMORY:
            body = request.fail(
                PtxError("the compiler ran out of memory", result=CUDA_ERROR_OUT_OF_MEMORY)
            )
        else:
            body = request.fail(
                PtxError(
                    f"the compiler failed on this module (status {code})",
                    result=CUDA_ERROR_NOT_SUPPORTED,
                )
            )
        self._send(connection, request.reply, body)

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for connection in list(self._connections):
            request = connection.request
            if request is not None and request.deadline <= now:
                os.kill(request.pid, signal.SIGKILL)
                self._reap(connection)
                sentence = f"compiling took more than {REQUEST_SECONDS} s: make the kernel smaller"
                body = request.fail(PtxError(sentence, result=CUDA_ERROR_NOT_SUPPORTED))
                try:
                    self._send(connection, request.reply, body)
                except (ProtocolError, OSError):
                    self._close(connection)

    def _work_on_waiting(self) -> None:
        """Starts what found no free child when it came."""
        for connection in list(self._connections):
            if connection.request is None and connection.incoming:
                try:
                    self._work(connection)
                except (ProtocolError, OSError):
                    self._close(connection)

    def _reap(self, connection: Connection) -> int:
        request = connection.request
        assert request is not None
        self._selector.unregister(request.reader)
        os.close(request.reader)
        connection.request = None
        return os.waitpid(request.pid, 0)[1]

    def _send(self, connection: Connection, kind: int, body: bytes) -> None:
        connection.outgoing += message(kind, body)
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        try:
            while connection.outgoing:
                sent = connection.sock.send(connection.outgoing[:_CHUNK])
                del connection.outgoing[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.outgoing else 0)
        self._selector.modify(connection.sock, wanted, connection)

    def _close(self, connection: Connection) -> None:
        if connection.request is not None:
            os.kill(connection.request.pid, signal.SIGKILL)
            self._reap(connection)
        self._selector.unregister(connection.sock)
        connection.sock.close()
        self._connections.discard(connection)


def main(arguments: list[str] | None = None) -> int:
    """Runs the process; ends when its socket closes."""
    parser = argparse.ArgumentParser(prog="rgpu_emu.compiler", description=__doc__)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--fd", type=int, help="connected stream socket to serve")
    group.add_argument(
        "--accept-fd", type=int, help="SOCK_SEQPACKET socket on which connected sockets arrive"
    )
    options = parser.parse_args(arguments)
    cache = os.environ.get("RGPU_EMU_CACHE")
    limit = int(os.environ.get("RGPU_EMU_CACHE_BYTES") or DEFAULT_LIMIT_BYTES)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host()
    emitter_version()
    enter_sandbox()
    gc.collect()
    gc.freeze()
    compiler = Compiler(Path(cache) if cache else None, limit)
    if options.fd is not None:
        compiler.serve(socket.socket(fileno=options.fd), "default")
    else:
        compiler.accept_on(socket.socket(fileno=options.accept_fd))
    compiler.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
