"""Stands between our code and the real API server, and notes what both say."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from helpers.kubernetes import ControlPlane
from typing_extensions import Self

from transcripts.stage import SECONDS, Act, Handler, Server, Stage
from transcripts.tape import Entry


class Recording(Stage):
    """`async with Recording(plane, user, folder) as stage:`; then `stage.tape` has all that was said.

    user: whose rights our code has, one of `helpers.kubernetes.USERS`.
    """

    def __init__(self, plane: ControlPlane, user: str, folder: Path) -> None:
        self._admin = plane.client()
        config = plane.kubeconfig(user)
        cluster = config["clusters"][0]["cluster"]
        self._where = urlsplit(cluster["server"])
        self._trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._token = config["users"][0]["user"]["token"]
        self._folder = folder
        self._server = Server(self._answer)
        self._lock = Lock()
        self._connections: list[http.client.HTTPSConnection] = []
        self._before: list[tuple[str, Act]] = []
        self._outdated: list[str] = []
        self.tape: list[Entry] = []

    async def __aenter__(self) -> Self:
        self._server.__enter__()
        self.client = self._server.client(self._folder)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        for one in self._connections:
            with suppress(OSError, AttributeError):
                one.sock.shutdown(socket.SHUT_RDWR)
        self._server.__exit__()

    async def user(self, what: str, act: Act) -> None:
        self._note({"user": what})
        await asyncio.to_thread(act, self._admin)

    def meanwhile(self, call: str, act: Act) -> None:
        self._before.append((call, act))

    def outdated(self, call: str) -> None:
        self._outdated.append(call)

    def _note(self, entry: Entry) -> Entry:
        with self._lock:
            self.tape.append(entry)
        return entry

    # What the proxy does, in a thread for each connection

    def _answer(self, handler: Handler) -> None:
        path = self._intervened(handler)
        connection = http.client.HTTPSConnection(
            self._where.hostname or "", self._where.port, timeout=3 * SECONDS, context=self._trust
        )
        self._connections.append(connection)
        with closing(connection):
            entry: Entry = {} if handler.watches else self._note({"ask": handler.call})
            headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
            body = None
            if handler.sent is not None:
                entry.update(type=handler.headers["Content-Type"], sent=handler.sent)
                headers["Content-Type"], body = entry["type"], json.dumps(handler.sent)
            connection.request(handler.command, path, body, headers)
            with connection.getresponse() as answer:
                if handler.watches and answer.status == 200:
                    self._follow(handler, answer)
                    return
                if handler.watches:
                    self._note(entry)["ask"] = handler.call
                content = json.loads(answer.read())
            entry.update(code=answer.status, content=content)
            handler.say(answer.status, content)

    def _follow(self, handler: Handler, answer: http.client.HTTPResponse) -> None:
        with self._lock:
            number, self.watches = self.watches, self.watches + 1
            self.tape.append({"watch": handler.call})
        handler.begin()
        handler.close_connection = True
        with suppress(OSError, http.client.HTTPException, ValueError):
            for line in answer:
                content: Any = json.loads(line)
                self._note({"event": number, "content": content})
                handler.tell(content)
            handler.end()

    def _intervened(self, handler: Handler) -> str:
        """Lets others act before a call; returns the path that the server is asked for."""
        for one in self._before:
            if handler.call.startswith(one[0]):
                self._before.remove(one)
                one[1](self._admin)
                break
        for call in self._outdated:
            if handler.call.startswith(call) and handler.watches:
                self._outdated.remove(call)
                url = urlsplit(handler.path)
                words = {**dict(parse_qsl(url.query)), "resourceVersion": "1"}
                return f"{url.path}?{urlencode(words)}"
        return handler.path
