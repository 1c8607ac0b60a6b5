"""Messages between daemon and token loop, and bytes that are not messages."""

from __future__ import annotations

import json
import os
import socket

import pytest

from rgpu_common.errors import ProtocolError
from rgpu_server.tokens import protocol as say

MESSAGES = (
    say.Setup((0, 1), 60_000),
    say.Adopt(),
    say.Start(),
    say.LeaseIs("a", "alice", 0, 1, 1_000_000, 1, -1, False, (1, 2, 3), "{}"),
    say.LeaseGone("a"),
    say.WorkerIs(7, "a", 3, 4711, "record"),
    say.WorkerGone(7, "a", (1,)),
    say.Told(1, 2),
    say.UsageIs("a", 1, 2, 3, 4, 5, 6, 7),
    say.Noted(0, "a sentence"),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_message_comes_back_as_it_was(message: say.Message) -> None:
    assert say.decode(say.encode(message)) == message


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_a_field_too_much_too_few_or_of_another_type_is_refused(message: say.Message) -> None:
    fields = json.loads(say.encode(message))
    changed = [{**fields, "more": 1}, {**fields, "kind": "Nothing"}]
    for name in set(fields) - {"kind"}:
        changed.append({n: v for n, v in fields.items() if n != name})
        changed += [{**fields, name: odd} for odd in (None, 1.5, {}, [None], 1 << 70)]
        changed.append({**fields, name: True if fields[name] is not False else 0})
    for wrong in changed:
        with pytest.raises(ProtocolError):
            say.decode(json.dumps(wrong).encode())


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"1", b"null", b"{", b'{"kind":3}'])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        say.decode(data)


def pair() -> tuple[say.Channel, say.Channel]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return say.Channel(ours), say.Channel(theirs)


def test_descriptors_travel_and_their_number_is_checked() -> None:
    one, other = pair()
    fd = os.eventfd(5)
    one.send(say.WorkerIs(1, "a", 0, 1, ""), [fd, fd])
    one.send(say.Start(), [fd])
    got = other.receive()
    assert got is not None
    assert [os.eventfd_read(got[1][0])] == [5]
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ProtocolError, match="1 descriptors"):
        other.receive()
    assert len(os.listdir("/proc/self/fd")) == before
    say.close_all([fd, *got[1]])
    one.close()
    with pytest.raises(EOFError):
        other.receive()
    other.close()


def test_what_cannot_be_sent_yet_is_kept_in_order() -> None:
    one, other = pair()
    for number in range(2000):
        one.send(say.Noted(number, "x" * 500))
    assert one.waiting
    heard = []
    while len(heard) < 2000:
        got = other.receive()
        if got is None:
            one.flush()
        else:
            heard.append(got[0])
    assert [m.session for m in heard if isinstance(m, say.Noted)] == list(range(2000))
    assert not one.waiting
    one.close()
    other.close()
