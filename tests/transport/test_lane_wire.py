"""RESUME on the wire: stale, forged, garbage, reordered."""

from __future__ import annotations

import itertools
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.wire.frame import Kind, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.messages import Control, encode_message
from rgpu_common.wire.resume import TRY_AGAIN, Lane
from transport.lanes import (
    HELLO,
    MISSING,
    RECORD,
    ByHand,
    connect,
    end,
    ended,
    frame,
    refusal,
    resumed,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[ByHand]:
    one = ByHand(server.tcp)
    yield one
    end(one)


def is_closed(connection: socket.socket) -> bool:
    """Reads until the other end has closed; returns True."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_grace_is_granted_to_who_wishes_it(client: ByHand, server: Server) -> None:
    assert client.grace_ms == 10_000
    plain = ByHand(server.tcp, HELLO._replace(wishes=(), lease_key="plain"))
    assert plain.grace_ms == 0
    connection, answer = plain.resume(1)
    assert refusal(answer)[0] == 46
    connection.close()
    plain.close()


def test_attached_comes_in_a_record(client: ByHand) -> None:
    length, flags, offset, received, data = client.record(client.control)
    assert (length, flags, offset, received) == (40, 0, 0, 0)
    assert data == encode_frame(Kind.HANDSHAKE, Handshake.ATTACHED)


def test_a_resume_begins_a_control_lane_that_was_not_attached(server: Server) -> None:
    """The ATTACH was lost with its connection: nothing was received on either side."""
    client = ByHand(server.tcp, attaches=False)
    liar, answer = client.resume(1, 40, Lane.CONTROL)
    status, sentence = refusal(answer)
    assert status != TRY_AGAIN
    assert "never sent" in sentence
    control, answer = client.resume(3, 0, Lane.CONTROL)
    assert resumed(answer) == 0
    assert client.record(control)[4] == encode_frame(Kind.HANDSHAKE, Handshake.ATTACHED)
    late, answer = client.resume(2, 0, Lane.CONTROL)
    assert refusal(answer)[0] == TRY_AGAIN
    client.attach(client.control)
    assert "already used" in refusal(frame(client.control))[1]
    end(client)
    for one in (liar, control, late):
        one.close()


def test_an_attach_that_is_replayed_after_a_restart_changes_nothing(tmp_path: Path) -> None:
    """The next server does not know whether the worker has the control lane; the worker does."""
    with Server("--state-dir", str(tmp_path)) as first:
        client = ByHand(first.tcp)
        assert client.record(client.control)[0] == 40  # ATTACHED
        assert first.process is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with Server("--state-dir", str(tmp_path)) as second:
            client.address = second.tcp
            replayed = connect(second.tcp)
            client.attach(replayed)
            assert is_closed(replayed)
            replayed.close()
            end(client)  # by BYE on the control lane, which the worker has still


def test_a_newer_connection_replaces_the_one_that_is_there(client: ByHand) -> None:
    first, answer = client.resume(5)
    assert resumed(answer) == 0
    assert is_closed(client.command)
    for old in (5, 4, 1):
        late, answer = client.resume(old)
        assert refusal(answer)[0] == TRY_AGAIN
        assert is_closed(late)
        late.close()
    second, answer = client.resume(6)
    assert resumed(answer) == 0
    assert is_closed(first)
    first.close()
    second.close()


def test_what_was_never_sent_cannot_have_been_received(client: ByHand) -> None:
    connection, answer = client.resume(1, received=1 << 40)
    status, sentence = refusal(answer)
    assert status != TRY_AGAIN
    assert "never sent" in sentence
    connection.close()


def test_what_was_not_received_comes_again(client: ByHand) -> None:
    assert client.record(client.control)[0] == 40
    for epoch, received in ((1, 0), (2, 13), (3, 40)):
        connection, answer = client.resume(epoch, received, Lane.CONTROL)
        assert resumed(answer) == 0
        if received < 40:
            length, _, offset, _, _ = client.record(connection)
            assert (length, offset) == (40 - received, received)
        connection.close()


def test_bytes_that_came_already_are_dropped(client: ByHand) -> None:
    """A message of the client is cut in the middle, and its first half is sent twice."""
    alive = encode_message(Control.KEEP_ALIVE)
    epochs = itertools.count(1)

    def has_half() -> bool:
        # A connection that is replaced may take with it what the worker has not read.
        connection, answer = client.resume(next(epochs), 40, Lane.CONTROL)
        there = resumed(answer)
        connection.sendall(RECORD.pack(40, 0, 0, 40) + alive[:20])
        connection.close()
        return there == 20

    wait_until(has_half)
    connection, answer = client.resume(next(epochs), 40, Lane.CONTROL)
    assert resumed(answer) == 20
    connection.sendall(RECORD.pack(40, 0, 0, 40) + alive)  # whole, and the worker is in step
    connection.sendall(RECORD.pack(40, 0, 40, 40) + alive)

    def has_both() -> bool:
        later, answer = client.resume(next(epochs), 40, Lane.CONTROL)
        there = resumed(answer)
        later.sendall((RECORD.pack(80, 0, 0, 40) + alive + alive)[: RECORD.size + 80])
        later.close()
        return there == 80

    wait_until(has_both)
    connection.close()


def test_a_secret_that_is_wrong_is_refused(client: ByHand) -> None:
    secret = client.welcome.secret
    for wrong in (bytes(32), secret[:-1] + bytes([secret[-1] ^ 1])):
        connection, answer = client.resume(1, secret=wrong)
        assert refusal(answer) == MISSING
        connection.close()
    connection, answer = client.resume(1, session=client.welcome.session + 999)
    assert refusal(answer) == MISSING
    connection.close()
    connection, answer = client.resume(1)  # its own session is untouched
    assert resumed(answer) == 0
    connection.close()


@pytest.mark.parametrize("head", [b"", b"RGPU", bytes(100), b"RGPU" + bytes(54), b"\xff" * 200])
def test_garbage_is_refused(server: Server, head: bytes) -> None:
    connection = connect(server.tcp)
    connection.sendall(encode_frame(Kind.HANDSHAKE, Handshake.RESUME, head))
    status, sentence = refusal(frame(connection))
    assert status == 999
    assert "RESUME does not decode" in sentence
    connection.close()


def test_bytes_that_are_no_records_end_the_session(server: Server) -> None:
    client = ByHand(server.tcp, HELLO._replace(lease_key="garbage"))
    client.command.sendall(b"\xff" * 64)
    wait_until(lambda: ended(client))
    client.close()
