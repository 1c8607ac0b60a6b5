"""The real responder on loopback: measured by real probes, and attacked."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from netprobe import prober
from netprobe.estimate import MIB
from netprobe.native import Line
from netprobe.prober import ProbeBudget, measure
from netprobe.respond import listen_on
from netprobe.survey import quick
from probe.conftest import Listen, Listening
from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.errors import ServerError
from rgpu_common.wire.frame import HEADER_BYTES, MAGIC, Flags, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.refused import decode_refused

REQUEST = encode_frame(Kind.HANDSHAKE, Handshake.PROBE, struct.pack("<IHH", MAGIC, 1, 0))
# For what a responder answers, also one that waits for a processor.
PATIENCE = 60.0
SMALL = ProbeBudget(seconds=0.05, bytes=2 * MIB, pings=10, timeout=PATIENCE)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No measurement here is given up, because no responder here is to be found slow."""
    monkeypatch.setattr(prober, "_LIMIT_SECONDS", PATIENCE)


def order(verb: int, piece: int = 0, size: int = 0) -> bytes:
    return encode_frame(
        Kind.HANDSHAKE, Handshake.PROBE, struct.pack("<IIQII", verb, piece, size, 0, 7)
    )


def connect(responder: Listening, first: bytes = b"", source: str = "127.0.0.1") -> socket.socket:
    where = ("127.0.0.1", responder.port)
    one = socket.create_connection(where, 10, source_address=(source, 0))
    one.sendall(first)
    return one


