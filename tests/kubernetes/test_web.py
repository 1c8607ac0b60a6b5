"""The HTTPS server of the webhook and the extender, over real connections."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers import pki
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.certificates import Certificates
from rgpu_cluster.kubernetes.web import Limits, Server
from rgpu_common.errors import ConfigError

SECONDS = 20.0
# A question that is whole is read before the time for it is over, also in a process that waits for
# its turn.
SMALL = Limits(body_bytes=1000, answer_seconds=0.3)
QUICK = Limits(idle_seconds=0.3, ask_seconds=0.3)


async def echo(asked: Any) -> Any:
    if asked == "wrong":
        raise RequestError("write it otherwise")
    if asked == "slow":
        await asyncio.Event().wait()
    if asked == "defect":
        raise ZeroDivisionError
    return {"asked": asked}


@asynccontextmanager
async def serving(
    limits: Limits | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    server = Server({"/echo": echo}, limits)
    try:
        yield await server.start("127.0.0.1", 0, tls)
    finally:
        await server.close()


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pki.folder() / "ca.pem"))


async def talk(port: int, text: bytes, tls: ssl.SSLContext | None = None) -> tuple[int, Any, bytes]:
    """Sends bytes; returns the answer's status and JSON, and all that was read until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(text)
        whole = await asyncio.wait_for(reader.read(), SECONDS)
    finally:
        writer.close()
    if not whole:
        return 0, None, b""
    head, _, body = whole.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body), whole


def post(body: bytes, path: str = "/echo", *more: str) -> bytes:
    head = [
        f"POST {path} HTTP/1.1",
        "host: x",
        f"content-length: {len(body)}",
        "connection: close",
        *more,
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, SECONDS))


def test_json_is_answered_with_json_over_tls() -> None:
    files = Certificates(pki.folder() / "server.pem", pki.folder() / "server.key")

    async def work() -> None:
        async with serving(tls=files.context) as port:
            assert (await talk(port, post(b'{"a": [1]}'), trusting()))[:2] == (
                200,
                {"asked": {"a": [1]}},
            )
            with pytest.raises(ssl.SSLError):
                await talk(port, post(b"1"), ssl.create_default_context())

    run(work())


def test_a_connection_serves_several_questions() -> None:
    async def work() -> None:
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in (1, 2):
                writer.write(post(str(number).encode()).replace(b"connection: close\r\n", b""))
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                assert await reader.readexactly(len(f'{{"asked":{number}}}'))
            writer.close()

    run(work())


@pytest.mark.parametrize(
    ("asked", "status", "sentence"),
    [
        (post(b'"wrong"'), 400, "write it otherwise"),
        (post(b"{"), 400, "the body is not JSON"),
        (post(b"[" * 900), 400, "the body is not JSON"),
        (post(b'"slow"'), 504, "no answer within 0.3 s; try again"),
        (post(b'"defect"'), 500, "an error of rgpu, which its log describes"),
        (post(b"1", "/other"), 404, "there is nothing at /other"),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", 405, "this path takes POST"),
        (post(b"1" * 1001), 413, "a question has at most 1000 bytes, and not 1001"),
        (b"POST /echo HTTP/1.1\r\nx: " + b"y" * 40_000, 431, "this is no HTTP/1.1 request"),
        (post(b"{}", "/echo", "x: " + "y" * 40_000), 431, "this is no HTTP/1.1 request"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", 400, "this is no HTTP/1.1 request"),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
         + b"190\r\n" + b"1" * 400 + b"\r\n" + b"300\r\n" + b"1" * 768 + b"\r\n0\r\n\r\n",
         413, "a question has at most 1000 bytes"),
    ],
)  # fmt: skip
def test_a_wrong_question_has_its_status_and_a_sentence(
    asked: bytes, status: int, sentence: str
) -> None:
    async def work() -> Any:
        async with serving(SMALL) as port:
            return await talk(port, asked)

    found = run(work())
    assert found[:2] == (status, {"message": sentence})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=300), max_size=4), st.booleans())
