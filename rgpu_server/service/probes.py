"""Passes probes to the responder. It is a process of its own, so that neither the daemon nor a
session waits for a measurement.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
from typing import TYPE_CHECKING

from msgspec import Struct, field

from netprobe.identity import make_identity
from netprobe.respond import responder_command, start_responder
from rgpu_common.crowds import of_largest_crowd
from rgpu_common.errors import RgpuError
from rgpu_common.texts import process_end
from rgpu_common.wire.scalars import Writer
from rgpu_server.core.isolation import Process
from rgpu_server.workers.logs import LogPipe

if TYPE_CHECKING:
    from netprobe.identity import HostIdentity
    from rgpu_server.config import ProbeOptions
    from rgpu_server.isolation import Isolation

log = logging.getLogger("rgpu.probe")

# A responder without probes for this long is ended; the next probe starts another.
IDLE_SECONDS = 60.0
MAX_HEAD_BYTES = 64
_LOG_BYTES = 16 << 10
_REPORT_BYTES = 4096
_REPORT_SECONDS = 30.0
# So many probes wait for a responder that starts. Then the network with the most loses its first.
MOST_WAITING = 64


class _Running(Struct, eq=False):
    """A responder process. It ends when its control socket is closed and its last probe is over."""

    process: subprocess.Popen[bytes]
    pidfd: int
    control: socket.socket
    log: LogPipe
    # Probes that wait until the responder's isolation is judged, the first first, each with where
    # it comes from; None: it has been judged.
    waiting: dict[tuple[bytes, socket.socket], str] | None = field(default_factory=dict)


class Probes:
    """endpoints: what clients of probes are told about the server; set before the first probe."""

    def __init__(self, identity: HostIdentity, options: ProbeOptions, isolation: Isolation) -> None:
        self.identity = identity
        self._options = options
        self._isolation = isolation
        self.endpoints: tuple[str, ...] = ()
        self.passed = 0
        self._current: _Running | None = None
        self._all: set[_Running] = set()
        self._idle: asyncio.TimerHandle | None = None

    def take(self, connection: socket.socket, head: bytes, peer: str) -> str:
        """Passes a connection on with the head of its PROBE, and closes our copy. Otherwise returns
        a sentence why not; the caller then closes the connection.
        """
        if not self._options.answer:
            return (
                "this server answers no probes (probe.answer = false); connect to the address that "
                "its operator named"
            )
        if len(head) > MAX_HEAD_BYTES:
            return "the PROBE is too long"
        try:
            running = self._current = self._current or self._start()
        except (OSError, RgpuError) as error:
            log.warning("the probe responder could not be started: %s", error)
            return "this server cannot answer probes now"
        writer = Writer()
        writer.put_bytes(peer.encode()[:256])
        writer.put_bytes(head)
        if not self._take(running, writer.take(), connection, peer):
            return "the probe responder is busy with others: try again in a few seconds"
        self.passed += 1
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._let_go)
        return ""

    def _take(
        self, running: _Running, message: bytes, connection: socket.socket, origin: str
    ) -> bool:
        waiting = running.waiting
        if waiting is None:
            return self._pass(running, message, connection)
        leaves = of_largest_crowd(waiting.items(), origin)
        if leaves is not None and len(waiting) >= MOST_WAITING:
            del waiting[leaves]
            leaves[1].close()
        waiting[message, connection] = origin
        return True

    def _pass(self, running: _Running, message: bytes, connection: socket.socket) -> bool:
        try:
            socket.send_fds(running.control, [message], [connection.fileno()])
        except OSError:
            return False
        connection.close()
        return True

    def _heard(self, running: _Running) -> None:
        """Handles the responder's only message: how it is isolated."""
        loop = asyncio.get_running_loop()
        try:
            report = read_report(running.control.recv(_REPORT_BYTES))
        except BlockingIOError:
            return
        except OSError:
            report = None
        loop.remove_reader(running.control.fileno())
        why = "it sent no report" if report is None else self._check(report)
        if why:
            log.error("the probe responder is not used: %s", why)
            running.process.kill()
            return
        waiting, running.waiting = running.waiting or {}, None
        for message, connection in waiting:
            if not self._pass(running, message, connection):
                connection.close()

    def _check(self, report: str) -> str:
        return self._isolation.check(Process.RESPONDER, report)

    def close(self) -> None:
        """Called when the daemon ends: lets responders end by themselves."""
        self._let_go()
        for running in list(self._all):
            self._forget(running)
            running.process.returncode = 0  # init inherits the process and waits for it

    def _let_go(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._current is not None:
            self._stop_talking(self._current)
            self._current = None

    def _stop_talking(self, running: _Running) -> None:
        """Closes the control socket: the responder ends after its last probe; waiting probes end
        now.
        """
        if running.control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(running.control.fileno())
            running.control.close()
        for _, connection in running.waiting or ():
            connection.close()
        running.waiting = {}

    def _start(self) -> _Running:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        pipe = LogPipe("probe responder", _LOG_BYTES)
        try:
            command = responder_command(self.identity, self.endpoints)
            command += ["--bytes-per-second", str(self._options.bytes_per_second)]
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
        asyncio.get_running_loop().add_reader(ours.fileno(), self._heard, running)
        return running

    def _exited(self, running: _Running) -> None:
        status = running.process.wait()
        self._forget(running)
        if status != 0:
            end = process_end(status)
            log.warning("the probe responder ended with %s; the next probe starts another", end)

    def _forget(self, running: _Running) -> None:
        asyncio.get_running_loop().remove_reader(running.pidfd)
        os.close(running.pidfd)
        running.log.close()
        self._stop_talking(running)
        self._all.discard(running)
        if running is self._current:
            self._current = None


def read_report(message: bytes) -> str | None:
    """Returns the missing isolation that a responder reports; None if the message is invalid."""
    word, tab, report = message.decode(errors="replace").partition("\t")
    return report if word == "isolation" and tab else None


def responder_report() -> str:
    """Starts a responder and returns the isolation that it lacks. Returns "" also if it does not
    start; the log says why when a probe needs it.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(_REPORT_SECONDS)
        with theirs:
            try:
                command = responder_command(make_identity(), ())
                process = start_responder(
                    command, "--control-fd", [theirs.fileno()], subprocess.DEVNULL
                )
            except (OSError, RgpuError):
                return ""
        try:
            return read_report(ours.recv(_REPORT_BYTES)) or ""
        except OSError:
            return ""
        finally:
            process.kill()
            process.wait()
