"""A node that puts what a terminal acts on into every text that it sends: escape sequences that
clear it, color it, or change its title, and characters that hide or reorder what is beside them.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
from arrays.test_session import Plain
from helpers import clients
from helpers.array_session import OpenGate
from helpers.command import run_rgpu_plain
from helpers.serving import serving
from shim.fake_server import Answer, FakeServer, reply

from rgpu_common.arrays.line import Line, LineError
from rgpu_common.arrays.seams import Seam
from rgpu_common.wire.codec import Value
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import Frame, Kind, encode_frame
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import Hello
from rgpu_common.wire.messages import Notice, encode_message
from rgpu_common.wire.scalars import Writer
from rgpu_common.wire.status import CUDA_ERROR_UNKNOWN
from rgpu_common.wire.welcome import Welcome, put_welcome
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.library import Operation

EVIL = "fine\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202eab\u2066cd\u200b\u2028\ufeff\xad\U000e0041"
TAME = "fine?[2J?]0;owned??31m??ab?cd?????"
ARRAYS = """
import rgpu_client.cupy as cp
print(cp.cuda.runtime.getDeviceProperties(0)["name"].decode())
try:
    cp.ones(3).get()
except Exception as error:
    print(type(error).__name__, error)
cp.ones(4).get()
"""
DRIVER = """
import ctypes
name = ctypes.create_string_buffer(256)
cuda.open()
cuda("cuDeviceGetName", name, 256, 0)
print(name.value.decode(errors="replace"))
address = cuda.alloc(64)
cuda.memory()
"""


def harmful(text: str) -> set[str]:
    """Returns the characters of a program's output that a terminal acts on or does not show, but for
    those of plain text.
    """
    return {c for c in text if unicodedata.category(c) in {"Cc", "Cf", "Zl", "Zp"}} - {"\n", "\t"}


def failing(*_: Any) -> Any:
    raise type(EVIL, (Exception,), {"__module__": EVIL})(EVIL)


class Evil(Plain):
    """A library whose every text is evil. It computes nothing."""

    name = version = EVIL

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        return Operation(failing)

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        return {"device": [EVIL, 8, 0, 1], "version": [EVIL, EVIL]}.get(question, [0, 0, 1 << 30])


def serve_arrays(connection: socket.socket, note: str) -> None:
    """Opens a session at the array seam, and serves it."""
    line = Line.adopted(connection.detach())
    grants = (Wish(WishKey.SEAM, int(Seam.CUPY)), Wish(WishKey.MARKS, 1))
    welcome = Welcome(session=1, release=note, memory_limit_bytes=1 << 30, note=note, grants=grants)
    with contextlib.suppress(LineError):
        line.next()
        line.send(Kind.HANDSHAKE, Handshake.WELCOME, put_welcome(welcome))
        Engine(line, Evil(), OpenGate()).serve()
    line.close()


def refuse(connection: socket.socket) -> None:
    """Refuses whoever greets, in a sentence that no server of ours could send."""
    head = Writer()
    head.put_text(EVIL)
    connection.recv(1 << 16)
    connection.sendall(
        encode_frame(Kind.HANDSHAKE, Handshake.REFUSED, head.take(), status=CUDA_ERROR_UNKNOWN)
    )
    # Until the client has read it.
    connection.recv(1)


def run_arrays(address: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ARRAYS)], env=clients.environment(address), cwd="/",
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("note", ["numpy", EVIL], ids=["answers", "greets"])
def test_an_array_program_prints_nothing_that_a_terminal_acts_on(note: str) -> None:
    with serving(partial(serve_arrays, note=note)) as address:
        done = run_arrays(address)
    said = done.stdout + done.stderr
    assert done.returncode != 0
    if note != EVIL:
        # The name, the caught error, and the error that ended the program.
        assert said.count(TAME) >= 3, said
    assert harmful(said) == set()


class EvilServer(FakeServer):
    """Evil at the driver seam. where: in what it sends."""

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(self._script)

    def _welcome(self, hello: Hello) -> Welcome:
        welcome = super()._welcome(hello)
        if self.where == "name":
            return welcome._replace(devices=(welcome.devices[0]._replace(name=EVIL),))
        if self.where == "note":
            return welcome._replace(note=EVIL, release=EVIL)
        return welcome

    def _script(self, name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if self.where == "log":
            # A reason and a warning; what kernels print (0, 3) is the program's own output.
            for level in (1, 2):
                yield encode_message(Notice.LOG, {"level": level, "text": EVIL})
        if self.where == "end" and name == "rgpuMemAlloc":
            last = {"context": 0, "sentence": EVIL}
            yield encode_message(Notice.STICKY, last, status=CUDA_ERROR_UNKNOWN)
        if not frame.header.flags & 1:
            return
        if name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=self.band.base)
        elif name == "rgpuMemGetInfo":
            yield reply(frame, name, free=1, total=2)
        else:
            yield reply(frame, name)


@pytest.mark.parametrize("where", ["name", "note", "log", "end"])
def test_a_driver_program_prints_nothing_that_a_terminal_acts_on(where: str) -> None:
    with EvilServer(where) as server:
        _, output, errors = clients.run(server.address, DRIVER, RGPU_LOG="debug")
    if where in ("log", "end"):
        assert TAME in errors, errors
    assert output + errors
    assert harmful(output + errors) == set()


@pytest.mark.parametrize("how", ["driver", "arrays", "run"])
def test_a_refusal_prints_nothing_that_a_terminal_acts_on(how: str) -> None:
    with serving(refuse) as address:
        if how == "driver":
            _, output, errors = clients.run(address, DRIVER)
        elif how == "arrays":
            done = run_arrays(address)
            output, errors = done.stdout, done.stderr
        else:
            done = run_rgpu_plain("run", "--server", f"tcp:{address}", "--", "true")
            output, errors = done.stdout, done.stderr
    assert errors
    assert harmful(output + errors) == set()
