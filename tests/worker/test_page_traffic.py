"""Page streams at the gate: pages pass it, and only so many of them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from worker.client import Client
from worker.token_page import LONG_NS, RECALLED, SLICE, TokenPage
from worker.warm import open_session, pooled

MIB = 1 << 20
PIECE = 256 << 10
PAGES, HELD = 77, 70


@contextmanager
def paged() -> Iterator[tuple[TokenPage, Client, int]]:
    """A session with a page stream, without the token, and 1 MiB of memory."""
    page = TokenPage()
    with pooled() as warm:
        warm.hear()
        client = open_session(warm, page)
        memory = client.alloc(MIB)
        client.post("rgpuPageStreamCreate", stream=PAGES)
        yield page, client, memory


def _write(client: Client, memory: int, size: int = PIECE) -> None:
    values = {"dst": memory, "pitch": 0, "width": size, "height": 1, "stream": PAGES}
    client.post("rgpuCopyHtoD", **values, synchronous=1, bulk=bytes(size))


def _read(client: Client, memory: int, size: int = PIECE) -> int:
    return client.post("rgpuCopyDtoH", src=memory, pitch=0, width=size, height=1, stream=PAGES)


def test_pages_pass_the_gate_and_what_it_holds() -> None:
    with paged() as (page, client, memory):
        client.post("rgpuStreamCreate", stream=HELD, flags=1, priority=0)
        values = {"dst": memory, "pitch": 0, "element_bytes": 1, "value": 7, "width": 64}
        client.post("rgpuMemset", **values, height=1, stream=HELD, synchronous=0)
        page.until(wanting=1)
        for _ in range(20):
            _write(client, memory)
        assert client.wait(_read(client, memory)).data == bytes(PIECE)
        assert page.demand()["active"] == 0


def test_many_pages_wait_for_the_token() -> None:
    """A page stream is no way past the gate: what a session moves in it without the token is
    bounded, and beyond that it asks for the token as all work does.
    """
    with paged() as (page, client, memory):
        for _ in range(2048):  # on a busy machine much of it is allowed again meanwhile
            _write(client, memory)
            if page.demand()["wanting"]:
                break
        read = _read(client, memory)
        page.until(wanting=1)
        assert read not in client.replies
        page.grant(SLICE, LONG_NS)
        assert client.wait(read).status == 0
        page.until(active=0, wanting=0)


def test_pages_come_without_the_token_in_the_end() -> None:
    """The work that keeps the token away may wait for a page."""
    with paged() as (page, client, memory):
        page.say(RECALLED)
        for _ in range(17 * MIB // PIECE):
            _write(client, memory)
        assert client.wait(_read(client, memory)).data == bytes(PIECE)
        assert page.demand()["active"] == 0


@pytest.mark.parametrize("size", [PIECE, MIB])
def test_only_pieces_pass_the_gate(size: int) -> None:
    with paged() as (page, client, memory):
        read = _read(client, memory, size)
        if size > PIECE:
            page.until(wanting=1)
            assert read not in client.replies
            page.grant(SLICE, LONG_NS)
        assert client.wait(read).data == bytes(size)
        page.until(active=0, wanting=0)
