"""Questions to the page as programs ask them, without a browser."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from typing import Any

from helpers.manager import ManagerProcess
from helpers.server import Server

from web_page.browser import address

# More connections than the page has places.
CROWD = 400


class Answer:
    """What the page says. body: its JSON, or its text."""

    def __init__(self, status: int, headers: Mapping[str, str], text: str) -> None:
        self.status, self.headers, self.text = status, headers, text
        self.body: Any = json.loads(text) if text.startswith("{") else text

    @property
    def message(self) -> str:
        return str(self.body["message"])


def asked(
    server: Server | ManagerProcess, method: str, path: str, body: str = "", **headers: str
) -> Answer:
    """Asks the page; a header's name has _ in place of -."""
    host = address(server.log).split("//")[1].rstrip("/")
    with closing(http.client.HTTPConnection(host, timeout=30)) as line:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        line.request(method, path, body or None, named)
        answer = line.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def ordered(
    server: Server | ManagerProcess, order: str, token: str = "", **fields: object
) -> Answer:
    """Gives an order as the page does."""
    who = bearer(token) if token else {}
    secret = asked(server, "GET", "/api/hello", **who).body["secret"]
    body = json.dumps({"order": order, **fields})
    named = {"content_type": "application/json", "x_rgpu_page": secret, **who}
    return asked(server, "POST", "/api/order", body, **named)


def state(server: Server | ManagerProcess, token: str = "") -> dict[str, dict[str, Any]]:
    """Returns the tables of the first message of the live view."""
    host, _, port = address(server.log).split("//")[1].rstrip("/").partition(":")
    with socket.create_connection((host, int(port)), 30) as line, line.makefile("rb") as stream:
        who = f"authorization: Bearer {token}\r\n" if token else ""
        line.sendall(f"GET /api/live HTTP/1.1\r\nhost: {host}\r\n{who}\r\n".encode())
        said = next(one for one in stream if one.startswith(b"data: "))
    changes = json.loads(said.removeprefix(b"data: "))["changes"]
    return {table: part["set"] for table, part in changes.items()}


@contextmanager
def crowd(host: str, port: int) -> Iterator[None]:
    """Connections that say nothing, or the first word of a question."""
    with ExitStack() as stack:
        for number in range(CROWD):
            line = stack.enter_context(socket.create_connection((host, port), 30))
            with suppress(OSError):  # it has made room for another one already
                line.sendall(b"GET /api"[: 8 * (number % 2)])
        yield


def descriptors(server: Server) -> list[str]:
    assert server.process is not None
    return os.listdir(f"/proc/{server.process.pid}/fd")
