"""One worker process, as the daemon handles it: starting, sending messages, watching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rgpu_common.errors import WorkerError
from rgpu_common.texts import process_end
from rgpu_common.wire.frame import WireError
from rgpu_common.wire.worker import (
    MAX_MESSAGE_BYTES,
    Ended,
    FromWorker,
    Ready,
    decode_from_worker,
)
from rgpu_server.workers.groups import MemoryGroups, ceiling_bytes, raise_own_limit
from rgpu_server.workers.logs import LogPipe

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger("rgpu.server")

# Nothing of the daemon's own environment reaches a worker.
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/"}
# Makes an emulated device work as NVIDIA's driver does (executor/halts.h).
_FOR_TESTS = ("RGPU_WORKER_HALTS",)
_REPORT_SECONDS = 30.0
_MOST_FDS = 1


class WorkerOptions(Struct, frozen=True):
    """How to start a worker.

    log_bytes: how much of its output is logged. groups: where it gets a memory cgroup, or None.
    """

    program: Sequence[str]
    library: Path
    sandbox: bool = True
    log_bytes: int = 64 << 10
    groups: MemoryGroups | None = None
    emulated: bool = True


class WorkerWatcher(Protocol):
    """Gets a worker's messages and its end; called from the event loop.

    The descriptors of a message are closed when `worker_said` returns.
    """

    def worker_said(self, worker: int, message: FromWorker, fds: Sequence[int]) -> None: ...

    def worker_exited(self, worker: int, reason: str) -> None: ...


class Handles(Struct, frozen=True):
    """The descriptors that identify a running worker.

    control_fd: our end of its control socket. log_fd: the read end of its log (-1: none).
    """

    pid: int
    pidfd: int
    control_fd: int
    log_fd: int


class WorkerProcess:
    """A running worker. Its descriptors in this process are closed when it has exited."""

    def __init__(self, number: int, options: WorkerOptions, watcher: WorkerWatcher) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = LogPipe(f"worker {number}", options.log_bytes)
        try:
            process = _spawn(options, theirs.fileno(), self._log.write_fd)
            pidfd = os.pidfd_open(process.pid)
        except OSError as error:
            ours.close()
            self._log.close()
            raise WorkerError(f"{options.program[0]} could not be started: {error}") from None
        finally:
            theirs.close()
            self._log.close_write_end()
        self._process: subprocess.Popen[bytes] | None = process
        self._group = None if options.groups is None else options.groups.add(process.pid)
        self._emulated = options.emulated
        self._watch(number, watcher, process.pid, pidfd, ours)

    @classmethod
    def adopted(
        cls,
        number: int,
        handles: Handles,
        log_bytes: int,
        watcher: WorkerWatcher,
        groups: MemoryGroups | None = None,
        lease_bytes: int = 0,
    ) -> WorkerProcess:
        """Takes over a worker that an earlier daemon started, by its descriptors. Its ceilings are
        those for `lease_bytes`.
        """
        worker = cls.__new__(cls)
        worker._process = None
        worker._group = None if groups is None else groups.of(handles.pid)
        worker._emulated = True
        worker._log = LogPipe(f"worker {number}", log_bytes, handles.log_fd)
        worker._log.close_write_end()
        control = socket.socket(fileno=handles.control_fd)
        worker._watch(number, watcher, handles.pid, handles.pidfd, control)
        worker._lease_bytes = lease_bytes
        return worker

    def _watch(
        self, number: int, watcher: WorkerWatcher, pid: int, pidfd: int, control: socket.socket
    ) -> None:
        self.number, self.pid = number, pid
        # The lease that the worker serves, or "".
        self.lease = ""
        # The most memory that the lease had, for which the ceilings are; None: no lease yet.
        self._lease_bytes: int | None = None
        self._at_first: int | None = None
        self._watcher = watcher
        self._loop = asyncio.get_running_loop()
        self._last_words = ""
        self._killed = False
        control.setblocking(False)
        self._pidfd = pidfd
        self._control: socket.socket | None = control
        self._loop.add_reader(control.fileno(), self._readable)
        self._loop.add_reader(pidfd, self._exited)

    def handles(self) -> Handles | None:
        """Returns what the next daemon needs to adopt the worker; None without control socket."""
        if self._control is None:
            return None
        return Handles(self.pid, self._pidfd, self._control.fileno(), self._log.read_fd)

    def send(self, message: bytes, fds: Sequence[int] = ()) -> bool:
        """Sends one message; returns False if the worker cannot take it because it is ending."""
        if self._control is None:
            return False
        try:
            socket.send_fds(self._control, [message], list(fds))
        except OSError:
            return False
        return True

    def has_imported(self) -> None:
        """Measures an array worker on an emulated device, before it runs anything for a program."""
        self._at_first = None if self._group is None else self._group.used()

    def serves(self, lease: str, lease_bytes: int) -> None:
        """Sets the worker's memory ceiling for its lease; called again when that is resized."""
        self.lease = lease
        self._log.serves(self.number, lease)
        before, self._lease_bytes = self._lease_bytes, max(lease_bytes, self._lease_bytes or 0)
        if before is None:
            self._set_ceiling(lease_bytes)
        elif lease_bytes > before:
            self._raise_ceilings(lease_bytes - before)

    def _set_ceiling(self, lease_bytes: int) -> None:
        if self._group is None:
            return
        most = ceiling_bytes(lease_bytes, emulated=self._emulated, at_first=self._at_first)
        try:
            self._group.limit(most)
        except OSError as error:
            log.warning("worker %d has no memory ceiling: %s", self.number, error)

    def _raise_ceilings(self, more: int) -> None:
        """Raises both, because the worker itself must not be able to."""
        try:
            if self._group is not None:
                self._group.raise_by(more)
            raise_own_limit(self.pid, more)
        except ProcessLookupError:
            pass  # `_exited` follows
        except OSError as error:
            log.info(
                "the limit of private memory of worker %d stays as it was before its lease grew "
                "(%s): give this server the capability CAP_SYS_RESOURCE, or start the program "
                "again",
                self.number, error,
            )  # fmt: skip

    def close(self) -> None:
        """Closes the control socket: a worker without a session ends, a serving one goes on."""
        if self._control is not None:
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._control = None

    def kill(self) -> None:
        """Kills the process."""
        self._killed = True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def distrust(self, why: str) -> None:
        """Kills a process that sent an invalid message."""
        self._last_words = f"it broke the control protocol: {why}"
        self.kill()

    def refuse(self, why: str) -> None:
        """Kills a process that must not be used."""
        self._last_words = why
        self.kill()

    def abandon(self) -> None:
        """Stops watching: the daemon ends, and the worker serves its session to the end."""
        self.close()
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._log.close()
        # init inherits the process and waits for it when the daemon has gone.
        if self._process is not None:
            self._process.returncode = 0

    def _readable(self) -> bool:
        """Handles one message; returns False if there is none."""
        if self._control is None:
            return False
        try:
            data, fds, _, _ = socket.recv_fds(
                self._control, MAX_MESSAGE_BYTES, _MOST_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, fds = b"", []
        try:
            return self._heard(data, fds)
        finally:
            for fd in fds:
                os.close(fd)

    def _heard(self, data: bytes, fds: Sequence[int]) -> bool:
        if not data:
            self.close()
            return False
        try:
            message = decode_from_worker(data)
        except WireError as error:
            self.distrust(str(error))
            return False
        if isinstance(message, Ended):
            self._last_words = message.reason
        self._watcher.worker_said(self.number, message, fds)
        return True

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        while self._readable():  # messages that the worker sent before it exited
            pass
        self.close()
        # An adopted worker is not our child, so only init gets its exit status.
        status = self._process.wait() if self._process is not None else 0
        os.close(self._pidfd)
        self._log.close()
        if self._group is not None:
            if self._group.killed():
                self._last_words = "it used more memory than its ceiling allows"
            self._group.remove()
        if status < 0 and not self._killed:
            log.error(
                "%s, process %d, was ended by %s", self._about(), self.pid, process_end(status)
            )
        self._watcher.worker_exited(self.number, _reason(status, self._last_words))

    def _about(self) -> str:
        serving = f" of lease {self.lease}" if self.lease else ""
        return f"worker {self.number}{serving}"


def first_report(options: WorkerOptions) -> str:
    """Starts a worker and returns the isolation that it lacks. Returns "" also if it does not
    start; the pool's workers then report the reason.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        ours.settimeout(_REPORT_SECONDS)
        with theirs:
            try:
                process = _spawn(options, theirs.fileno(), subprocess.DEVNULL)
            except OSError:
                return ""
        try:
            message = decode_from_worker(ours.recv(MAX_MESSAGE_BYTES))
        except (OSError, WireError):
            message = None
        finally:
            process.kill()
            process.wait()
    return message.report if isinstance(message, Ready) else ""


def _spawn(options: WorkerOptions, control_fd: int, log_fd: int) -> subprocess.Popen[bytes]:
    command = [*options.program, "--control-fd", str(control_fd), "--library", str(options.library)]
    if not options.sandbox:
        command.append("--no-sandbox")
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        env=_environment(options),
        cwd="/",
        pass_fds=(control_fd,),
        start_new_session=True,
    )


def _environment(options: WorkerOptions) -> dict[str, str]:
    """Returns a worker's environment. NVIDIA's driver loads its compiler of PTX by name, and where
    the driver is a mounted folder, the dynamic loader does not know that folder.
    """
    if options.emulated:
        return {**CLEAN_ENVIRONMENT, **{n: os.environ[n] for n in _FOR_TESTS if n in os.environ}}
    return {**CLEAN_ENVIRONMENT, "LD_LIBRARY_PATH": str(options.library.parent)}


def _reason(status: int, last_words: str) -> str:
    if status < 0:
        suffix = f" ({last_words})" if last_words else ""
        return f"the worker was ended by {process_end(status)}{suffix}"
    if last_words:
        return last_words
    return "the worker ended" if status == 0 else f"the worker ended with exit code {status}"
