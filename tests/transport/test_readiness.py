"""A peer that goes with a reset is heard, whichever event loop and whatever it said before."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop
from helpers.waiting import wait_until

from rgpu_common.readiness import Readiness
from rgpu_common.tunnel.chunk import decode
from rgpu_common.tunnel.local import LocalEnd

SECONDS = 60
LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
Run = Callable[[Any], None]


@pytest.fixture(params=sorted(LOOPS))
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Runs a coroutine to its end, or fails."""
    loop = LOOPS[request.param]()
    yield lambda work: loop.run_until_complete(asyncio.wait_for(work, SECONDS))
    loop.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        far = socket.create_connection(listener.getsockname())
        return listener.accept()[0], far


@contextmanager
def pair(kind: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    near, far = socket.socketpair() if kind == "unix" else tcp_pair()
    with near, far:
        near.setblocking(False)
        yield near, far


def go_with_a_reset(near: socket.socket, far: socket.socket, last_words: bytes) -> None:
    """Sends the words and then a reset to `near`; returns when both have arrived."""
    near.send(b"never read")
    far.sendall(last_words)
    far.close()
    wait_until(lambda: _is_reset(near), SECONDS)


def _is_reset(near: socket.socket) -> bool:
    # Looking takes nothing, least of all the error.
    poll = select.poll()
    poll.register(near, 0)
    return any(what & select.POLLERR for _, what in poll.poll(0))


class Reader:
    """Reads a little at a time, and stops at the end."""

    def __init__(self, near: socket.socket) -> None:
        self.near = near
        self.data = b""
        self.calls_after_stop = 0
        self.begun, self.over = asyncio.Event(), asyncio.Event()
        self.readiness = Readiness(near.fileno(), self._readable)

    def _readable(self) -> None:
        self.calls_after_stop += not self.readiness.active
        try:
            data = self.near.recv(4)
        except ConnectionResetError:
            data = b""
        self.data += data
        self.begun.set()
        if not data:
            self.readiness.stop()
            self.over.set()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_last_words_and_the_reset_behind_them(run: Run, kind: str) -> None:
    async def work() -> None:
        with pair(kind) as (near, far):
            reader = Reader(near)
            go_with_a_reset(near, far, b"these are the last words")
            reader.readiness.start()
            await reader.over.wait()
            assert reader.data == b"these are the last words"

    run(work())


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_also_while_somebody_waits_to_write(run: Run, kind: str) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        with pair(kind) as (near, far):
            reader = Reader(near)
            go_with_a_reset(near, far, b"last words")
            reader.readiness.start()
            wrote = asyncio.Event()
            loop.add_writer(near.fileno(), wrote.set)
            await reader.over.wait()
            assert reader.data == b"last words"
            await wrote.wait()
            loop.remove_writer(near.fileno())

    run(work())


def test_nothing_is_called_after_stop_and_all_again_after_start(run: Run) -> None:
    async def work() -> None:
        with pair("tcp") as (near, far):
            reader = Reader(near)
            reader.readiness.start()
            go_with_a_reset(near, far, b"last words")
            await reader.begun.wait()
            reader.readiness.stop()
            had = reader.data
            for _ in range(10):
                await asyncio.sleep(0)
            assert (reader.data, reader.calls_after_stop) == (had, 0)
            reader.readiness.start()
            reader.readiness.start()
            await reader.over.wait()
            assert reader.data == b"last words"

    run(work())


def test_a_program_that_dies_with_unread_answers_ends_its_tunnel(run: Run) -> None:
    async def work() -> None:
        with pair("unix") as (near, far):
            go_with_a_reset(near, far, b"last words")
            end = LocalEnd(near)
            data, _ = decode(await end.take())
            assert bytes(data) == b"last words"
            assert await end.take() == b""
            assert end.gone()
            end.close()

    run(work())
