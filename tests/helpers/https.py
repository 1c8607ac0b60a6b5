"""A server of ours on a thread of its own, with a certificate that tests trust."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from helpers import pki
from rgpu_cluster.kubernetes.certificates import Certificates
from rgpu_cluster.kubernetes.web import Server

SECONDS = 60.0
Routes = Mapping[str, Callable[[Any], Awaitable[Any]]]


def authority() -> str:
    """The authority's certificate, as a `caBundle`."""
    return base64.b64encode((pki.folder() / "ca.pem").read_bytes()).decode()


@contextmanager
def running(make: Callable[[AsyncExitStack], Awaitable[Routes]], tls: bool = True) -> Iterator[str]:
    """Serves what `make` returns; yields the URL without a path.

    make: runs in the server's loop; what it enters in the stack is left at the end.
    """
    loop = asyncio.new_event_loop()
    started: list[str] = []
    ready, stop = threading.Event(), asyncio.Event()

    async def work() -> None:
        async with AsyncExitStack() as stack:
            server = Server(await make(stack))
            stack.push_async_callback(server.close)
            files = Certificates(pki.folder() / "server.pem", pki.folder() / "server.key")
            port = await server.start("127.0.0.1", 0, files.context if tls else None)
            started.append(f"http{'s' if tls else ''}://127.0.0.1:{port}")
            ready.set()
            await stop.wait()

    def run() -> None:
        try:
            loop.run_until_complete(work())
        finally:
            ready.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(SECONDS), "the server did not start"
        yield started[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        thread.join(SECONDS)
        assert not thread.is_alive(), "the server did not stop"