def answer(one: socket.socket) -> tuple[int, bytes] | None:
    """Opcode and head of the next frame; None: closed."""
    data = receive(one, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    header = parse_header(data)
    return header.opcode, receive(one, header.payload_bytes)


def receive(one: socket.socket, count: int) -> bytes:
    data = bytearray()
    try:
        while len(data) < count and (piece := one.recv(count - len(data))):
            data += piece
    except ConnectionResetError:
        pass
    return bytes(data)


def refusal(one: socket.socket) -> str:
    got = answer(one)
    assert got is not None
    assert got[0] == Handshake.REFUSED
    return decode_refused(got[1]).sentence


@pytest.mark.parametrize("kind", ["tcp", "unix", "shm"])
def test_a_path_is_measured(listen: Listen, kind: str) -> None:
    with listen() as responder:
        uri = str(getattr(responder, kind))
        said: list[str] = []
        path = measure(uri, SMALL, progress=said.append)
    assert path.works, path.error
    assert path.kind == kind
    assert path.round_trip is not None
    assert path.up is not None
    assert path.down is not None
    assert 0 < path.connect <= path.handshake
    assert 0 < path.round_trip.minimum <= path.round_trip.median <= path.round_trip.p99
    assert path.up.bytes_per_second > 0
    assert path.down.bytes_per_second > 0
    assert path.messages_per_second is not None
    assert path.messages_per_second > 0
    assert said == ["handshake", "round trip", "messages", "bandwidth up", "bandwidth down"]


def test_a_quick_measurement_is_quick(listen: Listen) -> None:
    with listen() as responder:
        dead = "tcp:127.0.0.1:1"
        uris = (responder.tcp, responder.unix, dead)
        paths = {path.uri: path for path in quick(uris, b"", PATIENCE)}
    assert not paths[dead].works
    for uri in (responder.tcp, responder.unix):
        up = paths[uri].up
        assert up is not None
        assert up.bytes <= 4 * MIB


def test_both_paths_lead_to_the_same_server(listen: Listen) -> None:
    with listen() as responder:
        with Line(responder.tcp, PATIENCE) as tcp, Line(responder.unix, PATIENCE) as unix:
            assert tcp.offer.server == unix.offer.server
            assert tcp.offer.endpoints == (responder.shm, responder.tcp, responder.unix)
        wrong = measure(responder.tcp, SMALL, server=b"x" * 16)
        (quickly,) = quick((responder.tcp,), b"x" * 16, PATIENCE)
    for one in (wrong, quickly):
        assert "another server" in one.error
        assert not one.works
        assert one.server == tcp.offer.server


def test_a_train_has_its_arrivals(listen: Listen) -> None:
    with listen() as responder, Line(responder.unix, PATIENCE) as line:
        for down in (False, True):
            train = line.train(MIB, down=down, seconds=10)
            assert train.bytes == MIB
            counts = [arrival.bytes for arrival in train.arrivals]
            times = [arrival.seconds for arrival in train.arrivals]
            assert counts == sorted(set(counts))
            assert counts[-1] == MIB
            assert times == sorted(times)
            assert times[-1] <= train.seconds
        assert line.count(1000, 64) > 0
        assert len(line.ping(5, 10)) == 5


def test_a_train_ends_with_its_time(listen: Listen) -> None:
    with listen() as responder, Line(responder.tcp, PATIENCE) as line:
        for down in (False, True):
            train = line.train(512 * MIB, down=down, seconds=0.001)
            assert 0 < train.bytes < 512 * MIB
        assert line.ping(1, 1)


def test_each_family_has_the_port_for_itself() -> None:
    """As of a server: 0.0.0.0 and [::] are two addresses."""
    with listen_on(TcpEndpoint("0.0.0.0", 0)) as four:
        port = four.getsockname()[1]
        with listen_on(TcpEndpoint("::", port)) as six:
            assert six.getsockname()[1] == port


def test_nobody_there_is_a_sentence() -> None:
    with pytest.raises(ServerError, match="nothing listens at"):
        Line("tcp:127.0.0.1:1")
    assert "no server listens at" in measure("unix:/nowhere", SMALL).error


# attacks


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n" + bytes(100),
        os.urandom(4096),
        bytes(4096),
        b"\xff" * 4096,
        encode_frame(Kind.HANDSHAKE, Handshake.PROBE, b"short"),
        encode_frame(Kind.HANDSHAKE, Handshake.PROBE, struct.pack("<IHH", MAGIC, 0, 0)),
        encode_frame(Kind.HANDSHAKE, Handshake.HELLO, bytes(40)),
        encode_frame(Kind.COMMAND, 0x301, bytes(100), bytes(1000)),
        REQUEST + order(9),
        REQUEST + order(2, 4096, 1 << 40),
        REQUEST + order(3, 1, 100),
        REQUEST + order(4, 0, 1 << 60),
        REQUEST + os.urandom(4096),
    ],
    ids=range(13),
)
def test_garbage_ends_its_connection_and_nothing_else(listen: Listen, garbage: bytes) -> None:
    with listen("idle-ms", "20000") as responder:
        with Line(responder.tcp, PATIENCE) as line:
            with connect(responder, garbage) as bad:
                while answer(bad) is not None:
                    pass
            assert line.ping(1, 1)
        assert measure(responder.unix, SMALL).works


def test_silence_is_given_up(listen: Listen) -> None:
    with listen("idle-ms", "100") as responder:
        for first in (b"", REQUEST[:17], REQUEST, REQUEST + order(2, 4096, 1 << 20)):
            with connect(responder, first) as quiet:
                while answer(quiet) is not None:
                    pass


def test_a_slow_trickle_is_given_up(listen: Listen) -> None:
    """Each byte is in time; the whole is not."""
    with listen("idle-ms", "1000", "time-ms", "400") as responder:
        slow = connect(responder, REQUEST + order(2, 4096, 1 << 20))
        assert answer(slow) is not None
        slow.settimeout(0.02)
        started = time.monotonic()
        data = encode_frame(Kind.HANDSHAKE, 10, b"", bytes(4096), flags=Flags.MORE)
        ended = False
        for byte in data:
            try:
                slow.send(bytes((byte,)))
                ended = not slow.recv(1)
            except TimeoutError:
                continue
            except OSError:
                ended = True
            if ended:
                break
        assert ended
        assert time.monotonic() - started < 40  # all bytes would take twice as long
        slow.close()


def test_who_reads_nothing_is_given_up(listen: Listen) -> None:
    with listen("idle-ms", "100") as responder:
        with connect(responder, REQUEST + order(3, 1 << 18, 512 * MIB)) as lazy:
            wait_until(lambda: threads(responder) == 1)
            while lazy.recv(1 << 20):
                pass
        assert measure(responder.tcp, SMALL).works


