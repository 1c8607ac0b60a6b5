"""The `[web]` table of the configuration file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_common import keys
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, UnixEndpoint, parse_listener
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import Texts
from rgpu_common.keys import Kind, Option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_common.config import Table
    from rgpu_common.endpoints import Endpoint


class WebAddress(Kind["Endpoint | None"]):
    """Where the page is served; "" is None."""

    word = "`HOST:PORT`, `tls:HOST:PORT` or `unix:/PATH`"

    @property
    def accepted(self) -> str:
        return self.word

    def read(self, table: Table, name: str, default: Endpoint | None) -> Endpoint | None:
        del default
        return _parse(table.text(name, ""))

    def skip(self, table: Table, name: str, default: Endpoint | None) -> None:
        del default
        table.text(name, "")

    def said(self, option: Option, value: Any) -> Endpoint | None:
        del option
        return _parse(value)

    def written(self, value: Endpoint | None) -> str:
        return keys.toml("" if value is None else str(value))


@dataclass(frozen=True, slots=True)
class Web:
    """`[web]`. hosts: further names by which browsers reach the page."""

    listen: Endpoint | None = keys.key(
        "web.listen", WebAddress(), None,
        "Serve [the page for browsers](../how-to/web-page.md) at this address.",
        option=Option("--web", "ADDRESS"), unset="none", inline=True,
    )  # fmt: skip
    hosts: tuple[str, ...] = keys.key(
        "web.hosts", Texts(), (),
        "Further names by which browsers reach the page, as behind a proxy. IP addresses, "
        "`localhost` and the host name need no entry; any other name is refused.",
    )  # fmt: skip


def check_web(web: Web, listen: Sequence[Endpoint], *, identified: bool, certificate: bool) -> None:
    """UsageError if the page would show everything to everybody, or cannot be served.

    identified: callers can show who they are, or need not by the operator's word.
    """
    where = web.listen
    if where is None:
        return
    if isinstance(where, TlsEndpoint) and not certificate:
        raise UsageError(
            f"web: {where} needs a certificate: set tls.certificate and tls.key (`rgpu tls init "
            "FOLDER` makes what a try-out needs)"
        )
    if any(str(where) == str(other) and getattr(where, "port", 1) for other in listen):
        raise UsageError(f"web: {where} is in `listen` already: give the page a port of its own")
    if not where.loopback and not identified:
        raise UsageError(
            f"web: {where} can be reached from other machines and nothing says who their users "
            "are: make an access token (`rgpu token new TENANT`), name a tokens file (--tokens "
            "FILE), serve the page on 127.0.0.1 or a Unix socket, or say --insecure if the network "
            "is trusted"
        )


def _parse(text: str) -> Endpoint | None:
    if not text:
        return None
    endpoint = parse_listener(text)
    if isinstance(endpoint, UnixEndpoint):
        return endpoint
    # Without a port it would be the one that sessions use.
    named = isinstance(endpoint, TcpEndpoint) and text.endswith(f":{endpoint.port}")
    if not named or type(endpoint) not in (TcpEndpoint, TlsEndpoint):
        raise UsageError(f"web: {text!r} is not {WebAddress.word.replace('`', '')}")
    return endpoint
