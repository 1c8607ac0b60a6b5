"""An array worker with NumPy on the emulated device:
`numpy_worker.py GRANTS_FD USAGE_FD SIGNAL_FD SLOT LINE_FD LIBRARY [--confined]`.

It is put together as the real worker is, with a library of a few functions.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rgpu_common.arrays.line import Line, LineError
from rgpu_server.arrays.ceiling import set_ceiling
from rgpu_server.arrays.confine import confine, preload, use_threads
from rgpu_server.arrays.device import Device, EventClock
from rgpu_server.arrays.engine import Engine
from rgpu_server.arrays.kernels import Kernel, Kernels
from rgpu_server.arrays.ledger import Ledger
from rgpu_server.arrays.library import NotOfferedError, Operation, plain_words
from rgpu_server.arrays.memory import ArrayMemory
from rgpu_server.arrays.source_compiler import SourceCompiler
from rgpu_server.arrays.turns import Turns
from rgpu_server.workers.pages import map_page


def attempts() -> dict[str, Callable[[], object]]:
    """What a worker must not be able to do, by name."""

    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    return {
        "write": lambda: open("/etc/passwd", "a"),
        "make": lambda: open("/tmp/made-by-a-worker", "w"),
        "remove": lambda: os.unlink("/etc/passwd"),
        "read": lambda: open("/etc/passwd"),
        "list": lambda: os.listdir("/etc"),
        "socket": lambda: socket.socket(),
        "local socket": lambda: socket.socket(socket.AF_UNIX),
        "exec": lambda: os.execv(sys.executable, [sys.executable, "-c", ""]),
        "fork": fork,
        "spawn": lambda: os.posix_spawn(sys.executable, [sys.executable], {}),
        "kill": lambda: os.kill(os.getppid(), 0),
        "open a process": lambda: os.pidfd_open(os.getppid()),
        "another's memory": lambda: open(f"/proc/{os.getppid()}/mem"),
        "chmod": lambda: os.chmod("/tmp", 0o777),
    }


def attempted(name: str) -> str:
    """Returns the error that an attempt gets."""
    try:
        attempts()[name]()
    except OSError as error:
        return type(error).__name__
    return "it worked"


def computed() -> float:
    """Uses parts of NumPy that load late, and threads of its libraries."""
    from numpy import fft, linalg, polynomial, random

    square = random.default_rng(1).random((200, 200))
    inverse = linalg.inv(square) @ square
    back = fft.ifft(fft.fft(square)).real
    assert np.allclose(back, square)
    assert polynomial.Polynomial([1, 2])(2) == 5
    return float(np.abs(inverse - np.eye(200)).max())


class Numpy:
    """A library with what the tests need."""

    name, version = "numpy", np.__version__

    def __init__(self, kernels: Kernels, memory: ArrayMemory, ledger: Ledger, report: str) -> None:
        self._operations = {
            **kernels.operations(),
            "add": Operation(lambda a, b: a + b),
            "zeros": Operation(lambda shape, dtype: np.zeros(shape, dtype)),
            "strange": Operation(lambda: np.frombuffer(bytearray(64))),
        }
        self._memory, self._ledger, self._report = memory, ledger, report

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        if operation not in self._operations:
            raise NotOfferedError(f"there is no operation {operation}")
        return self._operations[operation]

    def dtype(self, name: str) -> Any:
        return np.dtype(name)

    def scalar(self, dtype: str, value: Any) -> Any:
        return np.dtype(dtype).type(value)

    def keep(self, value: Any) -> Any:
        return value

    made = keep

    def gone(self, value: Any) -> None:
        """NumPy's handler releases the memory."""

    def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
        made = np.empty(shape, dtype)
        return made, memoryview(made.reshape(-1).view(np.uint8))

    def elements(self, value: Any) -> tuple[str, Sequence[int], memoryview]:
        whole = np.ascontiguousarray(value)
        return value.dtype.name, value.shape, memoryview(whole.reshape(-1).view(np.uint8))

    def describe(self, value: Any) -> Any:
        if isinstance(value, Kernel):
            return [value.name, value.attributes]
        return [value.dtype.name, list(value.shape)]

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        if question == "attempt":
            return attempted(details[0])
        if question == "compute":
            return computed()
        if question == "report":
            return self._report
        return [self._ledger.used, self._memory.figures().used]

    def room(self, size: int, beside: int) -> int:
        return 1 << 60

    def words(self, error: Exception) -> str:
        return plain_words(error)

    def sync(self) -> None:
        """Everything is done."""


def serve() -> None:
    grants, usage, signal, slot, fd = map(int, sys.argv[1:6])
    preload()
    device_library = ctypes.CDLL(sys.argv[6])
    compiler = SourceCompiler(seconds=5)
    line = Line.adopted(fd)
    report = confine() if "--confined" in sys.argv else ""
    page = map_page(grants, usage, write_grants=False)
    device = Device(device_library)
    gate = Turns(page, slot, signal, EventClock(device) if "--events" in sys.argv else None)
    ledger = Ledger(page, slot, gate)
    memory = ArrayMemory(page, slot, device.functions(), ledger.charge_before)
    memory.install()
    use_threads(2)
    set_ceiling(1 << 30)
    library = Numpy(Kernels(device, memory, ledger, compiler, gate), memory, ledger, report)
    engine = Engine(line, library, gate)  # type: ignore[arg-type]
    try:
        engine.serve()
    except LineError:
        os._exit(0)


if __name__ == "__main__":
    serve()
