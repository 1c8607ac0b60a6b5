"""Hands probes to the responder, a process of its own, so that neither the daemon nor a session
waits for a measurement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from netprobe.respond import responder_command, start_responder
from rgpu_common.errors import RgpuError
from rgpu_common.wire.scalars import Writer
from rgpu_server.workers.logs import LogPipe

if TYPE_CHECKING:
    import subprocess

    from netprobe.identity import HostIdentity

log = logging.getLogger("rgpu.probe")

# A responder that nobody has asked for so long is let go; the next probe starts another.
IDLE_SECONDS = 60.0
MAX_HEAD_BYTES = 64
_LOG_BYTES = 16 << 10


@dataclass(slots=True, eq=False)
class _Running:
    """A responder process; it ends by itself when its control socket is closed and its last probe
    is over.
    """

    process: subprocess.Popen[bytes]
    pidfd: int
    control: socket.socket
    log: LogPipe


class Probes:
    """endpoints: what probes are told of the server; set before the first one comes."""

    def __init__(self, identity: HostIdentity) -> None:
        self.identity = identity
        self.endpoints: tuple[str, ...] = ()
        self.passed = 0
        self._current: _Running | None = None
        self._all: set[_Running] = set()
        self._idle: asyncio.TimerHandle | None = None

    def take(self, connection: socket.socket, head: bytes, peer: str) -> str:
        """Passes a connection on, with the head of its PROBE, and closes ours; or returns why
        not, and the connection is the caller's to close.
        """
        if len(head) > MAX_HEAD_BYTES:
            return "a PROBE is not that long"
        try:
            running = self._current = self._current or self._start()
        except (OSError, RgpuError) as error:
            log.warning("the probe responder could not be started: %s", error)
            return "this server cannot answer probes now"
        writer = Writer()
        writer.put_bytes(peer.encode()[:256])
        writer.put_bytes(head)
        try:
            socket.send_fds(running.control, [writer.take()], [connection.fileno()])
        except OSError:
            return "the probe responder is busy with others: try again in a few seconds"
        self.passed += 1
        connection.close()
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._let_go)
        return ""

    def close(self) -> None:
        """The daemon ends: lets responders end, and waits for none of them."""
        self._let_go()
        for running in list(self._all):
            self._forget(running)
            running.process.returncode = 0  # init inherits it; it is not ours to wait for

    def _let_go(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._current is not None:
            self._current.control.close()
            self._current = None

    def _start(self) -> _Running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        pipe = LogPipe("probe responder", _LOG_BYTES)
        try:
            command = responder_command(self.identity, self.endpoints)
            process = start_responder(command, "--control-fd", [theirs.fileno()], pipe.write_fd)
            running = _Running(process, os.pidfd_open(process.pid), ours, pipe)
        except (OSError, RgpuError):
            ours.close()
            pipe.close()
            raise
        finally:
            theirs.close()
            pipe.close_write_end()
        self._all.add(running)
        asyncio.get_running_loop().add_reader(running.pidfd, self._exited, running)
        return running

    def _exited(self, running: _Running) -> None:
        status = running.process.wait()
        self._forget(running)
        if status != 0:
            log.warning("the probe responder ended with %d; the next probe starts another", status)

    def _forget(self, running: _Running) -> None:
        asyncio.get_running_loop().remove_reader(running.pidfd)
        os.close(running.pidfd)
        running.log.close()
        running.control.close()
        self._all.discard(running)
        if running is self._current:
            self._current = None
