"""Sessions of array workers that are processes of their own, on the emulated device."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from worker.client import part

from helpers.ends import ended
from rgpu_client.arrays.issuer import Issuer
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import Failure
from rgpu_server.core.model import Quota
from rgpu_server.workers.pages import LeasePage

WORKER = Path(__file__).parent.parent / "arrays" / "numpy_worker.py"
MIB = 1 << 20


class RemoteError(Exception):
    """An operation failed; the text is the exception's class and its own text."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.type}: {failure.text}")


class Session:
    """A client of one worker, with arrays by id."""

    def __init__(self, issuer: Issuer, page: LeasePage, process: subprocess.Popen[bytes]) -> None:
        self.issuer, self.page, self.process = issuer, page, process

    def put(self, value: Any) -> int:
        """Uploads an array, and returns its id."""
        array, made = np.ascontiguousarray(value), self.issuer.new_id()
        elements = memoryview(array.reshape(-1).view(np.uint8))
        self.issuer.put(made, array.dtype.name, array.shape, elements)
        return made

    def read(self, wanted: int) -> Any:
        """Downloads an array."""
        got: list[Any] = []

        def make(dtype: str, shape: Sequence[int]) -> memoryview:
            got.append(np.empty(shape, dtype))
            return memoryview(got[0].reshape(-1).view(np.uint8))

        self.issuer.read(wanted, make)
        return got[0]

    def run(
        self, name: str, slots: Sequence[Any], arguments: Sequence[Any], outputs: int = 1
    ) -> int:
        """Issues an operation, and returns the id of its result."""
        made = self.issuer.new_id()
        key = (name, repr(arguments), outputs)
        template = self.issuer.template(key, name, arguments, {}, outputs)
        self.issuer.run(template, slots, [made] if outputs else [])
        return made


@contextmanager
def array_worker(
    *options: str, memory: int = 256 * MIB, blas_threads: int = 1
) -> Iterator[Session]:
    """A session with a worker that is alone on its device."""
    page = LeasePage(Quota(memory))
    page.take(0, 1)
    with contextlib.ExitStack() as stack:
        ours, theirs = socket.socketpair()
        here, there = socket.socketpair()
        compiler = subprocess.Popen(
            [sys.executable, "-m", "rgpu_emu.compiler", "--fd", str(there.fileno())],
            pass_fds=(there.fileno(),), cwd="/",
        )  # fmt: skip
        stack.callback(ended, compiler)
        words = [*page.descriptors, 0, theirs.fileno(), part("rgpu_emu/lib/librgpu_emu.so")]
        process = subprocess.Popen(
            [sys.executable, str(WORKER), *map(str, words), *options],
            pass_fds=(*page.descriptors, theirs.fileno(), here.fileno()), cwd="/",
            env={**os.environ, "RGPU_EMU_COMPILER_FD": str(here.fileno()), "OPENBLAS_NUM_THREADS": str(blas_threads)},
        )  # fmt: skip
        for one in (theirs, here, there):
            one.close()
        stack.callback(ended, process)
        issuer = Issuer(Line.adopted(ours.detach()), RemoteError)
        stack.callback(issuer.close)
        yield Session(issuer, page, process)
    page.close()
