"""Links that compress where that pays: the results are the same, and fewer bytes are sent."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.agent import GRPC, Agent
from helpers.figures import figures
from helpers.proxy import CuttingProxy
from helpers.server import Server, configured
from helpers.waiting import wait_until

from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import Kind, encode_frame
from transport.cut_programs import (
    ASYNC,
    DOWNLOAD,
    LAUNCHES,
    SYNCHRONISATIONS,
    UPLOAD,
    finish,
    go_on,
    running,
)
from transport.lanes import HELLO, RECORD, ByHand, end, ended, exactly, resumed

MIB = 1 << 20
# Far below what compression would not pay for, and far above what a test may last.
SLOW = 30e6
BLOCK = struct.Struct("<II")
PACKED = 1 << 31
COMPRESSED = HELLO._replace(
    lease_key="compressed",
    wishes=(Wish(WishKey.RESUMABLE, 1), Wish(WishKey.COMPRESSION, 1)),
)
# As activations are: mostly zeros, here and there a value.
SPARSE = """
size = {mib} << 20
data = bytearray(size)
data[::40] = os.urandom(len(data[::40]))
data = bytes(data)
place = cuda.alloc(size)
go()
cuda.upload(place, data)
print(cuda.download(place, size) == data)
"""
# Both ways at once, of data that compresses and does not.
MIXED_ASYNC = ASYNC.replace("os.urandom(size)", "(os.urandom(1 << 20) + bytes(1 << 20)) * 16")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    config = pki.config() + ("[sessions]\nresume_grace_seconds = 60\n[leases]\ngrace_seconds = 0\n")
    with Server(*GRPC, tls=config, RGPU_LOG="info") as one:
        yield one


def sizes(trace: Path) -> tuple[int, int, int, int]:
    """Returns the bytes of compressed blocks: sent and their compressed size, received and
    theirs.
    """
    line = next(x for x in trace.read_text().splitlines() if x.startswith("#compressed"))
    sent, into, received, out_of = map(int, line.split("\t")[1::2])
    return sent, into, received, out_of


def traced(address: str, body: str, trace: Path, **extra: str) -> tuple[int, int, int, int]:
    """Runs the program with compression allowed; returns `sizes` of its trace."""
    wish = {"RGPU_COMPRESSION": "1", "RGPU_TRACE": str(trace), **extra}
    with running(address, body, **wish) as client:
        go_on(client)
        assert finish(client, 120) == ("True\n", "")
    return sizes(trace)


@pytest.mark.measures  # how fast the link is, and how fast this machine compresses
@pytest.mark.parametrize("transport", ["tcp", "tls", "grpc"])
def test_sparse_data_is_compressed_on_a_slow_link(
    server: Server, tmp_path: Path, transport: str
) -> None:
    body, trace = SPARSE.format(mib=48), tmp_path / "trace"
    target = server.tcp if transport == "tcp" else server.address(transport)
    if transport == "grpc":
        target = server.grpc
    with CuttingProxy(target.removeprefix(f"{transport}:"), SLOW) as proxy:
        if transport == "grpc":
            with Agent(f"grpc:{proxy.address}") as agent:
                found = traced(agent.unix, body, trace, RGPU_RESUME="1")
        else:
            address = proxy.address if transport == "tcp" else f"{transport}:{proxy.address}"
            found = traced(address, body, trace)
    sent, into, received, out_of = found
    with figures():
        assert sent > 8 * MIB, found
        assert received > 8 * MIB, found
        assert into * 3 < sent, found
        assert out_of * 3 < received, found


def test_noise_goes_as_it_is(server: Server, tmp_path: Path) -> None:
    body = UPLOAD.replace("64 << 20", "32 << 20")
    with CuttingProxy(server.tcp, 4 * SLOW) as proxy:
        sent, _, received, _ = traced(proxy.address, body, tmp_path / "trace")
    assert (sent, received) == (0, 0)


def test_nothing_is_compressed_that_was_not_wished(server: Server, tmp_path: Path) -> None:
    for name, wish in (("never", {"RGPU_COMPRESSION": "0"}), ("auto", {"RGPU_COMPRESSION": ""})):
        trace = tmp_path / name
        with CuttingProxy(server.tcp, 4 * SLOW) as proxy:
            assert traced(proxy.address, SPARSE.format(mib=32), trace, **wish) == (0, 0, 0, 0)


def test_without_the_library_nothing_is_compressed(server: Server, tmp_path: Path) -> None:
    missing = {"RGPU_LIBZSTD": "/no/such/file", "RGPU_LOG": "off"}
    found = traced(server.tcp, SPARSE.format(mib=2), tmp_path / "trace", **missing)
    assert found == (0, 0, 0, 0)


def test_a_library_that_was_named_and_cannot_be_loaded_is_said(server: Server) -> None:
    wishes = {"RGPU_COMPRESSION": "1", "RGPU_LIBZSTD": "/no/such/file"}
    code, _, errors = clients.run(server.tcp, "cuda.open()", **wishes)
    assert code == 0
    sentence = (
        "rgpu shim: the session does not compress: zstd 1.4 or later cannot be loaded (/no/such"
    )
    assert errors.startswith(sentence)
    assert errors.count("\n") == 1


def test_a_server_may_refuse(tmp_path: Path) -> None:
    path = configured(tmp_path, compression="false")
    with Server("--config", path) as server:
        with CuttingProxy(server.tcp, 4 * SLOW) as proxy:
            found = traced(proxy.address, SPARSE.format(mib=32), tmp_path / "trace")
        assert found == (0, 0, 0, 0)
        client = ByHand(server.tcp, COMPRESSED)
        assert granted(client) == 0
        client.close()


def test_a_value_that_is_none_is_refused_by_name(server: Server) -> None:
    with pytest.raises(AssertionError, match="RGPU_COMPRESSION=yes is not 0 or 1"):
        traced(server.tcp, LAUNCHES, Path("/dev/null"), RGPU_COMPRESSION="yes")


@pytest.mark.parametrize(
    ("body", "rate", "most"),
    [
        (SPARSE.format(mib=48), SLOW, 1 << 20),
        (MIXED_ASYNC, 4 * SLOW, 8 << 20),
        (DOWNLOAD.replace("os.urandom(1 << 20)", "bytes(1 << 20)"), 4 * SLOW, 1 << 20),
        (LAUNCHES, 4 * SLOW, 200_000),
        (SYNCHRONISATIONS, 4 * SLOW, 20_000),
    ],
    ids=["sparse", "mixed", "zeros", "launches", "calls"],
)
def test_cuts_lose_nothing(
    server: Server, tmp_path: Path, body: str, rate: float, most: int
) -> None:
    dice = random.Random(body)
    trace = tmp_path / "trace"
    wish = {"RGPU_COMPRESSION": "1", "RGPU_TRACE": str(trace)}
    with CuttingProxy(server.tcp, rate) as proxy, running(proxy.address, body, **wish) as client:
        proxy.cut_after(*(dice.randrange(1, most) for _ in range(6)))
        assert finish(client, 120) == ("True\n", "")
        assert proxy.cuts >= 5
    if most >= 1 << 20:
        assert sum(sizes(trace)) > 0


def test_a_move_to_another_link_goes_on_in_blocks(server: Server, tmp_path: Path) -> None:
    body, trace = SPARSE.format(mib=48), tmp_path / "trace"
    wish = {"RGPU_COMPRESSION": "1", "RGPU_TRACE": str(trace)}
    with CuttingProxy(server.tcp, SLOW) as slow, CuttingProxy(server.tcp) as fast:
        paths = f"tcp:{fast.address};{server.unix}"
        with running(slow.address, body, RGPU_PATHS=paths, **wish) as client:
            slow.cut_after(12 * MIB, 2 * MIB)
            fast.cut_after(1 * MIB)
            assert finish(client, 120) == ("True\n", "")


def granted(client: ByHand) -> int:
    grants = client.welcome.grants
    return next((g.value for g in grants if g.key == WishKey.COMPRESSION), 0)


def test_compression_is_granted_with_resumable_only(server: Server) -> None:
    for wishes, expected in (
        (COMPRESSED.wishes, 1),
        ((Wish(WishKey.COMPRESSION, 1),), 0),
        ((Wish(WishKey.RESUMABLE, 1),), 0),
        ((Wish(WishKey.RESUMABLE, 1), Wish(WishKey.COMPRESSION, 2)), 0),
    ):
        client = ByHand(server.tcp, COMPRESSED._replace(lease_key="grants", wishes=wishes))
        assert granted(client) == expected, wishes
        client.close()


@pytest.fixture
def client(server: Server) -> Iterator[ByHand]:
    one = ByHand(server.tcp, COMPRESSED)
    assert granted(one) == 1
    yield one
    end(one)


def test_records_come_in_blocks_after_a_resume(client: ByHand) -> None:
    connection, answer = client.resume(1)
    assert resumed(answer) == 0
    # A frame that is none: the worker says so, in a record, in a block.
    nonsense = encode_frame(Kind.COMMAND, 0xFFFF, b"", seq=1)
    record = RECORD.pack(len(nonsense), 0, 0, 0) + nonsense
    for byte in record:  # in as many blocks as there are bytes
        connection.sendall(BLOCK.pack(1, 1) + bytes((byte,)))
    wire, plain = BLOCK.unpack(exactly(connection, BLOCK.size))
    assert wire == plain >= RECORD.size
    length, flags, offset, _ = RECORD.unpack(exactly(connection, RECORD.size))
    assert (flags, offset) == (0, 0)
    assert length > 0
    connection.close()


@pytest.mark.parametrize(
    "bad",
    [
        BLOCK.pack(0, 0),
        BLOCK.pack(1, 2) + b"x",
        BLOCK.pack(0xFFFFFFFF, 0xFFFFFFFF),
        BLOCK.pack(20, 0xFFFFFFFF) + bytes(20),
        BLOCK.pack(20, 1000 | PACKED) + bytes(20),
        # A frame that claims gigabytes, and one that does not end.
        BLOCK.pack(20, 1000 | PACKED)
        + struct.pack("<IBQ", 0xFD2FB528, 0xE0, 1 << 40)
        + bytes((0x03, 0x00, 0x80))
        + bytes(4),
        BLOCK.pack(14, 1000 | PACKED) + struct.pack("<IBB", 0xFD2FB528, 0, 0) + bytes(8),
        b"\xff" * 64,
    ],
    ids=["empty", "unequal", "huge", "bomb", "no frame", "liar", "endless", "ones"],
)
def test_what_is_no_block_ends_the_session_and_no_other(server: Server, bad: bytes) -> None:
    client = ByHand(server.tcp, COMPRESSED._replace(lease_key="hostile"))
    client.command.sendall(bad)
    with suppress(ConnectionResetError):
        while client.command.recv(4096):
            pass
    wait_until(lambda: ended(client))
    client.close()
    wait_until(lambda: any("not a block of a compressed stream" in line for line in server.log))


def test_a_block_that_does_not_end_holds_nobody_up(server: Server, tmp_path: Path) -> None:
    silent = ByHand(server.tcp, COMPRESSED._replace(lease_key="silent"))
    silent.command.sendall(BLOCK.pack(1000, 2000 | PACKED) + b"(\xb5/\xfd")
    assert traced(server.tcp, SPARSE.format(mib=1), tmp_path / "trace") is not None
    silent.close()
