"""A pytest plugin (`-p ptx.driver`) that runs tests/ptx on the driver that RGPU_TEST_DRIVER names.

A process of its own holds the CUDA context.  When a launch leaves the context unusable or does not
end, only that process is lost, and the next kernel starts another one.
"""

from __future__ import annotations

import atexit
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.block import DeadlockError
from ptx.driver_process import ARENA_BYTES, DriverError

from rgpu_emu.lower.entry import emit_ir
from rgpu_emu.ptx.declare import layout
from rgpu_emu.ptx.link import Program, link

INVALID_PTX, UNSUPPORTED_PTX_VERSION, LAUNCH_TIMEOUT = 218, 222, 702
SECONDS = float(os.environ.get("RGPU_TEST_DRIVER_SECONDS", "60"))
FOLDER = Path(__file__).resolve().parent.parent


class Device:
    """A process with a context.  `ask` has it carry out a method of `Driver`."""

    _current: Device | None = None

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        path = os.pathsep.join(filter(None, (str(FOLDER), os.environ.get("PYTHONPATH"))))
        command = f"from ptx.driver_process import serve; serve({theirs.fileno()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command],
            env={**os.environ, "PYTHONPATH": path},
            pass_fds=[theirs.fileno()],
            cwd="/",
        )
        theirs.close()
        self.open = True
        atexit.register(self.close)
        self.base: int = self.ask("open")

    @classmethod
    def current(cls) -> Device:
        """The process that all kernels share, or a new one if an error has ended it."""
        if cls._current is None or not cls._current.open:
            cls._current = cls()
        return cls._current

    def ask(self, method: str, *arguments: object) -> Any:
        """Waits for the answer, at most SECONDS.

        Raises:
            DriverError: a call failed.
            DeadlockError: the process did not answer in time.
        """
        if not self.open:
            raise DriverError("a call after the error that ended this context", 709)
        try:
            self.connection.send((method, arguments))
            if not self.connection.poll(SECONDS):
                self.close()
                raise DeadlockError(f"the driver did not end {method!r} within {SECONDS:g} s")
            value, error, alive = self.connection.recv()
        except (EOFError, ConnectionError):
            self.close()
            status = self.process.returncode
            raise DriverError(f"{method!r} ended the driver's process ({status})", -1) from None
        if not alive:
            self.close()
        if error is not None and error.result == LAUNCH_TIMEOUT:
            raise DeadlockError(str(error))
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Ends the process."""
        if self.open:
            self.open = False
            atexit.unregister(self.close)
            self.connection.close()
            self.process.kill()
            self.process.wait()


class DriverArena:
    """Device memory; `puts` are the bytes that were put there."""

    def __init__(self, device: Device) -> None:
        self.device, self.base, self.top = device, device.base, 0
        self.puts: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("view", "memory"):
            pytest.skip("a driver does not show its memory the way the reference runner does")
        raise AttributeError(name)

    def put(self, array: npt.NDArray[np.generic], *, align: int = 256) -> int:
        """Copies an array to the device; returns its address."""
        raw = np.ascontiguousarray(array).tobytes()
        at = (self.top + align - 1) // align * align
        self.top = at + len(raw)
        assert self.top < ARENA_BYTES
        if raw:
            self.puts.append((at, raw))
            self.device.ask("write", self.base + at, raw)
        return self.base + at

    def get(self, address: int, like: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        raw = self.device.ask("read", address, like.nbytes) if like.nbytes else b""
        return np.frombuffer(raw, like.dtype).reshape(like.shape).copy()


class RefusedError(AssertionError):
    """The driver refuses PTX that the emulated device takes; `messages` belong to lines."""

    def __init__(self, error: DriverError, source: str) -> None:
        found = re.findall(r"line (\d+);\s*(.*)", error.log)
        self.messages = {int(number): message for number, message in reversed(found)}
        text = source.splitlines()
        around = sorted({n for at in sorted(self.messages)[:5] for n in range(at - 2, at + 3)})
        shown = [f"{n:5} {text[n - 1]}" for n in around if 0 < n <= len(text)]
        super().__init__("\n".join([str(error), *shown]))


class DriverKernel:
    """A kernel that the driver has compiled, with the interface of harness.Kernel."""

    def __init__(self, source: str | Sequence[str], name: str = "") -> None:
        given = [source] if isinstance(source, str) else list(source)
        # ptxas takes a register %tid for the special one.
        self.sources = [re.sub(r"%tid(?![.\w])", "%my_tid", text) for text in given]
        self.program: Program = link(self.sources)
        self.name = name or next(iter(self.program.entries))
        self.device = Device.current()
        if Path(os.environ["RGPU_TEST_DRIVER"]).name == "librgpu_emu.so":
            emit_ir(self.program, self.name)  # it refuses some kernels no sooner than at a launch
        self.module = self._load()
        self.arena = DriverArena(self.device)

    def _load(self) -> int:
        try:
            return int(self.device.ask("load", self.sources, self.name))
        except DriverError as error:
            if error.result == UNSUPPORTED_PTX_VERSION:
                pytest.skip("this driver is older than the PTX of the test")
            emit_ir(self.program, self.name)  # raises PtxError if the emulated device refuses too
            if error.result != INVALID_PTX:
                raise
            print(f"refused as it is, tried again as .version 9.0, sm_90a:\n{error}")
        self.sources = [raised(text) for text in self.sources]
        try:
            return int(self.device.ask("load", self.sources, self.name))
        except DriverError as error:
            raise RefusedError(error, self.sources[0]) from None

    def __del__(self) -> None:
        if "arena" in self.__dict__ and self.device.open:
            with suppress(DriverError, AssertionError, OSError):
                self.device.ask("unload", self.module)

    def __getattr__(self, name: str) -> Any:
        if name in ("lowered", "output", "symbol"):
            pytest.skip(f"a driver does not show what the emulated device calls {name!r}")
        if name == "globals":
            return [self.device.ask("address", self.module, v.name) for v in self.program.globals]
        raise AttributeError(name)

    def pack(self, arguments: Sequence[object]) -> list[bytes]:
        """The bytes of each parameter, from NumPy scalars, ints (8 bytes) or raw bytes."""
        places, _ = layout(self.program.entry(self.name).prototype.params)
        raws = [a if isinstance(a, bytes) else np.asarray(a).tobytes() for a in arguments]
        assert [len(raw) for raw in raws] == [size for _, size in places], "sizes of parameters"
        return raws

    def launch(
        self, grid: Sequence[int], block: Sequence[int], *arguments: object,
        dynamic: int = 0, stop: int = 0, cooperative: bool = False,
    ) -> None:  # fmt: skip
        """Launches and waits."""
        if stop:
            pytest.skip("only the emulated device is stopped this way")
        raws = self.pack(arguments)
        shape = _shape(grid, block)
        self.device.ask("launch", self.module, self.name, shape, raws, dynamic, cooperative)

    def launch_in_child(
        self, grid: Sequence[int], block: Sequence[int], *arguments: object, stop: int = 0
    ) -> int:
        """The CUresult of a launch in a process of its own, which gets the same memory first."""
        if stop:
            pytest.skip("only the emulated device is stopped this way")
        raws = self.pack(arguments)
        other = Device()
        try:
            module = other.ask("load", self.sources, self.name)
            for at, raw in self.arena.puts:
                other.ask("write", other.base + at, raw)
            moved = [_moved(raw, self.arena.base, other.base) for raw in raws]
            other.ask("launch", module, self.name, _shape(grid, block), moved, 0, False)
        except DriverError as error:
            return error.result
        except DeadlockError:
            return LAUNCH_TIMEOUT
        finally:
            other.close()
        return 0


def raised(text: str) -> str:
    """PTX for the newest version and target that an H100's driver of CUDA 13.0 takes."""
    text = re.sub(r"\.version\s+[\d.]+", ".version 9.0", text, count=1)
    return re.sub(r"\.target\s+sm_\w+", ".target sm_90a", text, count=1)


