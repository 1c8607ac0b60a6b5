"""The agent of a program that has several network paths: measures the paths now and then, and tells
the program's sessions to move.

Over a socket that only this user can open (RGPU_AGENT, SOCK_SEQPACKET) the agent sends `STATS?` and
`MOVE uri`; a session answers `STATS calls=N bulk_bytes=N syncs=N path=URI`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import socket
import struct
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from netprobe.choice import Chooser, Inertia
from netprobe.prober import ProbeBudget
from netprobe.record import Entry
from netprobe.survey import measured, memory
from rgpu_client.session import audit
from rgpu_client.session.detach import add_agent_options, own_folder
from rgpu_client.session.pacing import MOVES, TEXTFILE
from rgpu_client.session.watching import (
    Action,
    Ask,
    Measure,
    MoveTo,
    Watcher,
    may_move,
    pace_of,
    parse_stats,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.prober import Measurement

_MAX_MESSAGE = 4096
_MAX_SESSIONS = 256
_CREDENTIALS = struct.Struct("3i")
# The cost of measuring while a program runs: a fraction of a percent of a gigabit link.
_BACKGROUND = ProbeBudget(seconds=0.06, bytes=8 << 20, pings=20, round_trips=12, timeout=1.0)


@dataclass(slots=True)
class Agent:
    """The event loop of the agent.

    listener: the socket to which sessions connect. program: a pidfd, readable when the program has
    ended.
    """

    listener: socket.socket
    program: int
    named: str
    server: bytes
    uris: tuple[str, ...]
    watcher: Watcher
    loud: bool = False
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    counters: dict[str, int] = field(
        default_factory=lambda: {"measurements": 0, "moves": 0, "degradations": 0}
    )
    _selector: selectors.BaseSelector = field(init=False, default_factory=selectors.DefaultSelector)

    def __post_init__(self) -> None:
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._selector.register(self.program, selectors.EVENT_READ)

    def run(self) -> None:
        """Runs until the program has ended."""
        # The paths were measured when the program started, so the first measurement here is not due
        # yet.
        self.watcher.measured_at = time.monotonic()
        while True:
            now = time.monotonic()
            for action in self.watcher.tick(now):
                self._do(action)
            pause = min(max(self.watcher.next_at(now) - now, 0.01), self.watcher.pace.measure)
            for key, _ in self._selector.select(pause):
                if key.fileobj == self.program:
                    return
                if key.fileobj is self.listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._hear(key.fileobj)

    def _accept(self) -> None:
        try:
            session, _ = self.listener.accept()
        except OSError:
            return
        data = session.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        known = _CREDENTIALS.unpack(data)[1] in (0, os.geteuid())
        if not known or len(self.watcher.sessions) >= _MAX_SESSIONS:
            session.close()
            return
        session.setblocking(False)
        self._selector.register(session, selectors.EVENT_READ)
        self.watcher.opened(session.fileno())
        self._tell(session, "STATS?")

    def _hear(self, session: socket.socket) -> None:
        try:
            data = session.recv(_MAX_MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.watcher.closed(session.fileno())
            self._selector.unregister(session)
            session.close()
            return
        text = data.decode(errors="replace").rstrip("\0\n")
        stats = parse_stats(text)
        if stats is None:
            self._answered(text)
            return
        if stats.path not in self.uris:
            # The counters are used, but not the path, which is none of this program's paths.
            stats = replace(stats, path="")
        before = self.watcher.chooser.current
        self.watcher.said(session.fileno(), stats, time.monotonic())
        if self.watcher.chooser.current != before:
            self._moved(stats.path)

    def _answered(self, text: str) -> None:
        """Handles the answer to MOVE: the session has moved, or says why it stays."""
        word, _, rest = text.partition(" ")
        uri, _, reason = rest.partition(" ")
        if uri not in self.uris or not rest.isprintable():
            return
        if word == "MOVED" and uri != self.watcher.chooser.current:
            self.watcher.chooser.moved(uri)
            self._moved(uri)
        elif word == "STAYED":
            self._note("stayed", f"a session does not go over {uri}: {reason}",
                       uri=uri, reason=reason)  # fmt: skip

    def _moved(self, uri: str) -> None:
        self._note("moved", f"a session goes over {uri} now", uri=uri)

    def _do(self, action: Action) -> None:
        if isinstance(action, Ask):
            self._broadcast("STATS?")
        elif isinstance(action, Measure):
            self._measure(action)
        else:
            self._move(action)

    def _measure(self, action: Measure) -> None:
        self.counters["measurements"] += 1
        self.counters["degradations"] += "less than before" in action.reason
        paths = measured(self.uris, self.server, _BACKGROUND)
        memory(self.environment).write(self.named, Entry(time.time(), self.server, False, paths))
        for move in self.watcher.measured(paths):
            self._do(move)
        self._export(paths)

    def _move(self, move: MoveTo) -> None:
        if not may_move(self.environment):
            self._note("better path", f"{move.uri}: {move.reason} ({MOVES}=0: sessions stay)",
                       uri=move.uri, reason=move.reason)  # fmt: skip
            return
        self.counters["moves"] += 1
        self._note("move", f"to {move.uri}: {move.reason}", uri=move.uri, reason=move.reason,
                   workload=self.watcher.workload.name)  # fmt: skip
        self._broadcast(f"MOVE {move.uri}")
        # Sessions report their path with their next counters. Without a session nobody reports,
        # and the next session starts on this path.
        if not self.watcher.sessions:
            self.watcher.chooser.moved(move.uri)

    def _broadcast(self, text: str) -> None:
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket) and key.fileobj is not self.listener:
                self._tell(key.fileobj, text)

    def _tell(self, session: socket.socket, text: str) -> None:
        with contextlib.suppress(OSError):  # its queue is full: it reads the next message
            session.send(text.encode())

    def _export(self, paths: Sequence[Measurement]) -> None:
        name = self.environment.get(TEXTFILE)
        if name:
            text = audit.textfile(paths, self.watcher.chooser.current, self.counters)
            audit.write_textfile(Path(name), text)

    def _note(self, event: str, sentence: str, **facts: str) -> None:
        audit.write_down(self.environment, event, server=self.named, **facts)
        if self.loud:
            audit.say(sentence)


def main(arguments: Sequence[str]) -> int:
    """The main function of the agent's process."""
    parser = argparse.ArgumentParser()
    add_agent_options(parser)
    parser.add_argument("--named", required=True)
    parser.add_argument("--server", type=bytes.fromhex, required=True)
    parser.add_argument("--loud", action="store_true")
    parser.add_argument("uris", nargs="+")
    said = parser.parse_args(arguments)
    with (
        own_folder(said.folder, said.ready_fd),
        socket.socket(fileno=said.listen_fd) as listener,
    ):
        watcher = Watcher(Chooser(said.uris[0], Inertia()), pace_of(os.environ))
        listener.setblocking(False)
        agent = Agent(listener, said.program_fd, said.named, said.server, tuple(said.uris),
                      watcher, said.loud)  # fmt: skip
        agent.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