def threads(responder: Listening) -> int:
    """Of the C++ program, which is the only child."""
    children = Path(f"/proc/{responder.process.pid}/task/{responder.process.pid}/children")
    (child,) = children.read_text().split()
    return len(list(Path(f"/proc/{child}/task").iterdir()))


def test_so_many_at_a_time_and_no_more(listen: Listen) -> None:
    with listen("places", "3", "places-per-peer", "2") as responder:
        with Line(responder.tcp, PATIENCE), Line(responder.tcp, PATIENCE):
            with connect(responder, REQUEST) as third:
                assert "busy with others" in refusal(third)
            with Line(responder.unix, PATIENCE):  # another peer
                pass
        # Their places are free when their ends have been noticed.
        wait_until(lambda: measure(responder.tcp, SMALL).works)


def test_the_silent_make_room(listen: Listen) -> None:
    with listen("places", "2", "places-per-peer", "8", "idle-ms", "60000") as responder:
        silent = [connect(responder) for _ in range(2)]
        wait_until(lambda: threads(responder) == 3)
        with Line(responder.tcp, PATIENCE) as line:
            assert line.ping(1, 1)
        for one in silent:
            one.close()


def test_two_peers_do_not_keep_out_a_third(listen: Listen) -> None:
    with listen("places", "4", "places-per-peer", "2", "idle-ms", "60000") as responder:
        crowd = []
        for i in range(4):  # one after the other, so that their order is known
            crowd.append(connect(responder, REQUEST, f"127.0.0.{2 + i // 2}"))
            assert answer(crowd[-1])
        with Line(responder.tcp, PATIENCE) as line:
            assert line.ping(1, 1)
            with connect(responder, REQUEST, "127.0.0.4") as fourth:
                assert answer(fourth)
            assert line.ping(1, 1)
        assert receive(crowd[0], 1) == b""
        for one in crowd:
            one.close()


def test_too_many_probes_of_one_peer(listen: Listen) -> None:
    with listen("burst", "5") as responder, contextlib.ExitStack() as stack:
        # All at once: 20 a second may come for ever, which is more than one after the other on a
        # busy machine.
        crowd = [stack.enter_context(connect(responder, REQUEST)) for _ in range(60)]
        answers = [answer(one) for one in crowd]
        assert [got[0] for got in answers[:5] if got] == [Handshake.PROBE] * 5
        refused = [got[1] for got in answers if got and got[0] == Handshake.REFUSED]
        assert refused
        assert {"probed too often" in decode_refused(head).sentence for head in refused} == {True}
        Line(responder.unix, PATIENCE).close()


def take_trains(responder: Listening, source: str) -> int:
    """Asks for trains of 16 MiB and takes them, until the responder refuses one; returns bytes."""
    taken = 0
    with connect(responder, REQUEST, source) as one:
        assert answer(one)
        while True:
            one.sendall(order(3, 1 << 20, 16 * MIB))
            header = parse_header(receive(one, HEADER_BYTES))
            while header.opcode == Handshake.PROBE:
                taken += len(receive(one, header.bulk_bytes))
                if not header.flags & Flags.MORE:
                    break
                header = parse_header(receive(one, HEADER_BYTES))
            if header.opcode == Handshake.REFUSED:
                return taken


def test_many_peers_together_have_a_bound(listen: Listen) -> None:
    rate = 16 * MIB
    with listen("bytes-per-second", str(rate)) as responder:
        started = time.monotonic()
        taken = sum(take_trains(responder, f"127.0.1.{n}") for n in range(1, 13))
        seconds = time.monotonic() - started
    # Each of the twelve may have 4 seconds of the rate at once, all together 16.
    assert 12 * rate < taken <= 16 * rate + rate * seconds


def test_a_crowd_of_strangers(listen: Listen) -> None:
    with listen("burst", "100000") as responder:
        crowd = [connect(responder, os.urandom(64)) for _ in range(200)]
        for one in crowd:
            one.close()
        wait_until(lambda: measure(responder.unix, SMALL).works)
        wait_until(lambda: threads(responder) == 1)
