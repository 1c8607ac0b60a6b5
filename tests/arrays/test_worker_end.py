"""Whatever ends a session, its client is told a sentence and the daemon the reason."""

from __future__ import annotations

import os
import queue
import socket
from typing import Any

import pytest

from rgpu_common.arrays.line import Line
from rgpu_common.wire.frame import Kind
from rgpu_common.wire.notices import Notice
from rgpu_server.arrays.templates import MalformedError
from rgpu_server.arrays.worker import Session


class Control:
    """The daemon's end, which hears why."""

    def __init__(self) -> None:
        self.reason = ""

    def ended(self, reason: str) -> None:
        self.reason = reason


class Engine:
    """It fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def serve(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MalformedError("an unknown object"), "the worker received an unknown object"),
        (MemoryError(), "the worker's process has no memory left for what it keeps of the session"),
        (KeyError(7), "the worker has a defect, which the server's log describes (KeyError)"),
    ],
)
def test_the_client_and_the_daemon_hear_why(
    error: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(os, "_exit", left)
    ours, theirs = socket.socketpair()
    client, line, control = Line.adopted(ours.detach()), Line.adopted(theirs.detach()), Control()
    session: Any = Session(control, None, line)  # type: ignore[arg-type]
    with pytest.raises(SystemExit, match="0"):
        session.serve(Engine(error))
    told = client.next(5000)
    assert (told.kind, told.opcode) == (Kind.NOTICE, Notice.STICKY)
    assert sentence.encode() in told.head
    assert control.reason
    client.close()
    line.close()


def test_a_worker_ends_with_its_client_whatever_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    left: queue.Queue[int] = queue.Queue()
    monkeypatch.setattr(os, "_exit", left.put)
    ours, theirs = socket.socketpair()
    watched = os.dup(theirs.fileno())
    line, control = Line.adopted(theirs.detach()), Control()
    session: Any = Session(control, None, line)  # type: ignore[arg-type]
    session.end_with_client(watched)
    # Operations that nobody has read yet do not hide that their sender has gone.
    ours.sendall(b"operations")
    assert left.empty()
    ours.close()
    assert left.get(timeout=60) == 0
    assert control.reason == "the client ended the connection"
    os.close(watched)
    line.close()
