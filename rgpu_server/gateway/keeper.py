"""The daemon's side of the gateways of `tls:` and `ucx:`: starts rgpu-gateway, and controls it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, UcxEndpoint, cannot_listen
from rgpu_common.errors import ServerError
from rgpu_common.tasks import end
from rgpu_common.wire.preface import Preface
from rgpu_server.core.model import Code, Refusal
from rgpu_server.gateway.process import GatewayProcess, Program
from rgpu_server.identity.certificate_files import CertificateFiles
from rgpu_server.service.callers import carried_by
from rgpu_server.service.frontdoor import bind_tcp
from rgpu_server.workers.binary import gateway_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.config import ServerConfig
    from rgpu_server.gateway.figures import Figures
    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.identity.settings import Tls
    from rgpu_server.isolation import Isolation

log = logging.getLogger("rgpu.gateway")

_BACKLOG = 512
_LOOK_SECONDS = 0.5


class House(Struct, frozen=True):
    """The parts of the daemon that gateways use.  enter: called with each client's connection."""

    authenticator: Authenticator
    isolation: Isolation
    enter: Callable[[socket.socket], None]


class Gateway:
    """The base class of the gateways."""

    def __init__(self, transport: str, house: House) -> None:
        self._transport = transport
        self._authenticator = house.authenticator
        command = [str(gateway_path())]
        program = Program(transport, command, _keeps, house.isolation, house.enter)
        self._process = GatewayProcess(program, self._note)

    @property
    def figures(self) -> Figures:
        """The counters that the gateway's process reports."""
        return self._process.figures

    async def close(self) -> None:
        """Lets the gateway go: it accepts no more clients and ends with its last connection."""
        await self._process.close()

    def _note(self, words: list[str]) -> None:
        if words[0] == "refused" and len(words) == 3:
            caller = carried_by(Preface(self._transport, words[1]))
            if self._authenticator.answers(
                caller, "handshake", Refusal(Code.NOT_IDENTIFIED, words[2])
            ):
                log.info("%s was not let in: %s", words[1], words[2])
        elif words[0] == "reloaded":
            log.info("the gateway has read its certificates again")
        elif words[0] == "stale":
            log.error("the gateway keeps its old certificates: %s", words[-1])


class TlsGateway(Gateway):
    """`listen`, `start`, then `close`."""

    def __init__(self, config: ServerConfig, house: House) -> None:
        super().__init__("tls", house)
        self._listeners: list[socket.socket] = []
        self._certificates = CertificateKeeper(self._process, config.tls)
        self._words = [*limits_of(config), *config.tls.words()]
        if config.identity.certificate == "uri":
            self._words += ["--tenant-uri", config.identity.uri_prefix]

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

    async def start(self) -> None:
        """ServerError: it does not start; the sentence says why."""
        fds = [listener.fileno() for listener in self._listeners]
        self._process.passes = fds
        listening = [word for fd in fds for word in ("--listen-fd", str(fd))]
        self._process.words = [*listening, *self._words]
        await self._process.start()
        self._process.keep()
        self._certificates.start()

    def reload(self) -> None:
        """Lets the gateway read its certificates again; the log says what came of it."""
        self._certificates.pass_again()

    async def close(self) -> None:
        await self._certificates.close()
        for listener in self._listeners:
            listener.close()
        await super().close()


class UcxGateway(Gateway):
    """`open`, then `close`.  UCX binds its addresses itself: they go and come with the process."""

    def __init__(self, config: ServerConfig, house: House) -> None:
        super().__init__("ucx", house)
        self._options = limits_of(config)

    async def open(self, endpoints: Sequence[UcxEndpoint]) -> list[UcxEndpoint]:
        """Starts, and returns the addresses with their real ports.

        Raises:
            ServerError: it does not start; the sentence says why.
        """
        hosts = [_numeric(endpoint) for endpoint in endpoints]
        self._listen_at([TcpEndpoint(h, e.port) for h, e in zip(hosts, endpoints, strict=True)])
        ports = _ports(await self._process.start(), len(endpoints))
        # The next process listens at the same ones.
        self._listen_at([TcpEndpoint(h, port) for h, port in zip(hosts, ports, strict=True)])
        self._process.keep()
        return [UcxEndpoint(e.host, port) for e, port in zip(endpoints, ports, strict=True)]

    def _listen_at(self, where: Sequence[TcpEndpoint]) -> None:
        listening = [word for one in where for word in ("--ucx", str(one))]
        self._process.words = [*self._options, *listening]


class CertificateKeeper:
    """Has a gateway take its certificates anew when their files change: `start`, then `close`."""

    def __init__(self, process: GatewayProcess, tls: Tls) -> None:
        self._process = process
        self._tls = tls
        self._files = CertificateFiles(tls)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look at the files."""
        self._task = asyncio.ensure_future(self._watch())

    async def close(self) -> None:
        """Looks no more."""
        if self._task is not None:
            await end([self._task])

    def pass_again(self) -> None:
        """Gives the gateway its certificates and key as open files.

        It cannot open files itself, and its user may not read the key.
        """
        with contextlib.ExitStack() as stack:
            try:
                files = [stack.enter_context(open(path, "rb")) for path in self._tls.files()]
            except OSError as error:
                reason = f"{error.filename} cannot be read: {error.strerror}"
                log.error("the gateway keeps its old certificates: %s", reason)
                return
            self._process.say("reload", [file.fileno() for file in files])

    async def _watch(self) -> None:
        while True:
            if self._files.changed():
                # One file may be new already, and its key not yet.
                await asyncio.sleep(_LOOK_SECONDS)
                self._files.changed()
                self.pass_again()
            self._files.say_end()
            await asyncio.sleep(_LOOK_SECONDS)


def _ports(said: str, count: int) -> list[int]:
    ports = [int(word) for word in said.split() if word.isdigit()]
    if len(ports) != count:
        raise ServerError("the gateway for ucx: does not say where it listens")
    return ports


def _numeric(endpoint: UcxEndpoint) -> str:
    try:
        found = socket.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise cannot_listen(endpoint, error) from None
    return str(found[0][4][0])


def _keeps(variable: str) -> bool:
    return variable in ("RGPU_LIBSSL", "RGPU_LIBUCP", "RGPU_LIBNGHTTP2") or variable.startswith(
        "UCX_"
    )


def limits_of(config: ServerConfig) -> list[str]:
    """Returns the words that tell a gateway its bounds."""
    limits = config.limits
    return [
        *("--handshake-ms", str(round(limits.handshake_seconds * 1000))),
        *("--handshakes", str(limits.handshakes)),
        *("--connections", str(limits.gateway_connections)),
    ]
