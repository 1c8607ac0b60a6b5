"""When the agent measures and moves: the pure machine, and the real agent with a fake session."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.ends import ended
from helpers.waiting import wait_until
from hypothesis import given
from hypothesis import strategies as st

from netprobe.choice import Chooser, Inertia
from netprobe.native import Line
from probe.conftest import Listen
from probe.paths import broken, path
from probe.slow import SlowProxy
from rgpu_client.session.folders import held
from rgpu_client.session.watching import (
    Ask,
    Measure,
    MoveTo,
    Pace,
    Stats,
    Watcher,
    parse_stats,
)

FAR, NEAR = path("tcp:far:1", trip=0.01), path("tcp:near:1", trip=0.001)


def watcher(**pace: float) -> Watcher:
    return Watcher(Chooser(FAR.uri, Inertia(times=2)), Pace(**pace))


def test_counters_are_read() -> None:
    text = "STATS calls=5 bulk_bytes=100 syncs=2 path=tcp:a:1 later=x"
    assert parse_stats(text) == Stats(5, 100, 2, "tcp:a:1")
    assert parse_stats("STATS calls=5 bulk_bytes=9 syncs=2 path= up_bytes=4 down_bytes=5") == Stats(
        5, 9, 2, "", 4, 5
    )
    for bad in ("", "STATS", "STATS calls=-1 bulk_bytes=0 syncs=0", "MOVE tcp:a:1",
                "STATS calls=x bulk_bytes=0 syncs=0", "STATS calls=1 syncs=0",
                "STATS calls=99999999999999999999 bulk_bytes=0 syncs=0"):  # fmt: skip
        assert parse_stats(bad) is None


@given(st.text())
def test_any_text_is_read_or_not(text: str) -> None:
    parse_stats(text)
    parse_stats(f"STATS {text}")


def test_it_measures_now_and_then() -> None:
    one = watcher(measure=60)
    one.measured_at = 0.0
    assert one.tick(30) == []
    assert one.tick(60) == [Measure("it is time again")]
    assert one.tick(61) == []
    assert one.next_at(61) == 121


def test_it_asks_only_who_is_there() -> None:
    one = watcher(ask=5)
    one.measured_at = 0.0
    assert one.tick(10) == []
    one.opened(7)
    assert one.tick(10) == [Ask()]
    assert one.tick(12) == []
    one.closed(7)
    assert one.tick(20) == []


def test_a_better_path_is_followed_and_taken() -> None:
    one = watcher(measure=60, follow=5)
    one.measured_at = 0.0
    assert one.measured([FAR, NEAR]) == []
    assert one.tick(5) == [Measure("another path seems to be better")]
    (move,) = one.measured([FAR, NEAR])
    assert isinstance(move, MoveTo)
    assert move.uri == NEAR.uri
    # It is there when a session says so.
    one.opened(1)
    one.said(1, Stats(0, 0, 0, NEAR.uri), 6)
    assert one.chooser.current == NEAR.uri
    assert one.measured([FAR, NEAR]) == []


def test_a_broken_path_is_left_at_once() -> None:
    (move,) = watcher().measured([broken(FAR.uri), NEAR])
    assert isinstance(move, MoveTo)
    assert move.uri == NEAR.uri


def test_a_session_that_does_less_is_looked_after() -> None:
    one = watcher(measure=60, least=2)
    one.measured_at = 0.0
    one.opened(1)
    for second, calls in enumerate((0, 1000, 2000, 3000)):
        one.said(1, Stats(calls, 0, calls // 100), float(second))
    assert one.workload.name == "call-bound"
    assert one.tick(4) == [Ask()]
    one.said(1, Stats(3100, 0, 31), 4.0)
    assert Measure("the program does less than before") in one.tick(5)


def test_a_session_that_rests_is_not_degraded() -> None:
    one = watcher()
    one.measured_at = 0.0
    one.opened(1)
    for second, calls in enumerate((0, 1000, 2000, 2000, 2000, 3000)):
        one.said(1, Stats(calls, 0, 0), float(second))
    assert not one.wanted


def test_the_workload_is_that_of_the_session() -> None:
    one = watcher()
    one.opened(1)
    one.said(1, Stats(0, 0, 0, up_bytes=0, down_bytes=0), 0.0)
    one.said(1, Stats(30, 1 << 30, 30, up_bytes=1 << 30, down_bytes=0), 1.0)
    assert one.workload.name == "bulk-bound"
    assert (one.workload.up_bytes, one.workload.down_bytes) == (1 << 30, 0)


events = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.floats(0, 100)),
        st.tuples(st.just("open"), st.integers(0, 3)),
        st.tuples(st.just("close"), st.integers(0, 3)),
        st.tuples(st.just("said"), st.integers(0, 3), st.integers(0, 10**6)),
        st.tuples(st.just("measured"), st.booleans(), st.booleans()),
    ),
    max_size=60,
)


@given(events)
def test_it_never_measures_more_often_than_it_may(events: list[tuple[Any, ...]]) -> None:
    one = watcher(least=2.0, follow=3.0, measure=60.0)
    now, last = 0.0, None
    for kind, *rest in events:
        if kind == "tick":
            now += rest[0]
            actions = one.tick(now)
            if any(isinstance(action, Measure) for action in actions):
                assert last is None or now - last >= 2.0
                last = now
            assert one.next_at(now) > now
        elif kind == "open":
            one.opened(rest[0])
        elif kind == "close":
            one.closed(rest[0])
        elif kind == "said":
            one.said(rest[0], Stats(rest[1], 0, rest[1]), now)
        else:
            far, near = rest
            one.measured([FAR if far else broken(FAR.uri), NEAR if near else broken(NEAR.uri)])


# the real agent


@pytest.fixture
def two_paths(listen: Listen) -> Iterator[tuple[str, str, bytes]]:
    """Yields a slow and a fast path to one responder, and the responder's id."""
    with listen("burst", "100000") as responder:
        proxy = SlowProxy(responder.port, 0.01)
        with Line(responder.tcp, 60) as line:
            server = line.offer.server
        try:
            yield proxy.uri, responder.tcp, server
        finally:
            proxy.close()


