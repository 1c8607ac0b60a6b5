"""Questions that are none: they are answered with what keeps other sites out, too."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from helpers.server import Server

from rgpu_server.web.http import SAFE_HEADERS
from web_page.browser import address, served


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running


BIG = b"x" * (17 << 10)


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"no question of HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + BIG, 431),
        (b"POST /api/order HTTP/1.1\r\nHost: a\r\nContent-Length: 17408\r\n\r\n" + BIG, 413),
        (b"GET /?" + b"&".join([b"a=1"] * 17) + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\nHost: stranger.example\r\n\r\n", 421),
    ],
    ids=[
        "noise",
        "no-host",
        "long-head",
        "long-body",
        "many-fields",
        "page",
        "nothing",
        "stranger",
    ],
)
def test_every_answer_has_the_safe_headers(server: Server, question: bytes, status: int) -> None:
    where = urlsplit(address(server.log))
    with socket.create_connection((where.hostname, where.port), timeout=30) as browser:
        browser.sendall(question)
        browser.shutdown(socket.SHUT_WR)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = browser.recv(1 << 16)
            assert piece, head
            head += piece
    first, *rows = head.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert first.split()[1] == str(status)
    headers = dict(row.lower().split(": ", 1) for row in rows)
    for name, text in SAFE_HEADERS.items():
        if (name, status) != ("cache-control", 200):  # files are kept, and asked for anew
            assert headers[name] == text.lower()
