"""The daemon's side of the gateway: starts it, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import ServerError
from rgpu_server.gateway.figures import Figures
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig

log = logging.getLogger("rgpu.tunnel")

_START_SECONDS = 30.0
_RESTART_SECONDS = 1.0
_END_SECONDS = 1.0
_LINE_BYTES = 64 << 10
_LOG_BYTES = 1 << 20
# A gateway of the daemon before may just be letting go of the port.
_BIND_SECONDS = 3.0


class TunnelGateway:
    """`start`, then `close`.  inner: the path of the daemon's inner socket."""

    def __init__(self, inner: str, config: ServerConfig) -> None:
        self._words = ["--inner", inner, *config.tls.words()]
        if config.identity.certificate == "uri":
            self._words += ["--tenant-uri", config.identity.uri_prefix]
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log: LogPipe | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self.figures = Figures()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self, listen: Sequence[Endpoint]) -> list[Endpoint]:
        """Returns the endpoints with their real ports.

        Raises:
            ServerError: an address cannot be listened on, or the gateway does not start.
        """
        bound = await self._bind(listen)
        self._keeper = asyncio.ensure_future(self._keep(bound))
        return bound

    async def close(self) -> None:
        """Lets the gateway go: it takes nothing new and ends with its last tunnel."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        process = self._process
        if self._control is not None:
            self._control.close()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _END_SECONDS)
            if process.returncode is None:
                process.returncode = 0  # init inherits it; it is not ours to wait for
        if self._log is not None:
            self._log.close()

    async def _bind(self, listen: Sequence[Endpoint]) -> list[Endpoint]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _BIND_SECONDS
        while True:
            self._spawn(listen)
            try:
                return await asyncio.wait_for(self._bound(), _START_SECONDS)
            except asyncio.TimeoutError:
                self._end()
                raise ServerError("the gateway for grpc: does not start") from None
            except ServerError:
                self._end()
                if loop.time() >= deadline:
                    raise

    async def _bound(self) -> list[Endpoint]:
        """What the gateway says first; ServerError if it cannot listen."""
        kind, _, text = (await self._hear()).partition("\t")
        if kind == "error":
            raise ServerError(text)
        if kind != "ready":
            raise ServerError("the gateway for grpc: ended at once; the log says why")
        self.figures.started()
        return [parse_endpoint(word) for word in text.split(" ")]

    async def _hear(self) -> str:
        """The next line; "" when the gateway has ended."""
        assert self._control is not None
        try:
            data = await asyncio.get_running_loop().sock_recv(self._control, _LINE_BYTES)
        except OSError:
            return ""
        return data.decode(errors="replace")

    async def _keep(self, bound: Sequence[Endpoint]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while said := await self._hear():
                kind, _, text = said.partition("\t")
                if kind == "figures":
                    self.figures.heard(text)
            status = self._end()
            log.error("the gateway ended with status %d; another one is started", status)
            await asyncio.sleep(max(self._started_at + _RESTART_SECONDS - loop.time(), 0.0))
            while True:
                try:
                    await self._bind(bound)
                    break
                except ServerError as error:
                    log.error("%s", error)
                    await asyncio.sleep(_RESTART_SECONDS)
            self.figures.restarts += 1

    def _spawn(self, listen: Sequence[Endpoint]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._log = LogPipe("gateway", _LOG_BYTES)
        self._started_at = asyncio.get_running_loop().time()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable, "-m", "rgpu_server.tunnel",
                    "--control-fd", str(theirs.fileno()), *self._words,
                    *(word for e in listen for word in ("--listen", str(e))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self._log.write_fd,
                stderr=self._log.write_fd,
                env=_environment(),
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            ours.close()
            raise ServerError(f"the gateway for grpc: could not be started: {error}") from None
        finally:
            theirs.close()
            self._log.close_write_end()
        self._control = ours

    def _end(self) -> int:
        """Makes sure that the process has ended; returns its status."""
        status = 0
        if self._process is not None:
            self._process.kill()
            status = self._process.wait()
            self._process = None
        self.figures.ended()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._log is not None:
            self._log.close()
            self._log = None
        return status


def _environment() -> dict[str, str]:
    """What the interpreter needs to find this package again."""
    names = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {**CLEAN_ENVIRONMENT, **{n: os.environ[n] for n in names if n in os.environ}}