@contextlib.contextmanager
def agent(
    tmp_path: Path, server: bytes, *uris: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The agent's process, beside a program that lasts as long as the block."""
    folder = tmp_path / "agent-folder"
    folder.mkdir()
    environment = {
        **os.environ,
        "RGPU_AGENT_SECONDS": "0.2",
        "RGPU_AGENT_TEXTFILE": str(tmp_path / "paths.prom"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    program = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    pidfd = os.pidfd_open(program.pid)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{folder}/agent")
        listener.listen()
        heard, ready = os.pipe()
        fds = (listener.fileno(), pidfd, ready, held(str(folder)))
        names = ("listen", "program", "ready", "folder")
        words = [*(f"--{name}-fd={fd}" for name, fd in zip(names, fds, strict=True)),
                 "--folder", str(folder), "--named", "here:1", "--server", server.hex(), "--loud",
                 "--", *uris]  # fmt: skip
        process = subprocess.Popen(
            [sys.executable, "-m", "rgpu_client.session.watch", *words],
            pass_fds=fds, env=environment, cwd="/", stderr=subprocess.PIPE,
        )  # fmt: skip
    for descriptor in fds[1:]:
        os.close(descriptor)
    assert os.read(heard, 2) == b"1"
    os.close(heard)
    try:
        yield f"{folder}/agent", process
    finally:
        assert program.stdin is not None
        program.stdin.close()
        ended(program)
        ended(process)
        assert process.stderr is not None
        process.stderr.close()
    assert not folder.exists()


class FakeSession:
    """Plays the part of a program's library at the agent's socket."""

    def __init__(self, where: str, uri: str) -> None:
        self.uri, self.calls = uri, 0
        self.stays = ""
        self.moves: list[str] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(where)

    def answer(self, seconds: float = 0.05) -> None:
        """Answers what has come."""
        while select.select([self.socket], [], [], seconds)[0]:
            text = self.socket.recv(4096).decode()
            if not text:
                return
            if text.startswith("MOVE ") and self.stays:
                self.socket.send(f"STAYED {text.removeprefix('MOVE ')} {self.stays}".encode())
            elif text.startswith("MOVE "):
                self.uri = text.removeprefix("MOVE ")
                self.moves.append(self.uri)
                self.socket.send(f"MOVED {self.uri}".encode())
            else:
                assert text == "STATS?"
                self.calls += 1000
                words = f"calls={self.calls} bulk_bytes=0 syncs={self.calls // 10}"
                self.socket.send(f"STATS {words} path={self.uri}".encode())


def test_an_agent_moves_a_session_to_the_better_path(
    tmp_path: Path, two_paths: tuple[str, str, bytes]
) -> None:
    slow, fast, server = two_paths
    with agent(tmp_path, server, slow, fast) as (where, process):
        session = FakeSession(where, slow)

        def moved() -> bool:
            session.answer()
            return session.uri == fast

        wait_until(moved)
        textfile = tmp_path / "paths.prom"
        wait_until(lambda: f'rgpu_path_chosen{{path="{fast}"}} 1' in told(session, textfile))
        assert "\nrgpu_agent_moves_total " in textfile.read_text()
        session.socket.close()
        said = process.stderr
        assert said is not None
        assert f"rgpu path: to {fast}: a call-bound step takes " in said.readline().decode()
    assert set(session.moves) == {fast}
    lines = (tmp_path / "state" / "rgpu" / "paths.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert {row["event"] for row in rows} == {"move", "moved"}
    assert rows[0]["uri"] == fast
    assert "times in a row" in rows[0]["reason"]
    assert list((tmp_path / "cache" / "rgpu" / "paths").glob("*.json"))


def told(session: FakeSession, file: Path) -> str:
    session.answer()
    return file.read_text() if file.exists() else ""


def test_an_agent_leaves_a_path_that_broke(
    tmp_path: Path, two_paths: tuple[str, str, bytes]
) -> None:
    _, fast, server = two_paths
    with agent(tmp_path, server, "tcp:127.0.0.1:1", fast) as (where, _):
        session = FakeSession(where, "tcp:127.0.0.1:1")
        wait_until(lambda: session.answer() or session.uri == fast)
        session.socket.close()


def test_an_agent_writes_down_why_a_session_stays(
    tmp_path: Path, two_paths: tuple[str, str, bytes]
) -> None:
    slow, fast, server = two_paths
    record = tmp_path / "state" / "rgpu" / "paths.jsonl"
    with agent(tmp_path, server, slow, fast) as (where, _):
        session = FakeSession(where, slow)
        session.stays = "the server granted this session no resumption"
        wait_until(lambda: session.answer() or (record.exists() and "stayed" in record.read_text()))
        session.socket.close()
    rows = [json.loads(line) for line in record.read_text().splitlines()]
    stayed = next(row for row in rows if row["event"] == "stayed")
    assert (stayed["uri"], stayed["reason"]) == (fast, session.stays)
    assert "moved" not in {row["event"] for row in rows}


def test_an_agent_is_not_disturbed_by_nonsense(
    tmp_path: Path, two_paths: tuple[str, str, bytes]
) -> None:
    slow, fast, server = two_paths
    with agent(tmp_path, server, slow, fast) as (where, process):
        for message in (
            b"x", b"STATS", b"\xff" * 4000, b"STATS calls=1 bulk_bytes=1 syncs=1",
            b"STATS calls=1 bulk_bytes=1 syncs=1 path=tcp:evil:1",
            b"MOVED", b"MOVED tcp:evil:1", b"STAYED tcp:evil:1 why", b"STAYED",
        ):  # fmt: skip
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as bad:
                bad.connect(where)
                bad.send(message)
        session = FakeSession(where, slow)
        wait_until(lambda: session.answer() or session.uri == fast)
        assert process.poll() is None
        session.socket.close()
    assert "evil" not in (tmp_path / "state" / "rgpu" / "paths.jsonl").read_text()