def _shape(grid: Sequence[int], block: Sequence[int]) -> list[int]:
    return [int(n) for n in (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])]


def _moved(raw: bytes, base: int, moved: int) -> bytes:
    """An argument, which is another address in the other process if it is one in this process."""
    value = int.from_bytes(raw, "little") if len(raw) == 8 else 0
    inside = base <= value < base + ARENA_BYTES
    return (value - base + moved).to_bytes(8, "little") if inside else raw


def check_all(cases: Sequence[Any], seed: int = 0) -> None:
    """forms.check, but names every case that is refused or differs, not just the first one."""
    kept, problems = list(enumerate(cases)), []
    while kept:
        try:
            problems += _differences(kept, seed)
            break
        except RefusedError as error:
            refused = _refused([case for _, case in kept], error.messages)
            if not refused:
                raise
            problems += [f"refused: {kept[n][1].text}: {text}" for n, text in refused.items()]
            kept = [pair for n, pair in enumerate(kept) if n not in refused]
    if problems:
        head = f"{len(problems)} of {len(cases)} cases"
        pytest.fail("\n".join([head, *problems]), pytrace=False)


def _refused(cases: Sequence[Any], messages: dict[int, str]) -> dict[int, str]:
    """The cases in whose lines the errors are."""
    from ptx import forms

    tail = forms.build([]).count("\n") - forms.build([]).rpartition("ret;\n")[0].count("\n")
    ends = [forms.build(cases[:n]).count("\n") - tail for n in range(len(cases) + 1)]
    found: dict[int, str] = {}
    for line, message in sorted(messages.items()):
        for number in range(len(cases)):
            if ends[number] < line <= ends[number + 1]:
                found.setdefault(number, message)
    return found


