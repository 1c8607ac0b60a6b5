"""`rgpu top`: its picture at any size, and that it restores the terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.ends import killed
from helpers.server import Server, rgpu_command
from hypothesis import given, settings
from hypothesis import strategies as st

from observe.load import Load
from rgpu_client.observe.frame import SORTS, View, frame, report
from rgpu_client.observe.ink import Ink, clip, cut, pad, visible
from rgpu_common.v1.observe_pb2 import DeviceNow, GetNowResponse, LeaseNow

GIB = 1 << 30
PLAIN = Ink(colour=False, fine=False)


def now(leases: int = 3) -> GetNowResponse:
    device = DeviceNow(name="rgpu emulated device", memory_bytes=8 * GIB, share_1s_ppm=900_000)
    return GetNowResponse(
        time_seconds=1e9,
        enforced=True,
        devices=[device],
        leases=[
            LeaseNow(
                lease_id=f"lease-{i}",
                tenant=f"tenant-{i}",
                key="a-key-that-is-longer-than-its-column-is-wide",
                share_request_ppm=400_000,
                share_limit_ppm=700_000,
                share_1s_ppm=550_000,
                memory_limit_bytes=2 * GIB,
                memory_used_bytes=GIB,
                launches_per_second=12345.6,
                sessions=1,
            )
            for i in range(leases)
        ],
    )


def view(width: int, height: int = 24, ink: Ink = PLAIN, **more: str) -> View:
    return View(width, height, ink, "127.0.0.1:7700", **more)


@settings(max_examples=60, deadline=None)
@given(
    width=st.integers(1, 240),
    height=st.integers(1, 60),
    leases=st.integers(0, 70),
    sort=st.sampled_from([*SORTS]),
    colour=st.booleans(),
    fine=st.booleans(),
)
def test_a_frame_fits_any_terminal(
    width: int, height: int, leases: int, sort: str, colour: bool, fine: bool
) -> None:
    lines = frame({"": now(leases)}, view(width, height, Ink(colour, fine), sort=sort))
    assert len(lines) <= max(height, 1)
    assert all(visible(line) <= width for line in lines)
    assert frame(None, view(width, height, notice="the server is gone"))


@pytest.mark.parametrize("width", range(46, 130))
def test_every_column_that_is_shown_is_shown_whole(width: int) -> None:
    """At 70 columns the last one was cut to `LAU`."""
    lines = report({"": now(2)}, view(width))
    titles = next(line for line in lines if line.startswith("TENANT"))
    known = {"TENANT", "LEASE", "SHARE", "100%", "NOW", "10", "S", "GRANTED", "WAIT", "CAPPED",
             "MEMORY", "LAUNCH/S", "COPY/S"}  # fmt: skip
    assert {word for word in titles.split() if word.strip("-")} <= known
    assert {"TENANT", "LEASE", "SHARE", "NOW"} <= set(titles.split())
    if width >= 70:
        assert {"GRANTED", "WAIT", "MEMORY"} <= set(titles.split())
        assert "1G/2G" in lines[-1]


def test_who_sees_no_lease_is_told_whether_others_have_some() -> None:
    answer = now(0)
    assert report({"": answer}, view(100))[-1].startswith("you see no lease: `rgpu run")
    answer.devices[0].leased_share_ppm = 400_000
    assert report({"": answer}, view(100))[-1].startswith("none of the leases here is yours: `rgpu")


def test_a_session_that_compiles_is_shown() -> None:
    answer = now(2)
    answer.leases[0].compiling = 1
    answer.leases[0].share_1s_ppm = 0
    answer.leases[1].compiling = 2
    lines = report({"": answer}, view(100))
    assert "3 compiling" in lines[0]
    (idle,) = [line for line in lines if "tenant-0" in line]
    (busy,) = [line for line in lines if "tenant-1" in line]
    assert " compile " in idle
    assert " 55% " in busy


def test_a_bar_shows_use_request_and_limit() -> None:
    ink = Ink(colour=False)
    assert ink.bar(20, 500_000, "green", (400_000, 700_000)) == "███████┃██···│······"
    assert PLAIN.bar(10, 350_000, "green", (None, None)) == "####......"
    assert ink.bar(4, 2_000_000, "green", (None, None)) == "████"
    assert ink.bar(4, 0, "green", (None, 1_000_000)) == "···│"


def test_wide_characters_take_two_cells_and_accents_none() -> None:
    assert visible("\033[31m東京\033[0m e\u0301") == 6
    assert visible("\u1100\u1161\u11a8 \u0924\u093f \u200b\n") == 5  # 각, ति and nothing
    assert clip("東京都", 6) == "東京都"
    assert clip("東京都", 5) == "東京…"
    assert clip("東京都", 4) == "東…"  # half a character cannot be shown
    assert cut("\033[31m東京\033[0m都", 3) == "\033[31m東\033[0m"
    assert pad("東", 4) == "東  "
    assert pad("e\u0301", 2, right=True) == " e\u0301"


@given(st.text(st.characters(codec="ascii", min_codepoint=32)), st.integers(0, 40))
def test_a_cut_keeps_colours_whole(words: str, width: int) -> None:
    painted = Ink().paint(words, "red") + Ink().paint("x", "bold")
    assert visible(cut(painted, width)) == min(visible(painted), width)


def test_names_cannot_write_escapes() -> None:
    hostile = now(1)
    hostile.leases[0].tenant = "\033[2J"
    hostile.leases[0].key = "a\nb"
    assert all("\033" not in line and "\n" not in line for line in report({"": hostile}, view(120)))


def test_a_lease_below_its_share_is_red_and_one_at_its_limit_yellow() -> None:
    answer = now(1)
    lease = answer.leases[0]
    for share, waiting, throttled, code in (
        (100_000, 900_000, 0, "31"),
        (100_000, 0, 0, "32"),
        (700_000, 0, 300_000, "33"),
    ):
        lease.share_1s_ppm, lease.waiting_ppm, lease.throttled_ppm = share, waiting, throttled
        (line,) = [x for x in report({"": answer}, view(120, ink=Ink())) if "tenant-0" in x]
        assert f"\033[{code}m" in line


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as running:
        load = Load(running.tcp, RGPU_TENANT="alice", RGPU_LEASE="job", RGPU_SHARE="0.5")
        try:
            load.go()
            yield running
        finally:
            load.close()


def top(server: Server, *options: str) -> str:
    done = subprocess.run(
        [rgpu_command(), "top", "--server", server.tcp, *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_once_is_plain_text(server: Server) -> None:
    for text in (top(server, "--once"), top(server)):
        assert "alice" in text
        assert "50" in text
        assert "\033" not in text


def test_json_has_every_field(server: Server) -> None:
    (lease,) = json.loads(top(server, "--json"))["leases"]
    assert (lease["tenant"], lease["key"], lease["share_request_ppm"]) == ("alice", "job", 500_000)
    assert set(lease) == {field.name for field in LeaseNow.DESCRIPTOR.fields}


class Terminal:
    """`rgpu top` in a terminal of a size that can change."""

    def __init__(self, server: Server, columns: int, rows: int, **environment: str) -> None:
        self.mine, theirs = pty.openpty()
        self._resize(theirs, columns, rows)
        self.before = termios.tcgetattr(self.mine)
        self.process = subprocess.Popen(
            [rgpu_command(), "top", "--server", server.tcp],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "PYTHONUTF8": "1", **environment},
        )
        os.close(theirs)
        self.seen = b""

    def _resize(self, fd: int, columns: int, rows: int) -> None:
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self._resize(self.mine, columns, rows)
        self.process.send_signal(signal.SIGWINCH)

    def see(self, text: bytes) -> None:
        """Waits until it has written this since the last time."""
        deadline = time.monotonic() + 30
        while text not in self.seen:
            left = deadline - time.monotonic()
            assert left > 0, self.seen
            if select.select([self.mine], [], [], left)[0]:
                self.seen += os.read(self.mine, 65536)
        self.seen = self.seen.partition(text)[2]

    def ended(self) -> int:
        """Waits for the end; returns the exit code. Output until then is kept in `seen`."""
        with contextlib.suppress(OSError):
            while data := os.read(self.mine, 65536):
                self.seen += data
        return self.process.wait(30)

    def close(self) -> None:
        killed(self.process)
        os.close(self.mine)


@pytest.mark.parametrize("way", ["q", "ctrl-c", "SIGTERM"])
def test_it_ends_cleanly(server: Server, way: str) -> None:
    terminal = Terminal(server, 80, 24)
    try:
        terminal.see(b"\033[?1049h")
        terminal.see(b"alice")
        if way == "q":
            os.write(terminal.mine, b"q")
        else:
            terminal.process.send_signal(signal.SIGINT if way == "ctrl-c" else signal.SIGTERM)
        assert terminal.ended() == 0
        assert terminal.seen.endswith(b"\033[?25h\033[?1049l")
        assert b"Traceback" not in terminal.seen
        assert termios.tcgetattr(terminal.mine) == terminal.before
    finally:
        terminal.close()


# Signals come within the callback of a weak reference, where Python ignores exceptions.
_TOLD_IN_A_CALLBACK = """
import os, signal, weakref
from rgpu_client.observe import top

