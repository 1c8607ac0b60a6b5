"""Host functions at the worker: the stream stands until the client has answered."""

from __future__ import annotations

import pytest

from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import Client, session

STREAM = 5


def _posted(client: Client, count: int = 1) -> None:
    client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
    for _ in range(count):
        client.post("rgpuHostFunction", stream=STREAM)


def _due(client: Client) -> int:
    fields, _ = client.notice(Notice.CALLBACK)
    return int(fields["callback"])


def _done(client: Client, callback: int) -> None:
    client.control.send(encode_message(Control.CALLBACK_DONE, {"callback": callback}))


def test_the_next_one_is_due_when_the_first_has_returned() -> None:
    with session() as client:
        _posted(client, 2)
        waiting = client.post("rgpuStreamSynchronize", stream=STREAM)
        first = _due(client)
        assert client.call("rgpuPing", echo=3)["echo"] == 3
        assert not [n for n in client.notices if n[0] is Notice.CALLBACK]
        _done(client, first)
        second = _due(client)
        assert second != first
        _done(client, second)
        assert client.wait(waiting).status == 0


@pytest.mark.parametrize("answers", ["unknown", "early", "twice"])
def test_an_answer_that_nobody_asked_for_ends_the_session(answers: str) -> None:
    with session() as client:
        if answers == "unknown":
            _posted(client)
            _done(client, _due(client) + 1)
        elif answers == "early":
            _posted(client, 2)
            _done(client, _due(client) + 1)
        else:
            _posted(client, 2)
            first = _due(client)
            _done(client, first)
            _due(client)
            _done(client, first)
        assert len(client.sticky()) > 20
        client.ended()


def test_one_that_cannot_be_launched_is_never_due() -> None:
    """An empty last delivery tells the client to forget the function."""
    with session() as client:
        lost = client.post("rgpuHostFunction", stream=77)
        client.call("rgpuPing", echo=4)
        while lost not in client.deliveries:
            client.take(client.frame())
        assert client.deliveries[lost] == b""
        assert client.result("rgpuMemGetInfo").status == 400
