"""The emulated device by ctypes, and `on_device`: a test that runs in a process of its own.

The device reads its settings once per process and a sticky error ends it, so every scenario gets a
fresh process; each runs in normal and in hostile timing.  The child imports this module without
pytest (`children.py`).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emu.children import Scenarios

TESTS = Path(__file__).resolve().parent.parent
TIMINGS = ("normal",) if "RGPU_TEST_DRIVER" in os.environ else ("normal", "hostile:7")
SECONDS = 150
BAND = 0x2000_0000_0000

Scenario = Callable[["Device"], None]


class CudaError(Exception):
    """A call failed; `result` is its CUresult."""

    def __init__(self, call: str, result: int) -> None:
        super().__init__(f"{call} gave CUresult {result}")
        self.result = result


def library_path() -> str:
    """Returns the installed library, or the one in the build folder that RGPU_BUILD_DIR names, or
    the driver that RGPU_TEST_DRIVER names: the same scenarios then show what a GPU does.
    """
    if driver := os.environ.get("RGPU_TEST_DRIVER"):
        return driver
    build = os.environ.get("RGPU_BUILD_DIR")
    if build is not None:
        (found,) = Path(build).rglob("librgpu_emu.so")
        return str(found)
    import rgpu_emu

    return str(rgpu_emu.library_path())


class Device:
    """`cuda("cuX", ...)` calls and raises CudaError; `cuda.result("cuX", ...)` gives the CUresult.

    Integers go as 64 bits, which is right for every scalar of the calls used here but floats.
    """

    def __init__(self) -> None:
        self.library = ctypes.CDLL(library_path())

    def result(self, call: str, *arguments: object) -> int:
        passed = [ctypes.c_uint64(a & (2**64 - 1)) if isinstance(a, int) else a for a in arguments]
        value: int = getattr(self.library, call)(*passed)
        return value

    def __call__(self, call: str, *arguments: object) -> None:
        result = self.result(call, *arguments)
        if result != 0:
            raise CudaError(call, result)

    def out(self, call: str, *arguments: object, kind: Any = ctypes.c_uint64) -> Any:
        """Calls with a result pointer in front; the value written there."""
        value = kind()
        self(call, ctypes.byref(value), *arguments)
        return value.value

    def open(self) -> int:
        """cuInit and the primary context, current on this thread."""
        self("cuInit", 0)
        context: int = self.out("cuDevicePrimaryCtxRetain", 0)
        self("cuCtxSetCurrent", context)
        return context

    def alloc(self, count: int) -> int:
        address: int = self.out("cuMemAlloc_v2", count)
        return address

    def free(self, address: int) -> None:
        self("cuMemFree_v2", address)

    def write(self, address: int, data: bytes) -> None:
        self("cuMemcpyHtoD_v2", address, data, len(data))

    def read(self, address: int, count: int) -> bytes:
        buffer = ctypes.create_string_buffer(count)
        self("cuMemcpyDtoH_v2", buffer, address, count)
        return buffer.raw

    def stream(self, flags: int = 0) -> int:
        handle: int = self.out("cuStreamCreate", flags)
        return handle

    def event(self, flags: int = 0) -> int:
        handle: int = self.out("cuEventCreate", flags)
        return handle

    def pinned(self, count: int) -> int:
        address: int = self.out("cuMemHostAlloc", count, 0)
        return address

    def attribute(self, number: int) -> int:
        value: int = self.out("cuDeviceGetAttribute", number, 0, kind=ctypes.c_int)
        return value

    def function(self, module: int, name: str) -> int:
        handle: int = self.out("cuModuleGetFunction", module, name.encode())
        return handle

    def launch(
        self,
        function: int,
        parameters: list[Any],
        grid: int = 1,
        block: int = 1,
        stream: int = 0,
        shared: int = 0,
    ) -> None:
        """A one-dimensional launch; parameters are ctypes values."""
        array = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(p) for p in parameters))
        self("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, stream, array, None)


def expect(result: int, call: Callable[[], object]) -> None:
    """`call` raises CudaError with this CUresult."""
    got = 0
    try:
        call()
    except CudaError as error:
        got = error.result
    assert got == result, f"expected CUresult {result}, got {got}"


def in_thread(body: Callable[[], None]) -> threading.Thread:
    """Starts `body`; `finish` gets its exception."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            body()
        except (CudaError, AssertionError) as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.failures = failures  # type: ignore[attr-defined]
    thread.start()
    return thread


def finish(thread: threading.Thread) -> None:
    thread.join(SECONDS / 2)
    assert not thread.is_alive(), "a thread did not end"
    for failure in thread.failures:  # type: ignore[attr-defined]
        raise failure


def used() -> float:
    """Seconds of processor time of this process."""
    times = os.times()
    return times.user + times.system


def on_device(**settings: str) -> Callable[[Scenario], Scenario]:
    """A scenario that pytest runs in a child process, once per timing.

    Args:
        settings: RGPU_EMU_ variables of the child.
    """

    def wrap(scenario: Scenario) -> Scenario:
        if "RGPU_EMU_CHILD" in os.environ:
            return scenario
        import pytest

        def test(timing: str, scenarios: Scenarios) -> None:
            file = Path(scenario.__code__.co_filename).stem
            scenarios.run(file, scenario.__name__, {"RGPU_EMU_TIMING": timing, **settings})

        test.__name__ = scenario.__name__
        test.__doc__ = scenario.__doc__
        marked: Any = pytest.mark.parametrize("timing", TIMINGS)(test)
        return marked  # type: ignore[no-any-return]

    return wrap
