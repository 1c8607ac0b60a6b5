"""The compiler process over its socket: messages, refusals and connections."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.waiting import wait_until
from ptx.compiling import (
    KERNEL,
    Accepting,
    Client,
    big_module,
    kernels,
    send_lower,
    start,
)
from ptx.harness import HEADER as PTX

from rgpu_emu.compile_protocol import HEADER, LINK, LINKED, LOAD
from rgpu_emu.lower.abi import KERNEL_ABI


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    ours, theirs = socket.socketpair()
    process = start(tmp_path, "--fd", theirs)
    theirs.close()
    yield Client(ours)
    ours.close()
    assert process.wait(30) == 0


def test_load_tells_entries_and_globals(client: Client) -> None:
    result, log, key, reader = client.load(KERNEL)
    assert (result, log, len(key)) == (0, "", 32)
    assert [reader.u32() for _ in range(3)] == [1, 2, 0]
    assert reader.data() == b"add_one"
    assert struct.unpack("<4I", reader.data()) == (0, 8, 8, 4)
    total, shared, local, threads, version, target, _, const = (reader.u32() for _ in range(8))
    assert (total, shared, local, threads, version, target, const) == (12, 0, 0, 0, 80, 80, 16)
    assert (reader.u32(), reader.data()) == (0, b"")
    assert reader.data() == b"counter"
    assert struct.unpack("<IQII", reader.take(20)) == (1, 4, 4, 0)
    assert (reader.data(), reader.data()) == (struct.pack("<I", 7).rstrip(b"\0"), b"")
    assert reader.data() == b"table"
    assert struct.unpack("<IQII", reader.take(20)) == (2, 16, 8, 1)
    assert (reader.data(), reader.data()) == (b"\1\2\3", b"")
    reader.end()


def test_lower_gives_an_object(client: Client) -> None:
    _, _, key, _ = client.load(KERNEL)
    result, log, reader = client.lower(key, "add_one")
    assert (result, log) == (0, "")
    assert [reader.u32() for _ in range(5)] == [KERNEL_ABI, 0, 0, 0, 0]
    assert reader.data()[:4] == b"\x7fELF"
    assert reader.u32() == 0
    reader.end()


def test_refusals_keep_the_connection(client: Client) -> None:
    result, log, _, _ = client.load(
        PTX + ".entry k() { tex.2d.v4.f32.s32 {a,b,c,d}, [t, {x, y}]; ret; }"
    )
    assert result == 801
    assert "tex.2d.v4.f32.s32" in log
    result, log, _, _ = client.load(PTX + ".entry k()\n{\n  add.u32 a b;\n}")
    assert result == 218
    assert log.startswith("line 6: ")
    assert client.load(".version 10.0\n.target sm_80\n")[0] == 222
    assert client.load("\x7fELF....")[0] == 209
    assert client.lower(b"x" * 32, "k")[0] == 500
    _, _, key, _ = client.load(KERNEL)
    assert client.lower(key, "other")[0] == 500
    assert client.lower(key, "add_one")[0] == 0


GOOD = ".visible .entry good(.param .u64 p) { ret; }\n"


def test_an_unknown_instruction_refuses_its_kernel_alone(client: Client) -> None:
    bad = ".visible .entry bad(.param .u64 p)\n{\n  .reg .b32 %r<3>;\n  frobnicate.b32 %r1, %r2;\n  ret;\n}\n"
    result, log, key, reader = client.load(PTX + GOOD + bad)
    sentence = (
        "line 8: instruction 'frobnicate.b32' is not in the emulated device's instruction table, "
        "so the kernel 'bad' is refused"
    )
    assert (result, log) == (0, f"warning: {sentence}\n")
    assert [reader.u32() for _ in range(3)] == [2, 0, 0]
    refusals = {}
    for _ in range(2):
        name, _, _ = reader.data(), reader.data(), reader.take(32)
        refusals[name] = (reader.u32(), reader.data().decode())
    assert refusals == {b"good": (0, ""), b"bad": (801, sentence)}
    assert client.lower(key, "good")[0] == 0
    assert client.lower(key, "bad")[:2] == (801, sentence)


def test_link_answers(client: Client) -> None:
    text = KERNEL.encode()
    kind, reader = client.ask(LINK, struct.pack("<II", 1, len(text)) + text)
    assert (kind, reader.u32(), reader.data()) == (LINKED, 0, b"")


def test_a_damaged_cache_file_is_not_used(tmp_path: Path, client: Client) -> None:
    _, _, key, _ = client.load(KERNEL)
    assert client.lower(key, "add_one")[0] == 0
    for path in tmp_path.rglob("*.obj"):
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    result, _, reader = client.lower(key, "add_one")
    reader.take(20)
    assert (result, reader.data()[:4]) == (0, b"\x7fELF")


def test_sessions_arrive_by_descriptor_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        first, second = compiler.connect(), compiler.connect()
        _, _, key, _ = first.load(KERNEL)
        first.sock.sendall(b"garbage that is no message header")
        assert second.load(KERNEL)[2] == key
        assert second.lower(key, "add_one")[0] == 0
        with pytest.raises(ConnectionResetError):
            first.answer()
    assert len(list((tmp_path / "tenant").iterdir())) == 2


def test_long_messages_come_from_one_session_at_a_time_and_none_blocks_the_others(
    tmp_path: Path,
) -> None:
    """One session starts a message of 200 MB and stops. Of other long messages only the first bytes
    are read meanwhile.
    """
    with Accepting(tmp_path, "--wall-seconds", "5") as compiler:
        silent, other = compiler.connect(), compiler.connect()
        silent.sock.sendall(HEADER.pack(LOAD, 0, 200 << 20) + bytes(1 << 20))
        assert other.load(KERNEL)[0] == 0, "short messages need no turn"
        text = kernels(1) + "// " + "x" * (1 << 20) + "\n"
        assert other.load(text)[0] == 0
        with pytest.raises(ConnectionResetError):
            silent.answer()


def test_garbage_behind_a_request_ends_its_connection_alone(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        bad, good = compiler.connect(), compiler.connect()
        send_lower(bad, bad.load(big_module())[2])
        with contextlib.suppress(OSError):
            bad.sock.sendall(b"\xff" * (300 << 10))
        with pytest.raises(ConnectionResetError):
            bad.answer()
        wait_until(lambda: not compiler.jobs())
        assert good.load(KERNEL)[0] == 0
