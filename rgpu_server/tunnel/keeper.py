"""The gateway of `grpc:` and `grpcs:` as the daemon has it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from typing import TYPE_CHECKING

from rgpu_common.endpoints import parse_endpoint, speaks_tls
from rgpu_server.gateway.keeper import pass_certificates
from rgpu_server.gateway.process import GatewayProcess, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig
    from rgpu_server.gateway.figures import Figures
    from rgpu_server.gateway.keeper import House

log = logging.getLogger("rgpu.tunnel")

# A gateway of the daemon before may just be letting go of the port.
_BIND_SECONDS = 3.0
_LOOK_SECONDS = 0.5
# What the interpreter needs to find this package again.
_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class TunnelGateway:
    """`start`, then `close`."""

    def __init__(self, config: ServerConfig, house: House) -> None:
        self._tls = config.tls
        self._watcher: asyncio.Task[None] | None = None
        self._words = [*config.tls.words()]
        if config.identity.certificate == "uri":
            self._words += ["--tenant-uri", config.identity.uri_prefix]
        command = [sys.executable, "-m", "rgpu_server.tunnel"]
        program = Program(
            "grpc", command, lambda name: name in _VARIABLES, house.isolation, house.enter
        )
        self._process = GatewayProcess(program, _note)

    @property
    def figures(self) -> Figures:
        """What the process has counted."""
        return self._process.figures

    async def start(self, listen: Sequence[Endpoint]) -> list[Endpoint]:
        """Returns the endpoints with their real ports.

        Raises:
            ServerError: an address cannot be listened on, or the gateway does not start.
        """
        self._listen_at(listen)
        said = await self._process.start(_BIND_SECONDS)
        bound = [parse_endpoint(word) for word in said.split(" ")]
        # The next process listens at the same ones.
        self._listen_at(bound)
        self._process.keep()
        if any(speaks_tls(endpoint) for endpoint in bound):
            self._watcher = asyncio.ensure_future(self._watch())
        return bound

    async def _watch(self) -> None:
        """Passes the certificates again when their files have changed."""
        age: tuple[int, ...] = ()
        while True:
            with contextlib.suppress(OSError):
                now = self._tls.age()
                if age and now != age:
                    pass_certificates(self._process, self._tls)
                age = now
            await asyncio.sleep(_LOOK_SECONDS)

    async def close(self) -> None:
        """Lets the gateway go: it takes nothing new and ends with its last tunnel."""
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        await self._process.close()

    def _listen_at(self, endpoints: Sequence[Endpoint]) -> None:
        listening = [word for endpoint in endpoints for word in ("--listen", str(endpoint))]
        self._process.words = [*self._words, *listening]


def _note(words: list[str]) -> None:
    log.warning("the gateway for grpc: says what is not known here: %s", words[0])
