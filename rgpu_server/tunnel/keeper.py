"""The gateway of `grpc:` and `grpcs:` as the daemon has it."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from rgpu_common.endpoints import parse_endpoint
from rgpu_server.gateway.process import GatewayProcess, Program

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.config import ServerConfig
    from rgpu_server.gateway.figures import Figures

log = logging.getLogger("rgpu.tunnel")

# A gateway of the daemon before may just be letting go of the port.
_BIND_SECONDS = 3.0
# What the interpreter needs to find this package again.
_VARIABLES = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


class TunnelGateway:
    """`start`, then `close`.  inner: the path of the daemon's inner socket."""

    def __init__(self, inner: str, config: ServerConfig) -> None:
        self._words = ["--inner", inner, *config.tls.words()]
        if config.identity.certificate == "uri":
            self._words += ["--tenant-uri", config.identity.uri_prefix]
        command = [sys.executable, "-m", "rgpu_server.tunnel"]
        program = Program("grpc", command, lambda name: name in _VARIABLES)
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
        return bound

    async def close(self) -> None:
        """Lets the gateway go: it takes nothing new and ends with its last tunnel."""
        await self._process.close()

    def _listen_at(self, endpoints: Sequence[Endpoint]) -> None:
        listening = [word for endpoint in endpoints for word in ("--listen", str(endpoint))]
        self._process.words = [*self._words, *listening]


def _note(words: list[str]) -> None:
    log.warning("the gateway for grpc: says what is not known here: %s", words[0])
