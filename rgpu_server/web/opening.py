"""Opens the page where the configuration asks for it, and closes it again."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from rgpu_common import release
from rgpu_common.endpoints import TlsEndpoint, UnixEndpoint, speaks_tls
from rgpu_server.observe.audit import leave, listen
from rgpu_server.observe.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.endpoints import Endpoint
    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.identity.settings import Tls
    from rgpu_server.service.api import Services
    from rgpu_server.web.server import WebServer
    from rgpu_server.web.settings import Web
    from rgpu_server.web.site import Pages

log = logging.getLogger("rgpu.web")


class WebDoor:
    """The page of one process; without `web.listen` it does nothing. Only an opened page needs
    h11.
    """

    def __init__(self, web: Web, tls: Tls, authenticator: Authenticator) -> None:
        self._web, self._tls = web, tls
        self._authenticator = authenticator
        self._closers: list[Callable[[], None]] = []
        self._server: WebServer | None = None

    async def open(self, pages: Callable[[Journal], Pages]) -> None:
        """Listens. pages: makes what the page shows, of the events that it may read.

        Raises:
            ServerError: the address cannot be bound.
            MissingPartError: h11 is missing.
        """
        if self._web.listen is None:
            return
        from rgpu_server.web.server import WebServer
        from rgpu_server.web.site import Site

        journal = Journal()
        listen(journal)
        self._closers.append(partial(leave, journal))
        site = Site(pages(journal), self._authenticator, self._web.hosts, release())
        server = WebServer(site, self._tls)
        where = await server.start(self._web.listen)
        self._server = server
        log.info("page on %s", address_of(where))
        if not (where.loopback or speaks_tls(where)):
            log.warning("access tokens come to the page unencrypted: a tls: address hides them")

    def reload(self) -> bool:
        """Reads the certificate again; False: there is none."""
        return self._server is not None and self._server.reload()

    async def close(self) -> None:
        """Ends the page."""
        for closer in self._closers:
            closer()
        self._closers.clear()
        if self._server is not None:
            await self._server.close()
            self._server = None


def check_parts() -> None:
    """Raises MissingPartError if what the page needs is not installed."""
    from rgpu_server.web import http, static_files

    del http
    static_files.static_files()


def server_pages(services: Services) -> Callable[[Journal], Pages]:
    """Returns what makes the page of a server."""

    def make(journal: Journal) -> Pages:
        from rgpu_server.web.node_pages import NodePages

        return NodePages(services, services.observing, journal)

    return make


def address_of(where: Endpoint) -> str:
    """Returns what people give their browser."""
    if isinstance(where, UnixEndpoint):
        return f"{where} (ssh -L 7780:{where.path} HOST brings it to http://localhost:7780)"
    scheme = "https" if isinstance(where, TlsEndpoint) else "http"
    return f"{scheme}://{str(where).rpartition('tls:')[2]}/"
