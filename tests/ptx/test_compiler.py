"""The compiler process over its socket."""

from __future__ import annotations

import array
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ptx.harness import HEADER as PTX

from rgpu_emu.compile_protocol import HEADER, LINK, LINKED, LOAD, LOADED, LOWER, LOWERED, Reader

KERNEL = (
    PTX
    + """
.global .align 4 .u32 counter = 7;
.visible .const .align 8 .b8 table[16] = {1, 2, 3};
.visible .entry add_one(.param .u64 p, .param .u32 n)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    add.u32 %r2, %r1, 1;
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
)


class Client:
    """One connection to a compiler."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(60)

    def ask(self, kind: int, body: bytes) -> tuple[int, Reader]:
        self.sock.sendall(HEADER.pack(kind, 0, len(body)) + body)
        return self.answer()

    def answer(self) -> tuple[int, Reader]:
        kind, _, size = HEADER.unpack(self._take(HEADER.size))
        return kind, Reader(self._take(size))

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def load(self, *inputs: str) -> tuple[int, str, bytes, Reader]:
        body = struct.pack("<I", len(inputs))
        for text in inputs:
            body += struct.pack("<I", len(text)) + text.encode()
        kind, reader = self.ask(LOAD, body)
        assert kind == LOADED
        return reader.u32(), reader.data().decode(), reader.data(), reader

    def lower(self, key: bytes, name: str) -> tuple[int, str, Reader]:
        body = struct.pack("<I", len(key)) + key + struct.pack("<I", len(name)) + name.encode()
        kind, reader = self.ask(LOWER, body)
        assert kind == LOWERED
        return reader.u32(), reader.data().decode(), reader


def start(cache: Path | None, flag: str, sock: socket.socket) -> subprocess.Popen[bytes]:
    environment = {k: v for k, v in os.environ.items() if k != "RGPU_EMU_CACHE"}
    if cache is not None:
        environment["RGPU_EMU_CACHE"] = str(cache)
    command = [sys.executable, "-m", "rgpu_emu.compiler", flag, str(sock.fileno())]
    return subprocess.Popen(command, pass_fds=[sock.fileno()], env=environment)


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
    assert [reader.u32() for _ in range(5)] == [1, 0, 0, 0, 0]
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


def test_link_answers(client: Client) -> None:
    text = KERNEL.encode()
    kind, reader = client.ask(LINK, struct.pack("<II", 1, len(text)) + text)
    assert (kind, reader.u32(), reader.data()) == (LINKED, 0, b"")


def test_the_second_process_finds_the_cache(tmp_path: Path) -> None:
    replies = []
    for _ in range(2):
        ours, theirs = socket.socketpair()
        process = start(tmp_path, "--fd", theirs)
        theirs.close()
        client = Client(ours)
        _, _, key, _ = client.load(KERNEL)
        replies.append(client.lower(key, "add_one")[2].take(20))
        ours.close()
        assert process.wait(30) == 0
    files = sorted(p.suffix for p in tmp_path.rglob("*") if p.is_file())
    assert replies[0] == replies[1]
    assert files == [".load", ".obj"]


def test_a_damaged_cache_file_is_not_used(tmp_path: Path, client: Client) -> None:
    _, _, key, _ = client.load(KERNEL)
    assert client.lower(key, "add_one")[0] == 0
    for path in tmp_path.rglob("*.obj"):
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    result, _, reader = client.lower(key, "add_one")
    reader.take(20)
    assert (result, reader.data()[:4]) == (0, b"\x7fELF")


def test_sessions_arrive_by_descriptor_and_do_not_disturb_each_other(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = start(tmp_path, "--accept-fd", theirs)
    theirs.close()
    clients = []
    for name in ("tenant-a", "../b"):
        mine, yours = socket.socketpair()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [yours.fileno()]))]
        ours.sendmsg([name.encode()], rights)
        yours.close()
        clients.append(Client(mine))
    first, second = clients
    _, _, key, _ = first.load(KERNEL)
    first.sock.sendall(b"garbage that is no message header")
    assert second.load(KERNEL)[2] == key
    assert second.lower(key, "add_one")[0] == 0
    with pytest.raises(ConnectionResetError):
        first.answer()
    assert min(p.name for p in tmp_path.iterdir()).startswith("n-")
    first.sock.close()
    second.sock.close()
    ours.close()
    assert process.wait(30) == 0


def test_a_killed_request_is_answered(tmp_path: Path) -> None:
    """A child that dies (as by its rlimits) is a refusal, not the end."""
    ours, theirs = socket.socketpair()
    process = start(None, "--fd", theirs)
    theirs.close()
    client = Client(ours)
    client.load(KERNEL)
    lines = "".join(
        f"    fma.rn.f64 %d{n % 7}, %d{n % 5}, %d{n % 3}, %d1;\n" for n in range(150_000)
    )
    big = PTX + ".entry k()\n{\n .reg .f64 %d<8>;\n" + lines + " ret;\n}\n"
    body = struct.pack("<II", 1, len(big)) + big.encode()
    ours.sendall(HEADER.pack(LOAD, 0, len(body)) + body)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while not children.read_text().split():
        assert process.poll() is None
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    kind, reader = client.answer()
    assert (kind, reader.u32()) == (LOADED, 801)
    assert client.load(KERNEL)[0] == 0
    ours.close()
    assert process.wait(30) == 0


def test_a_machine_without_processes_is_a_refusal() -> None:
    """fork fails: the request is refused with a sentence, the connection stays."""
    ours, theirs = socket.socketpair()
    process = start(None, "--fd", theirs)
    theirs.close()
    client = Client(ours)
    assert client.load(KERNEL)[0] == 0
    limits = resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (0, 4096))
    result, log, _, _ = client.load(KERNEL + "\n")
    assert (result, "no process for the compiler" in log) == (2, True)
    resource.prlimit(
        process.pid, resource.RLIMIT_NOFILE, limits if limits[1] <= 4096 else (4096, 4096)
    )
    assert client.load(KERNEL + "\n\n")[0] == 0
    ours.close()
    assert process.wait(30) == 0
