"""Servers that lie, delay and send garbage: a client prints a sentence in time, and obeys
nothing.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from netprobe import native
from netprobe import survey as surveying
from netprobe.candidates import MOST_OF_A_KIND
from netprobe.native import Line, Offer
from netprobe.prober import ProbeBudget, measure
from netprobe.record import Cache, Entry
from netprobe.survey import find, quick
from probe.conftest import Listen, netprobe
from probe.liar import COUNT, DOWN, ECHO, UP, Guest, Liar, Order, answer, arrivals, echoes
from rgpu_client.session.paths import find_path
from rgpu_common.errors import RgpuError, ServerError
from rgpu_common.wire.frame import Flags, Kind, encode_frame
from rgpu_common.wire.handshake import Handshake

OFFER = Offer(bytes=1 << 30, seconds=15.0)
ENDLESS = (1 << 64) - 1
# Seconds: long for a limit of a fifth of one, also on a busy machine. What the liars here send
# lasts longer than that, or has no end.
IN_TIME = 30.0


def refused(text: str) -> bytes:
    data = text.encode()
    head = struct.pack("<I", len(data)) + data
    return encode_frame(Kind.HANDSHAKE, Handshake.REFUSED, head, status=46)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": f"{tmp_path}/cache", "XDG_STATE_HOME": f"{tmp_path}/state"}


# texts and addresses


@pytest.mark.parametrize(
    "uri", ["tcp:\x1b[2J:1", "unix:/\x9b2J", "tcp:a\n:1", "tcp:\u202egro:1", "unix:/a\u200bb"]
)
def test_addresses_that_are_not_for_a_terminal(uri: str) -> None:
    with Liar(OFFER._replace(endpoints=(uri,))) as liar, pytest.raises(RgpuError) as raised:
        Line(liar.uri, 60)
    assert str(raised.value).isprintable()
    assert "invalid answer" in str(raised.value) or "does not answer" in str(raised.value)


@pytest.mark.parametrize("sentence", ["\x1b]0;owned\x07", "\x9b2Jno", "no\u202e\u2066 way", "\n\n"])
def test_refusals_that_are_not_for_a_terminal(sentence: str) -> None:
    with Liar(first=refused(sentence)) as liar, pytest.raises(ServerError) as raised:
        Line(liar.uri, 60)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    "first",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(200),
        b"\x16\x03\x01" + bytes(200),
        answer(b""),
        answer(bytes(200)),
        answer(native.put_offer(OFFER)[:-1]),
        answer(native.put_offer(OFFER) + b"x"),
        answer(native.put_offer(OFFER._replace(endpoints=("tcp:a:1",) * 65))),
        answer(native.put_offer(OFFER._replace(endpoints=("tcp:" + "a" * 300,)))),
        answer(native.put_offer(OFFER._replace(server=b"short"))),
        encode_frame(Kind.HANDSHAKE, Handshake.WELCOME, bytes(100)),
    ],
    ids=range(10),
)
def test_what_is_no_offer_is_a_sentence(first: bytes) -> None:
    with Liar(first=first) as liar, pytest.raises(RgpuError) as raised:
        Line(liar.uri, 60)
    assert liar.uri in str(raised.value)


def test_a_server_does_not_send_its_clients_everywhere(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surveying, "is_this_host", lambda nonce, host: False)
    many = tuple(f"tcp:192.0.2.{i}:7700" for i in range(60))
    odd = ("tcp:a;tcp:b:1", "nonsense", "tcp:a:0", "tcp:a:70000")
    with Liar(OFFER._replace(endpoints=(*many, *odd))) as liar:
        began = time.perf_counter()
        path = find_path(liar.uri.removeprefix("tcp:"), "auto", environment)
        took = time.perf_counter() - began
    assert path.uri == liar.uri
    assert len(path.others) <= MOST_OF_A_KIND
    assert not any(";" in uri for uri in path.others)
    assert took < IN_TIME


# figures


def believes(*rows: tuple[int, int]) -> None:
    """Sends a train to a server that answers with these arrivals; -1 is the true number of
    bytes.
    """

    def lies(guest: Guest, order: Order) -> None:
        if order.verb == UP:
            count = guest.train()
            told = [(count if size == -1 else size, ns) for size, ns in rows]
            guest.connection.sendall(arrivals(*told))
        echoes(guest, order)

    with Liar(answers=lies) as liar, Line(liar.uri, 60) as line:
        line.train(1 << 16, down=False, seconds=1)


@pytest.mark.parametrize(
    "rows",
    [
        (),
        ((0, 0),),
        ((ENDLESS, 1),),
        ((-1, ENDLESS),),
        ((1, 1),),
        ((5000, 10), (4000, 20), (-1, 30)),
        ((4000, 30), (5000, 20), (-1, 30)),
        ((4000, 1 << 60), (-1, 1 << 61)),
        ((1000, 1),) * 65,
    ],
    ids=range(9),
)
def test_figures_that_cannot_be(rows: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ServerError, match="impossible figures"):
        believes(*rows)
    believes((4096, 10), (-1, 20))


def test_a_count_that_was_not_counted() -> None:
    def lies(guest: Guest, order: Order) -> None:
        if order.verb == COUNT:
            for _ in range(order.bytes):
                guest.frame()
            guest.connection.sendall(arrivals((order.bytes * 1000, 1)))
        echoes(guest, order)

    with (
        Liar(answers=lies) as liar,
        Line(liar.uri, 60) as line,
        pytest.raises(ServerError, match="impossible figures"),
    ):
        line.count(64, 16)


@pytest.mark.parametrize("seconds", [0.0, 4e6])
@pytest.mark.parametrize("size", [0, ENDLESS])
def test_an_offer_of_nothing_or_of_everything(seconds: float, size: int) -> None:
    """The measurement is as long as it was to be, whatever is offered."""

    def honest(guest: Guest, order: Order) -> None:
        if order.verb == UP:
            guest.connection.sendall(arrivals((guest.train(), 1)))
        elif order.verb == DOWN:
            piece = min(order.bytes, 4096)
            guest.connection.sendall(
                encode_frame(Kind.HANDSHAKE, Handshake.PROBE, b"", bytes(piece))
            )
        elif order.verb == COUNT:
            for _ in range(order.bytes):
                guest.frame()
            guest.connection.sendall(arrivals((order.bytes, 1)))
        echoes(guest, order)

    with Liar(Offer(bytes=size, seconds=seconds), answers=honest) as liar:
        path = measure(liar.uri, ProbeBudget(seconds=0.05, bytes=1 << 20, pings=5))
    assert path.seconds < 20.0
    assert path.works or path.error


# time


def holds_up(guest: Guest, order: Order) -> None:
    """Everything comes byte by byte."""
    if order.verb == ECHO:
        guest.connection.sendall(answer(order.head))
    elif order.verb == DOWN:
        data = encode_frame(Kind.HANDSHAKE, Handshake.PROBE, b"", bytes(4096), flags=Flags.MORE)
        guest.trickle(data)
    else:
        guest.over.wait()
        raise OSError("the train was not read")


@pytest.mark.parametrize("down", [False, True])
def test_a_train_that_does_not_end_is_left(down: bool) -> None:
    with Liar(answers=holds_up) as liar, Line(liar.uri, 60) as line:
        line.limit(0.2)
        began = time.perf_counter()
        with pytest.raises(ServerError, match="took too long"):
            line.train(64 << 20, down=down, seconds=0.05)
        assert time.perf_counter() - began < IN_TIME


def test_an_offer_that_does_not_end_is_left() -> None:
    frame = answer(native.put_offer(OFFER._replace(endpoints=("tcp:a:1",) * 60)))

    class Slow(Liar):
        def _serve(self, connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                Guest(connection, self.over).trickle(frame, 0.1)

    with Slow() as liar:
        began = time.perf_counter()
        with pytest.raises(ServerError):
            Line(liar.uri, 0.2)
        assert time.perf_counter() - began < IN_TIME


def test_the_start_of_a_program_is_not_held_up() -> None:
    with Liar(answers=holds_up) as one, Liar(answers=holds_up) as other:
        began = time.perf_counter()
        paths = quick((one.uri, other.uri), OFFER.server)
        assert time.perf_counter() - began < IN_TIME
    assert not any(path.works for path in paths)


def test_a_name_service_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    closed: list[int] = []

    def hangs(uri: str, timeout: float, life: float) -> native._Opened:
        answers.wait()
        return native._Opened(7, (0.0, 0.0), b"", "")

    class Library:
        def rgpu_probe_close(self, line: int) -> None:
            closed.append(line)

    monkeypatch.setattr(native, "_open", hangs)
    monkeypatch.setattr(native, "_NAME_SECONDS", 0.05)
    library = Library()
    monkeypatch.setattr(native, "_library", lambda: library)
    began = time.perf_counter()
    with pytest.raises(ServerError, match="name service"):
        Line("tcp:some.host:7700", 0.02)
    assert time.perf_counter() - began < IN_TIME
    (thread,) = [one for one in threading.enumerate() if one.name == "netprobe-open"]
    answers.set()
    thread.join(10)
    assert closed == [7]  # what comes too late is not left open


# from outside


def test_a_probe_goes_on_while_the_server_is_away(listen: Listen, tmp_path: Path) -> None:
    command = [netprobe(), "run", f"unix:{tmp_path}/probe.sock", "--watch", "0.2",
               "--seconds", "0.02"]  # fmt: skip
    with listen():
        watching = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
        )
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert "handshake" in watching.stdout.readline()
    try:
        # The second, if it was asked at the very moment in which it ended.
        said = watching.stderr.readline()
        assert re.search(
            r"no server listens at|the program that listens at \S+ does not answer", said
        )
        with listen():
            while "handshake" not in (line := watching.stdout.readline()):
                assert line
    finally:
        watching.kill()
        watching.communicate()


def test_two_probes_at_once_keep_one_measurement(listen: Listen, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with listen() as responder:
        found = find(responder.tcp)
        path = measure(responder.tcp, ProbeBudget(seconds=0.02, bytes=1 << 20, pings=5))
    entry = Entry(1000.0, found.offer.server, False, (path,))

    def writes() -> None:
        for _ in range(50):
            cache.write("me", "a", entry)

    threads = [threading.Thread(target=writes) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert cache.read("me", "a") in (None, entry)
    for thread in threads:
        thread.join()
    assert cache.read("me", "a") == entry
    assert len(list((tmp_path / "cache").iterdir())) == 1
