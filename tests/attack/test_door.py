"""Strangers at the front door: silence, floods, nonsense, stolen sessions."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from attack.door import BAND, Lane
from rgpu_common.wire.attach import Attach, encode_attach
from rgpu_common.wire.codec import encode_command
from rgpu_common.wire.frame import Kind, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello, encode_hello
from rgpu_common.wire.welcome import Welcome

INIT = 'print(cuda.result("cuInit", 0))'
NONSENSE = encode_frame(Kind.HANDSHAKE, Handshake.HELLO, b"\xff" * 100)


def descriptors(server: Server) -> int:
    assert server.process is not None
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def served(server: Server) -> None:
    code, output, errors = clients.run(server.tcp, INIT)
    assert (code, output) == (0, "0\n"), errors


def test_silent_connections_keep_nobody_out(server: Server) -> None:
    lanes = [Lane(server.tcp) for _ in range(200)]
    served(server)
    for lane in lanes:
        lane.close()


def test_a_connection_that_dribbles_keeps_nobody_out(server: Server) -> None:
    whole = encode_hello(Hello())
    lanes = [Lane(server.tcp) for _ in range(150)]
    for lane in lanes:
        lane.send(whole[: len(whole) // 2])
    served(server)
    for lane in lanes:
        lane.close()


def test_a_flood_of_nonsense_that_nobody_reads_leaves_nothing(server: Server) -> None:
    served(server)
    before = descriptors(server)
    lanes = [Lane(server.tcp) for _ in range(300)]
    for lane in lanes:
        lane.send(NONSENSE)
    served(server)
    for lane in lanes:
        lane.close()
    wait_until(lambda: descriptors(server) <= before + 8)


def test_idle_api_connections_do_not_keep_sessions_out(server: Server) -> None:
    lanes = [Lane(server.tcp) for _ in range(280)]
    for lane in lanes:
        lane.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    served(server)
    for lane in lanes:
        lane.close()


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_bytes": (1 << 64) - 1},
        {"memory_bytes": 1 << 63},
        {"device": 0x7FFFFFFF},
        {"device": 15},
        {"share_request_ppm": 0xFFFFFFFF},
        {"share_request_ppm": 900_000, "share_limit_ppm": 1},
        {"resume_session": (1 << 64) - 1, "resume_seq": (1 << 64) - 1},
        {"major": 0xFFFF},
        {"device_bands": (type(BAND)(0, 1 << 63),)},
        {"device_bands": (type(BAND)(0x1234, 4096),)},
        {"device_bands": (type(BAND)(1 << 62, 1 << 62),) * 64},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_an_absurd_wish_is_refused_with_a_sentence(
    server: Server, fields: dict[str, object]
) -> None:
    with Lane(server.tcp) as lane:
        answer = lane.hello(**fields)
        assert isinstance(answer, tuple), answer
        status, refused = answer
        assert status in (46, 803, 999)
        assert len(refused.sentence) > 20
        assert refused.sentence.isprintable()


@pytest.mark.parametrize(
    "fields",
    [
        {"tenant": "ten\u00e4nt \u79df\u6237 \ue000 \U0001f600" * 6},
        {"lease_key": "../../../../etc/passwd"},
        {"container": "a'; DROP TABLE leases; --", "program": "%s%n{0}" * 500},
    ],
    ids=lambda fields: " ".join(fields),
)
def test_odd_names_open_sessions_of_their_own(server: Server, fields: dict[str, object]) -> None:
    with Lane(server.tcp) as lane:
        assert isinstance(lane.hello(memory_bytes=1 << 20, **fields), Welcome)
    assert "\ue000" not in "".join(server.log)


@pytest.mark.parametrize(
    "text",
    [
        b"\xed\xa0\x80",
        b"\xff\xfe",
        b"a\nb",
        b"a\x1b[2J",
        b"a\0b",
        "a\u202eb".encode(),
        "a\u2028b".encode(),
    ],
)
def test_a_greeting_with_a_string_that_is_none_is_refused(server: Server, text: bytes) -> None:
    good = encode_hello(Hello(tenant="TENANT"))[40:]
    old = struct.pack("<I", 6) + b"TENANT"
    assert good.count(old) == 1
    head = good.replace(old, struct.pack("<I", len(text)) + text)
    with Lane(server.tcp) as lane:
        lane.send(encode_frame(Kind.HANDSHAKE, Handshake.HELLO, head))
        answer = lane.answer()
        assert isinstance(answer, tuple)
        assert answer[0] == 999


def test_a_control_lane_is_not_stolen(server: Server) -> None:
    with Lane(server.tcp) as lane, Lane(server.tcp) as other:
        mine, theirs = lane.hello(memory_bytes=1 << 20), other.hello(memory_bytes=1 << 20)
        assert isinstance(mine, Welcome)
        assert isinstance(theirs, Welcome)
        for session, secret in (
            (theirs.session, mine.secret),
            (mine.session, bytes(32)),
            ((1 << 64) - 1, bytes(32)),
            (0, mine.secret),
        ):
            with Lane(server.tcp) as thief:
                thief.send(encode_attach(Attach(session, secret)))
                answer = thief.answer()
                assert isinstance(answer, tuple)
                assert answer[0] == 46
                assert len(answer[1].sentence) > 20
        with Lane(server.tcp) as control, Lane(server.tcp) as second:
            control.send(encode_attach(Attach(mine.session, mine.secret)))
            attached = control.frame()
            assert attached is not None
            assert attached.header.opcode == Handshake.ATTACHED
            second.send(encode_attach(Attach(mine.session, mine.secret)))
            assert isinstance(second.answer(), tuple)


def test_greetings_that_hang_up_at_once_leave_no_session(server: Server) -> None:
    greeting = encode_hello(Hello(device_bands=(BAND,), memory_bytes=1 << 20))
    for _ in range(12):
        with Lane(server.tcp) as lane:
            lane.send(greeting)
    # Workers with sanitizers are slow to start and to end. Those that were started for sessions
    # that have left stay for the next sessions.
    wait_until(lambda: not any(serving(pid) for pid in server.children()))
    wait_until(lambda: "no leases and no sessions" in server.sessions())
    served(server)


@pytest.mark.parametrize("end", ["half closed", "reset", "no control lane"])
def test_a_session_ends_however_its_connection_does(server: Server, end: str) -> None:
    with Lane(server.tcp) as lane, Lane(server.tcp) as control:
        welcome = lane.hello(memory_bytes=1 << 20, lease_key=end)
        assert isinstance(welcome, Welcome)
        if end != "no control lane":
            control.send(encode_attach(Attach(welcome.session, welcome.secret)))
            assert control.frame() is not None
        if end == "half closed":
            lane.socket.shutdown(socket.SHUT_WR)
            assert lane.frame() is None
        else:
            hard = struct.pack("ii", end == "reset", 0)
            lane.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, hard)
            lane.close()
        wait_until(lambda: not any(serving(pid) for pid in server.children()))


def test_what_rides_behind_the_greeting_is_held_to_the_rules(server: Server) -> None:
    greeting = encode_hello(Hello(device_bands=(BAND,), memory_bytes=1 << 20))
    with Lane(server.tcp) as lane:
        lane.send(greeting + encode_command("rgpuPing", {"echo": 4}, seq=1) + b"\xff" * 4000)
        frames = [lane.frame() for _ in range(3)]
        kinds = [frame.header.kind for frame in frames if frame is not None]
        assert kinds == [Kind.HANDSHAKE, Kind.REPLY, Kind.NOTICE]
        assert lane.frame() is None


def serving(pid: int) -> bool:
    """Whether a worker has a session: then it has threads."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1
    except OSError:
        return False
