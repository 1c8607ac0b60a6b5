"""Where a story is played: before the real API server, or before a tape of what it said."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from lightkube import AsyncClient, Client
from typing_extensions import Self

from rgpu_cluster.kubernetes.api import open_client
from rgpu_common.tasks import end

SECONDS = 30
# What a user does. It gets a client with all rights.
Act = Callable[[Client], object]


class Stage(ABC):
    """What a story has. client: that of our code, which is under test.

    namespace: the one of the story.
    """

    client: AsyncClient
    namespace = "story"
    # How many watches the server has begun to answer.
    watches = 0

    @abstractmethod
    async def user(self, what: str, act: Act) -> None:
        """Somebody does something to the cluster."""

    @abstractmethod
    def meanwhile(self, call: str, act: Act) -> None:
        """Has somebody do something after our code has decided on a call and before it is made.

        call: the begin of `METHOD PATH`; the next such call is meant.
        """

    @abstractmethod
    def outdated(self, call: str) -> None:
        """Has the server take the version of the next such call for one that it has forgotten."""

    async def play(self, story: Callable[[Self], Coroutine[Any, Any, None]]) -> None:
        """Plays a story.  It fails as soon as something is wrong, whatever our code bears."""
        playing = asyncio.ensure_future(story(self))
        try:
            await self.until(playing.done)
        except BaseException:
            await end([playing])
            raise
        playing.result()

    async def until(self, condition: Callable[[], object]) -> None:
        """Waits until our code has seen something."""
        end = asyncio.get_running_loop().time() + SECONDS
        while not condition():
            self.check()
            assert asyncio.get_running_loop().time() < end, "our code did not see it in time"
            await asyncio.sleep(0.01)

    def check(self) -> None:  # noqa: B027 - not every stage can say
        """Fails if something has gone wrong already."""


class Server:
    """An HTTP server on loopback. answer: what handles a request; it may stream."""

    def __init__(self, answer: Callable[[Handler], None]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Their end is waited for, so that nothing is left of a test.
        self._server.daemon_threads = False
        self._server.RequestHandlerClass = type("Bound", (Handler,), {"answer": answer})
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def client(self, folder: Path) -> AsyncClient:
        """Returns a client of our code that speaks to it."""
        path = folder / "kubeconfig"
        where = {"server": f"http://127.0.0.1:{self._server.server_address[1]}"}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": where}],
            "users": [{"name": "test", "user": {"token": "test"}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }))  # fmt: skip
        return open_client(str(path))


class Handler(BaseHTTPRequestHandler):
    """One connection of a client. sent: what came with the request, None if nothing did."""

    protocol_version = "HTTP/1.1"
    timeout = 2 * SECONDS
    answer: Callable[[Handler], None]
    sent: Any = None

    def _handle(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.sent = json.loads(self.rfile.read(length)) if length else None
        type(self).answer(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    @property
    def call(self) -> str:
        return f"{self.command} {self.path}"

    @property
    def watches(self) -> bool:
        return "watch=true" in self.path

    def say(self, code: int, content: Any) -> None:
        """Answers a call."""
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """Begins to answer a watch."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def tell(self, content: Any) -> None:
        """Tells an event."""
        line = json.dumps(content).encode() + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def end(self) -> None:
        """Ends a watch."""
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def log_message(self, *_: Any) -> None:
        return
