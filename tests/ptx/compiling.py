"""A compiler process, and what tests ask of it over its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ptx.harness import HEADER as PTX
from typing_extensions import Self

from rgpu_common.wire.compiler import (
    HEAD_BYTES,
    Load,
    Loaded,
    Lower,
    Lowered,
    MessageType,
    decode_head,
    decode_loaded,
    decode_lowered,
    encode_load,
    encode_lower,
)
from rgpu_common.wire.worker import Ready, decode_from_worker
from rgpu_emu.compile_cache import open_folder
from rgpu_emu.compile_sandbox import own_user

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
    """A connection to a compiler."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        sock.settimeout(60)

    def ask(self, message: bytes, kind: MessageType) -> bytes:
        """Sends a request and returns the body of its answer, which must be of this kind."""
        self.sock.sendall(message)
        return self.answer(kind)

    def answer(self, kind: MessageType) -> bytes:
        head = decode_head(self._take(HEAD_BYTES))
        assert head.message is kind
        return self._take(head.body_bytes)

    def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def load(self, *inputs: str) -> Loaded:
        request = encode_load(Load(tuple(text.encode() for text in inputs)))
        return decode_loaded(self.ask(request, MessageType.LOADED))

    def lower(self, key: bytes, name: str) -> Lowered:
        return decode_lowered(self.ask(encode_lower(Lower(key, name)), MessageType.LOWERED))


def start(
    cache: Path | None,
    flag: str,
    sock: socket.socket,
    *options: str,
    program: tuple[str, ...] = ("-m", "rgpu_emu.compiler"),
) -> subprocess.Popen[bytes]:
    """A process of the compiler; `program` is what Python runs in its place."""
    environment = {k: v for k, v in os.environ.items() if k != "RGPU_EMU_CACHE"}
    if cache is not None:
        environment["RGPU_EMU_CACHE"] = str(cache)
    command = [sys.executable, *program, flag, str(sock.fileno()), *options]
    return subprocess.Popen(command, pass_fds=[sock.fileno()], env=environment, cwd="/")


class Accepting:
    """A compiler as the daemon starts it: it gets a tenant's sessions and folder by descriptor."""

    def __init__(self, folder: Path, *options: str, **how: tuple[str, ...]) -> None:
        self.accept, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = start(None, "--accept-fd", theirs, *options, **how)
        theirs.close()
        self.accept.settimeout(60)
        message = decode_from_worker(self.accept.recv(65536))
        assert isinstance(message, Ready)
        self.report = message.report
        self._folder: Path | None = folder
        self.clients: list[Client] = []

    def connect(self, debt: float = 0.0) -> Client:
        mine, yours = socket.socketpair()
        passed = [yours.fileno()]
        if self._folder is not None:
            passed.append(open_folder(self._folder, "tenant", own_user(self.process.pid)))
        socket.send_fds(self.accept, [f"{debt}".encode()], passed)
        yours.close()
        if self._folder is not None:
            os.close(passed[1])
            self._folder = None
        self.clients.append(Client(mine))
        return self.clients[-1]

    def jobs(self) -> list[int]:
        """Processes of the compiler's jobs."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self.clients:
            client.sock.close()
        self.accept.close()
        assert self.process.wait(30) == 0


def kernels(count: int) -> str:
    """A module of so many kernels, each a little different."""
    return PTX + "".join(
        f".visible .entry k{n}(.param .u64 p)\n{{ .reg .b64 %a; .reg .b32 %r<2>;"
        f" ld.param.u64 %a, [p]; ld.global.u32 %r1, [%a+{4 * n}]; st.global.u32 [%a], %r1; ret; }}\n"
        for n in range(count)
    )


def lowered(client: Client, key: bytes, name: str) -> bytes:
    answer = client.lower(key, name)
    assert (answer.result, answer.log) == (0, "")
    return answer.object


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def big_module() -> str:
    lines = "".join(
        f"    fma.rn.f64 %d{n % 7}, %d{n % 5}, %d{n % 3}, %d1;\n" for n in range(150_000)
    )
    return PTX + ".entry k()\n{\n .reg .f64 %d<8>;\n" + lines + " ret;\n}\n"


def send_lower(client: Client, key: bytes) -> None:
    client.sock.sendall(encode_lower(Lower(key, "k")))
