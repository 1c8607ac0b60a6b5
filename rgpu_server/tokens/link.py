"""The daemon's side of the token loop: finds it or starts it, and keeps it going."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Protocol

from rgpu_common.errors import ProtocolError, WorkerError
from rgpu_common.texts import process_end
from rgpu_server.tokens import protocol as say
from rgpu_server.tokens.home import LOG
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.tokens.home import StateFolder

log = logging.getLogger("rgpu.tokens")

_ADOPT_SECONDS = 10.0
_RESTART_SECONDS = 1.0
_END_SECONDS = 3.0

Told = list[tuple[say.Message, list[int]]]


class LinkWatcher(Protocol):
    """Hears about the loop, from the event loop."""

    def hand_over(self) -> None:
        """A new loop knows nothing: tell it all."""

    def loop_said(self, message: say.UsageIs | say.DeviceIs | say.Noted) -> None: ...


class TokenLink:
    """`open`, `watch`, then `send`; what cannot be sent is told to the next loop by
    `LinkWatcher.hand_over`.
    """

    def __init__(self, state: StateFolder, setup: say.Setup) -> None:
        self._state = state
        self._setup = setup
        self._channel: say.Channel | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # Of a loop that an earlier daemon started.
        self._adopted: int | None = None
        self._watcher: LinkWatcher | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._started_at = 0.0
        self.restarts = 0

    def open(self) -> Told:
        """Connects to the loop that an earlier daemon left and returns what it holds, `LeaseIs` and
        `WorkerIs` with their descriptors; else starts one.  Waits, but not for long.

        Raises:
            WorkerError: none can be started.
        """
        connection = self._state.connect()
        if connection is not None:
            told = self._adopt(connection)
            if told is not None:
                return told
        self._start()
        return []

    def watch(self, watcher: LinkWatcher) -> None:
        """All leases and workers have been told: grants may begin."""
        self._watcher = watcher
        self.send(say.Start())
        if self._channel is not None:
            asyncio.get_running_loop().add_reader(self._channel.fileno(), self._readable)

    def send(self, message: say.Message, fds: Sequence[int] = ()) -> None:
        """Tells the loop something; a loop that is gone is told by `hand_over` later."""
        if self._channel is None:
            return
        with contextlib.suppress(OSError):
            self._channel.send(message, fds)
        if self._channel.waiting:
            loop = asyncio.get_running_loop()
            loop.add_writer(self._channel.fileno(), self._writable)

    @property
    def pid(self) -> int | None:
        """The process that this daemon started, if it did."""
        return self._process.pid if self._process is not None else None

    @property
    def connected(self) -> bool:
        """Whether a loop is there."""
        return self._channel is not None

    async def close(self, wait: bool) -> None:
        """Leaves the loop.  wait: no worker is left, so it ends and removes the state folder."""
        if self._retry is not None:
            self._retry.cancel()
        if self._channel is None and not self._state.has_loop():
            self._state.remove()  # else the loop does it, when nobody needs it any more
        self._state.release()
        self._drop()
        if self._adopted is not None:
            os.close(self._adopted)
            self._adopted = None
        process, self._process = self._process, None
        if process is None:
            return
        if wait:
            try:
                await asyncio.to_thread(process.wait, _END_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("the token loop has not ended yet")
        if process.returncode is None:
            process.returncode = 0  # init inherits it; it is not ours to wait for

    def _adopt(self, connection: socket.socket) -> Told | None:
        channel = say.Channel(connection)
        told: Told = []
        deadline = time.monotonic() + _ADOPT_SECONDS
        try:
            channel.send(self._setup)
            channel.send(say.Adopt())
            while (left := deadline - time.monotonic()) > 0:
                got = channel.receive()
                if got is None:
                    select.select([channel], [], [], left)
                elif isinstance(got[0], say.Told):
                    self._adopted = os.pidfd_open(_peer(connection))
                    self._channel = channel
                    return told
                else:
                    told.append(got)
            log.error("the token loop of an earlier server does not answer and is ended")
            _end(os.pidfd_open(_peer(connection)))
        except (EOFError, OSError, ProtocolError) as error:
            log.warning("the token loop of an earlier server: %s", error)
        for _, fds in told:
            say.close_all(fds)
        channel.close()
        return None

    def _start(self) -> None:
        self._started_at = time.monotonic()
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise WorkerError(f"the token loop could not be started: {error}") from None
        state = self._state.path
        try:
            with (state / LOG).open("ab") as output:
                self._process = subprocess.Popen(
                    [
                        sys.executable, "-m", "rgpu_server.tokens",
                        "--fd", str(theirs.fileno()), "--state", str(state),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=_environment(),
                    cwd="/",
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            ours.close()
            raise WorkerError(f"the token loop could not be started: {error}") from None
        finally:
            theirs.close()
        self._channel = say.Channel(ours)
        # That it is gone already is heard where it is read from.
        with contextlib.suppress(OSError):
            self._channel.send(self._setup)

    def _readable(self) -> None:
        try:
            while self._channel is not None:
                got = self._channel.receive()
                if got is None:
                    return
                message, fds = got
                say.close_all(fds)
                if self._watcher is not None and isinstance(
                    message, say.UsageIs | say.DeviceIs | say.Noted
                ):
                    self._watcher.loop_said(message)
        except (EOFError, ProtocolError) as error:
            self._lost(str(error))

    def _writable(self) -> None:
        channel = self._channel
        if channel is None:
            return
        with contextlib.suppress(OSError):
            channel.flush()
        if not channel.waiting:
            asyncio.get_running_loop().remove_writer(channel.fileno())

    def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(channel.fileno())
            loop.remove_writer(channel.fileno())
            channel.close()

    def _lost(self, why: str) -> None:
        """Workers keep their grants for seconds: a new loop takes over before they notice."""
        self._drop()
        status = ""
        if self._process is not None:
            self._process.kill()
            status = f" with {process_end(self._process.wait())}"
            self._process = None
        if self._adopted is not None:
            # It may only have left this daemon, and goes on as long as it has workers.
            _end(self._adopted)
            self._adopted = None
        log.error("the token loop ended%s (%s); another one is started", status, why)
        delay = max(self._started_at + _RESTART_SECONDS - time.monotonic(), 0.0)
        self._retry = asyncio.get_running_loop().call_later(delay, self._restart)

    def _restart(self) -> None:
        try:
            self._start()
        except WorkerError as error:
            log.error("%s", error)
            self._retry = asyncio.get_running_loop().call_later(_RESTART_SECONDS, self._restart)
            return
        self.restarts += 1
        if self._watcher is not None:
            self._watcher.hand_over()
            self.watch(self._watcher)


def _peer(connection: socket.socket) -> int:
    """The process id of the loop that listens there."""
    size = struct.calcsize("3i")
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", data)[0])


def _end(pidfd: int) -> None:
    """Ends a loop that is no child of ours: two loops must never write one page."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    poller.poll(_END_SECONDS * 1000)
    os.close(pidfd)


def _environment() -> dict[str, str]:
    """What the interpreter needs to find this package again."""
    names = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {**CLEAN_ENVIRONMENT, **{n: os.environ[n] for n in names if n in os.environ}}
