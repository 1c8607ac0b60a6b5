"""A gateway's process, seen from the daemon: started, heard, and started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.errors import RgpuError, ServerError
from rgpu_common.tasks import end
from rgpu_common.texts import process_end
from rgpu_server.core.isolation import Process
from rgpu_server.gateway.figures import Figures
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.isolation import Isolation

log = logging.getLogger("rgpu.gateway")

_START_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 60.0
_END_SECONDS = 1.0
_LINE_BYTES = 64 << 10
_LOG_BYTES = 1 << 20


class Program(Struct, frozen=True):
    """How to start a gateway.

    transport: the transport that it serves.  command: the program and its fixed arguments.  keeps:
    returns True for a variable of the daemon's environment that the gateway gets.  enter: called
    with each client's connection.
    """

    transport: str
    command: Sequence[str]
    keeps: Callable[[str], bool]
    isolation: Isolation
    enter: Callable[[socket.socket], None]

    def environment(self) -> dict[str, str]:
        """Returns the environment of the process."""
        return {**CLEAN_ENVIRONMENT, **{k: v for k, v in os.environ.items() if self.keeps(k)}}


class GatewayProcess:
    """The process of a gateway: call `start`, then `keep`, then `close`.

    words, passes: further arguments, and descriptors, of the next process that is started.
    note: called with the words of each line that is not `ready`, `error` or `figures`.
    """

    def __init__(self, program: Program, note: Callable[[list[str]], None]) -> None:
        self._program = program
        self._note = note
        self.words: list[str] = []
        self.passes: list[int] = []
        self.figures = Figures()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._door: socket.socket | None = None
        self._log: LogPipe | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Starts the process and returns the rest of its line `ready`.

        Raises:
            ServerError: the process did not become ready; the sentence says why.
        """
        self._spawn()
        about = f"the gateway for {self._program.transport}:"
        try:
            words = await asyncio.wait_for(self._hear_answer(), _START_SECONDS)
        except asyncio.TimeoutError:
            self._end()
            raise ServerError(f"{about} does not answer; the log says more") from None
        if words[0] != "ready":
            self._end()
            told = words[0] == "error" and len(words) > 1
            raise ServerError(words[1] if told else f"{about} ended at once; the log says why")
        self.figures.started()
        return " ".join(words[1:])

    def keep(self) -> None:
        """Starts the task that reads the process's lines and replaces a process that has ended."""
        self._keeper = asyncio.ensure_future(self._keep())

    def say(self, word: str, descriptors: Sequence[int] = ()) -> None:
        """Sends a word to the process, if there is one."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                socket.send_fds(self._control, [word.encode()], list(descriptors))

    async def close(self) -> None:
        """Lets the process go: it accepts no more clients and ends with its last connection."""
        if self._keeper is not None:
            await end([self._keeper])
        process = self._process
        self._let_go()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _END_SECONDS)
            if process.returncode is None:
                process.returncode = 0  # it has clients and outlives the daemon; init reaps it

    async def _hear_answer(self) -> list[str]:
        """Returns the line `ready` or `error`.  The process must first report its isolation."""
        words = await self._hear()
        if words[0] != "isolation":
            silent = (
                f"the gateway for {self._program.transport}: did not report which isolation "
                "measures it has, so the server does not use it; install rgpu again"
            )
            return ["error", silent] if words[0] == "ready" else words
        why = self._program.isolation.check(Process.GATEWAY, words[-1])
        return ["error", why] if why else await self._hear()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control, self._log = ours, LogPipe("gateway", _LOG_BYTES)
        passes = [theirs.fileno(), *self.passes]
        entrance = self._open_door()
        passes.append(entrance.fileno())
        words = ["--control-fd", str(theirs.fileno()), "--door-fd", str(entrance.fileno())]
        words += self.words
        try:
            self._process = subprocess.Popen(
                [*self._program.command, *words],
                stdin=subprocess.DEVNULL,
                stdout=self._log.write_fd,
                stderr=self._log.write_fd,
                env=self._program.environment(),
                cwd="/",
                pass_fds=tuple(passes),
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise ServerError(
                f"the gateway for {self._program.transport}: cannot be started: {error}"
            ) from None
        finally:
            theirs.close()
            entrance.close()
            if self._log is not None:
                self._log.close_write_end()

    def _open_door(self) -> socket.socket:
        """Makes the door, a socket over which the gateway sends its clients; returns its end."""
        self._door, entrance = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.setblocking(False)
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._client_came)
        return entrance

    def _client_came(self) -> None:
        """Takes one client.  The event loop calls again for the next, after its other tasks."""
        assert self._door is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._door, 16, 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            log.warning("a client that the gateway brought is lost: %s", error)
            return
        if not data:
            self._close_door()
        for descriptor in descriptors:
            self._program.enter(socket.socket(fileno=descriptor))

    def _close_door(self) -> None:
        if self._door is not None:
            asyncio.get_running_loop().remove_reader(self._door.fileno())
            self._door.close()
            self._door = None

    async def _hear(self) -> list[str]:
        """Returns the words of the next line, or [""] when the process has ended."""
        assert self._control is not None
        try:
            data = await asyncio.get_running_loop().sock_recv(self._control, _LINE_BYTES)
        except OSError:
            data = b""
        return data.decode(errors="replace").split("\t")

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE_SECONDS
        while True:
            started = loop.time()
            await self._listen()
            status = self._end()
            log.error(
                "the gateway for %s: ended with %s; another one is started",
                self._program.transport,
                process_end(status),
            )
            if loop.time() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                try:
                    await self.start()
                    break
                except (RgpuError, OSError) as error:
                    log.error("%s", error)
            self.figures.restarts += 1

    async def _listen(self) -> None:
        """Handles the process's lines until the process has ended."""
        while (words := await self._hear()) != [""]:
            if words[0] == "figures":
                self.figures.heard(words[-1])
            else:
                self._note(words)
            # `_hear` does not pause while lines are waiting, such as those about refused clients.
            # Other tasks of the event loop run here.
            await asyncio.sleep(0)

    def _end(self) -> int:
        """Makes sure that the process has ended; returns its status."""
        status = 0
        if self._process is not None:
            self._process.kill()
            status = self._process.wait()
        self.figures.ended()
        self._let_go()
        return status

    def _let_go(self) -> None:
        self._process = None
        self._close_door()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._log is not None:
            self._log.close()
            self._log = None
