"""The daemon's side of rgpu-gateway: starts it, hears it, and starts it again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, UcxEndpoint, cannot_listen
from rgpu_common.errors import ServerError
from rgpu_common.wire.preface import Preface
from rgpu_server.core.model import Code, Refusal
from rgpu_server.gateway.figures import Figures
from rgpu_server.service.callers import carried_by
from rgpu_server.service.frontdoor import bind_tcp
from rgpu_server.workers.binary import gateway_path
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.process import CLEAN_ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_server.config import ServerConfig
    from rgpu_server.identity.gate import Gate

log = logging.getLogger("rgpu.gateway")

_START_SECONDS = 30.0
_FIRST_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 10.0
_STEADY_SECONDS = 60.0
_END_SECONDS = 1.0
_LINE_BYTES = 1024
_LOG_BYTES = 1 << 20
_BACKLOG = 512


class Gateway:
    """`start`, then `close`.  transport: what it terminates; words: its arguments."""

    def __init__(self, transport: str, words: list[str], gate: Gate) -> None:
        self._transport = transport
        self._words = words
        self._gate = gate
        self._said: list[str] = []
        self._listeners: list[socket.socket] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._log: LogPipe | None = None
        self._keeper: asyncio.Task[None] | None = None
        self.figures = Figures()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """ServerError: it does not start; the sentence says why."""
        await self._start()
        self._keeper = asyncio.ensure_future(self._keep())

    def reload(self) -> None:
        """Lets the gateway read its certificates again; the log says what came of it."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.send(b"reload")

    async def close(self) -> None:
        """Lets the gateway go: it takes nobody new and ends with its last connection."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
        for listener in self._listeners:
            listener.close()
        process = self._process
        self._let_go()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, _END_SECONDS)
            if process.returncode is None:
                process.returncode = 0  # init inherits it; it is not ours to wait for

    async def _start(self) -> None:
        self._spawn()
        try:
            said = await asyncio.wait_for(self._hear(), _START_SECONDS)
        except asyncio.TimeoutError:
            said = ["error", f"the gateway for {self._transport}: does not answer"]
        if said[0] != "ready":
            self._end()
            raise ServerError(
                said[1] if said[0] == "error" else f"the gateway for {self._transport}: ended"
            )
        self._said = said[1:]
        self.figures.started()

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._control, self._log = ours, LogPipe("gateway", _LOG_BYTES)
        fds = [theirs.fileno(), *(listener.fileno() for listener in self._listeners)]
        listening = [word for fd in fds[1:] for word in ("--listen-fd", str(fd))]
        try:
            self._process = subprocess.Popen(
                [str(gateway_path()), "--control-fd", str(fds[0]), *listening, *self._words],
                stdin=subprocess.DEVNULL,
                stdout=self._log.write_fd,
                stderr=self._log.write_fd,
                env=_environment(),
                cwd="/",
                pass_fds=fds,
                start_new_session=True,
            )
        except OSError as error:
            self._let_go()
            raise ServerError(
                f"the gateway for {self._transport}: cannot be started: {error}"
            ) from None
        finally:
            theirs.close()
            if self._log is not None:
                self._log.close_write_end()

    async def _hear(self) -> list[str]:
        """The words of the next line; [""] when the gateway has ended."""
        assert self._control is not None
        loop = asyncio.get_running_loop()
        try:
            data = await loop.sock_recv(self._control, _LINE_BYTES)
        except OSError:
            data = b""
        return data.decode(errors="replace").split("\t")

    async def _keep(self) -> None:
        pause = _FIRST_PAUSE_SECONDS
        while True:
            started = time.monotonic()
            while (words := await self._hear()) != [""]:
                self._note(words)
            status = self._end()
            log.error("the gateway ended with status %d; another one is started", status)
            if time.monotonic() - started > _STEADY_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            while True:
                await asyncio.sleep(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)
                try:
                    await self._start()
                    break
                except ServerError as error:
                    log.error("%s", error)
            self.figures.restarts += 1

    def _note(self, words: list[str]) -> None:
        if words[0] == "refused" and len(words) == 3:
            caller = carried_by(Preface(self._transport, words[1]))
            if self._gate.answers(caller, "handshake", Refusal(Code.NOT_IDENTIFIED, words[2])):
                log.info("%s was not let in: %s", words[1], words[2])
        elif words[0] == "figures":
            self.figures.heard(words[-1])
        elif words[0] == "reloaded":
            log.info("the gateway has read its certificates again")
        elif words[0] == "stale":
            log.error("the gateway keeps its old certificates: %s", words[-1])

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
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._log is not None:
            self._log.close()
            self._log = None


class TlsGateway(Gateway):
    """`listen`, `start`, then `close`.  inner: the path of the daemon's inner socket."""

    def __init__(self, inner: str, config: ServerConfig, gate: Gate) -> None:
        words = [*_options(inner, config), *config.tls.words()]
        if config.identity.certificate == "uri":
            words += ["--tenant-uri", config.identity.uri_prefix]
        super().__init__("tls", words, gate)

    def listen(self, endpoint: TlsEndpoint) -> TlsEndpoint:
        """Binds an address and returns it with its real port; ServerError if that fails.

        The daemon keeps the socket, so that nobody is turned away while a gateway is replaced.
        """
        try:
            listener = bind_tcp(endpoint)
            self._listeners.append(listener)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise cannot_listen(endpoint, error) from None
        listener.setblocking(False)
        return TlsEndpoint(endpoint.host, listener.getsockname()[1])


class UcxGateway(Gateway):
    """`open`, then `close`.  UCX binds its addresses itself: they go and come with the process."""

    def __init__(self, inner: str, config: ServerConfig, gate: Gate) -> None:
        self._options = _options(inner, config)
        super().__init__("ucx", [], gate)

    async def open(self, endpoints: Sequence[UcxEndpoint]) -> list[UcxEndpoint]:
        """Starts, and returns the addresses with their real ports; ServerError as `start`."""
        hosts = [_numeric(endpoint) for endpoint in endpoints]
        self._listen_at([TcpEndpoint(h, e.port) for h, e in zip(hosts, endpoints, strict=True)])
        await self.start()
        ports = [int(port) for port in " ".join(self._said).split()]
        # The next process listens at the same ones.
        self._listen_at([TcpEndpoint(h, port) for h, port in zip(hosts, ports, strict=True)])
        return [UcxEndpoint(e.host, port) for e, port in zip(endpoints, ports, strict=True)]

    def _listen_at(self, where: Sequence[TcpEndpoint]) -> None:
        self._words = [*self._options, *(word for one in where for word in ("--ucx", str(one)))]


def _numeric(endpoint: UcxEndpoint) -> str:
    try:
        found = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise cannot_listen(endpoint, error) from None
    return str(found[0][4][0])


def _environment() -> dict[str, str]:
    named = {
        name: value
        for name, value in os.environ.items()
        if name in ("RGPU_LIBSSL", "RGPU_LIBUCP") or name.startswith("UCX_")
    }
    return {**CLEAN_ENVIRONMENT, **named}


def _options(inner: str, config: ServerConfig) -> list[str]:
    limits = config.limits
    return [
        *("--inner", inner),
        *("--handshake-ms", str(round(limits.handshake_seconds * 1000))),
        *("--handshakes", str(limits.handshakes)),
        *("--connections", str(limits.gateway_connections)),
    ]