def test_any_bytes_are_answered_or_dropped(parts: list[bytes], begun: bool) -> None:
    """The server lives on, and every connection ends."""
    text = (
        b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n" if begun else b""
    ) + b"".join(parts)

    async def work() -> None:
        async with serving(Limits(body_bytes=1000, idle_seconds=0.05, ask_seconds=0.05)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), SECONDS)
            writer.close()
            # A caller may lose the processor for longer than this server gives it.
            while (await talk(port, post(b"1")))[0] != 200:
                pass

    run(work())


def test_health_is_answered() -> None:
    async def work() -> Any:
        async with serving() as port:
            return await talk(
                port, b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
            )

    assert run(work())[:2] == (200, {"status": "ok"})


@pytest.mark.parametrize("part", [b"", b"POST /echo", post(b"12")[:-1], b"POST /echo HTTP/1.1\r\n"])
def test_a_caller_that_says_nothing_more_is_let_go(part: bytes) -> None:
    async def work() -> Any:
        async with serving(QUICK) as port:
            return await talk(port, part)

    assert run(work())[0] in (0, 400)


def test_callers_without_a_question_make_room() -> None:
    async def work() -> None:
        async with serving(Limits(callers=2)) as port:
            held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            for reader, writer in held:
                writer.write(post(b"1").replace(b"connection: close\r\n", b""))
                await reader.readuntil(b"\r\n\r\n")
            # Silent strangers keep nobody out.
            assert (await talk(port, post(b"1")))[0] == 200
            gone, stays = held
            assert await asyncio.wait_for(gone[0].read(), 60) is not None
            assert gone[0].at_eof()
            assert not stays[0].at_eof()
            for _, writer in held:
                writer.close()

    run(work())


@pytest.mark.parametrize("turns", range(24))
def test_it_closes_whatever_a_caller_is_at(turns: int) -> None:
    """Before Python 3.12 a task that waits with a limit misses a cancellation that comes together
    with what it waits for; another question may come 90 s later.
    """

    async def work() -> None:
        async with serving(Limits(idle_seconds=600)) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(post(b"1").replace(b"connection: close\r\n", b""))
            for _ in range(turns):
                await asyncio.sleep(0)
        writer.close()

    run(work())


def test_a_new_certificate_is_taken_and_a_broken_one_is_not(tmp_path: Path) -> None:
    for name in ("pem", "key"):
        shutil.copy(pki.folder() / f"elsewhere.{name}", tmp_path / f"tls.{name}")
    files = Certificates(tmp_path / "tls.pem", tmp_path / "tls.key")

    async def work() -> None:
        async with serving(tls=files.context) as port:
            with pytest.raises(ssl.SSLCertVerificationError):
                await talk(port, post(b"1"), trusting())
            assert not files.refresh()
            shutil.copy(pki.folder() / "server.pem", tmp_path / "tls.pem")
            # The key is still the old one.
            assert not files.refresh()
            with pytest.raises(ssl.SSLCertVerificationError):
                await talk(port, post(b"1"), trusting())
            shutil.copy(pki.folder() / "server.key", tmp_path / "tls.key")
            assert files.refresh()
            assert (await talk(port, post(b"1"), trusting()))[0] == 200

    run(work())


def test_callers_may_have_to_show_a_certificate() -> None:
    folder = pki.folder()
    files = Certificates(folder / "server.pem", folder / "server.key", folder / "ca.pem")
    known = trusting()
    known.load_cert_chain(folder / "alice.pem", folder / "alice.key")

    async def work() -> None:
        async with serving(tls=files.context) as port:
            assert (await talk(port, post(b"1"), known))[0] == 200
            with suppress(ssl.SSLError, ConnectionResetError):
                assert (await talk(port, post(b"1"), trusting()))[0] == 0

    run(work())


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("nothing")
    with pytest.raises(ConfigError, match=r"/x and .*/x are no certificate and its key"):
        Certificates(tmp_path / "x", tmp_path / "x")
    with pytest.raises(ConfigError, match="is no authority's certificate"):
        Certificates(pki.folder() / "server.pem", pki.folder() / "server.key", tmp_path / "x")