draw = top._Screen._draw

def told(self):
    draw(self)
    passing = type("Passing", (), {{}})()
    watched = weakref.ref(passing, lambda _: os.kill(os.getpid(), {number}))
    del passing

top._Screen._draw = told
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_wherever_a_signal_comes(server: Server, tmp_path: Path, number: int) -> None:
    (tmp_path / "sitecustomize.py").write_text(_TOLD_IN_A_CALLBACK.format(number=int(number)))
    terminal = Terminal(server, 80, 24, PYTHONPATH=str(tmp_path))
    try:
        assert terminal.ended() == 0
        assert terminal.seen.count(b"alice") == 1
        assert b"Traceback" not in terminal.seen
        assert termios.tcgetattr(terminal.mine) == terminal.before
    finally:
        terminal.close()


def test_it_follows_keys_and_the_size_of_its_terminal(server: Server) -> None:
    terminal = Terminal(server, 80, 24)
    try:
        terminal.see(b"s sort: share")
        os.write(terminal.mine, b"s")
        terminal.see(b"s sort: tenant")
        assert b"CAPPED" not in terminal.seen
        terminal.resize(130, 30)
        terminal.see(b"CAPPED")
        os.write(terminal.mine, b"q")
        assert terminal.ended() == 0
    finally:
        terminal.close()


def test_the_head_counts_the_sessions_of_the_array_seam() -> None:
    some = now()
    for lease, seams in zip(some.leases, (["driver"], ["cupy", "torch"], ["cupy"]), strict=True):
        lease.seams[:] = seams
    assert "3 sessions (2 cupy, 1 torch)" in report({"": some}, view(160))[0]
    assert "3 sessions " in report({"": now()}, view(160))[0]