def _differences(kept: Sequence[tuple[int, Any]], seed: int) -> list[str]:
    """A line for each case with a result that is not its reference's."""
    from ptx import forms

    kernel = DriverKernel(forms.build([case for _, case in kept]))
    data = [
        [forms.inputs_for(kind, seed * 1000 + n * 10 + k) for k, kind in enumerate(case.src)]
        for n, case in kept
    ]
    rows = [row for one in data for row in one] or [[0] * forms.SAMPLES]
    out = np.zeros((len(kept), 2, forms.SAMPLES), np.uint64)
    place, source = kernel.arena.put(out), kernel.arena.put(np.array(rows, np.uint64))
    kernel.launch((1,), (forms.SAMPLES,), np.uint64(source), np.uint64(place))
    found = []
    for (_, case), inputs, got in zip(kept, data, kernel.arena.get(place, out), strict=True):
        wrong = []
        columns = list(zip(*inputs, strict=True)) or [()] * forms.SAMPLES
        for values, have, extra in zip(columns, *got.tolist(), strict=True):
            wrong += _difference(case, values, have, extra)
        found += [f"differs in {len(wrong)} of {len(columns)}: {wrong[0]}"] if wrong else []
    return found


def _difference(case: Any, values: Any, have: int, extra: int) -> list[str]:
    from ptx import forms

    try:
        forms._compare(case, values, have, extra)
    except AssertionError as error:
        return [str(error).splitlines()[0]]
    return []


def pytest_configure() -> None:
    """Puts the driver in the place of the reference runner, before any test is imported."""
    if "RGPU_TEST_DRIVER" not in os.environ:
        return
    from ptx import harness

    harness.Kernel = DriverKernel  # type: ignore[misc, assignment]
    from ptx import forms

    forms.Kernel = DriverKernel  # type: ignore[misc, assignment]
    forms.check = check_all
