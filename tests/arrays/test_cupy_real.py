"""The thin part that uses CuPy itself, with a package that looks like it."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.library import NotOfferedError, Slot
from rgpu_server.arrays.modules import CompileException
from rgpu_server.arrays.nvrtc import Compiled
from rgpu_server.arrays.real_cupy import ChargedSegments
from rgpu_server.arrays.real_kernels import CupyKernels, Kernel
from rgpu_server.arrays.source_compiler import SourceCompiler


class Array(np.ndarray):  # type: ignore[type-arg]
    """An array on a device, as far as the library uses it."""

    def get(self) -> Any:
        return np.asarray(self)


class Function:
    """A kernel of loaded code."""

    ptr = 77

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self.launched: list[Any] = []

    def __call__(self, grid: Any, block: Any, args: Any, shared_mem: int = 0) -> None:
        self.launched.append((grid, block, args, shared_mem))


class Module:
    """Loaded code."""

    loaded: bytes

    def load(self, ptx: bytes) -> None:
        self.loaded = ptx

    def get_function(self, symbol: str) -> Function:
        return Function(symbol)


class FakeDevice:
    """The driver, asked for what CuPy's Function does not tell."""

    capability = (9, 0)

    def attributes(self, function: int) -> dict[str, int]:
        return {"num_regs": 3} if function == Function.ptr else {}


class FakeCompiler:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def compile(self, *given: Any) -> Compiled:
        self.given.append(given)
        return Compiled(b"ptx\0", {"scale<float>": "_Z5scaleIfE"}, "")


def asarray(value: Any) -> Any:
    return np.asarray(value).view(Array)


def add(*arguments: Any, **keywords: Any) -> Any:
    assert "where" not in keywords
    return asarray(np.add(*arguments, **keywords))


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("cupy")
    module.__version__, module.ndarray, module.asarray, module.add = "14.2.0", Array, asarray, add
    # What compiles in this process is not there: RawModule, RawKernel.
    module.copyto, module.cuda = np.copyto, SimpleNamespace(Module=Module)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def test_functions_are_those_of_cupy_by_the_same_list(cupy: Any) -> None:
    library = CupyLibrary(cupy=cupy)
    assert library.version == "14.2.0"
    value, buffer = library.make("float32", [3])
    buffer[:] = np.arange(3, dtype="float32").tobytes()
    kept = library.made(value)
    assert isinstance(kept, Array)
    made = library.define("add", [Slot("a"), Slot("v")], {}).call(kept, 1)
    assert library.elements(library.keep(made))[:2] == ("float32", (3,))
    assert library.describe(made)[:3] == ["a", "float32", [3]]
    assert isinstance(library.keep(np.float64(2)), Array)
    with pytest.raises(NotOfferedError):
        library.keep(np.ones(3))
    with pytest.raises(NotOfferedError):
        library.define("RawKernel", [], {})


def test_where_leaves_the_other_elements_of_out(cupy: Any) -> None:
    library = CupyLibrary(cupy=cupy)
    a, out = asarray(np.ones(3)), asarray(np.zeros(3))
    words = {"out": Slot("a"), "where": Slot("a")}
    call = library.define("add", [Slot("a"), Slot("v")], words).call
    assert call(a, 1, out=out, where=np.array([True, False, True])) is None
    assert out.tolist() == [2, 0, 2]


def test_kernels_are_compiled_beside_the_worker_and_launched_by_cupy(cupy: Any) -> None:
    compiler: Any = FakeCompiler()
    device: Any = FakeDevice()
    kernels = CupyKernels(cupy, device, compiler)
    library = CupyLibrary(cupy=cupy, more=kernels.operations(), kernels=(Kernel,))
    kernel = library.keep(
        library.define("kernel.compile", ["code", "name"], {}).call("code", "name", ["-DN=1"])
    )
    assert kernel.module.loaded == b"ptx\0"
    library.define("kernel.launch", [Slot("a"), (1,), (2,), [], 0], {}).call(
        kernel, [1], [2], [asarray(1)], 8
    )
    assert kernel.function.launched == [((1,), (2,), (asarray(1),), 8)]
    assert library.describe(kernel) == ["k", "name", {"num_regs": 3}]
    long = asarray(np.frombuffer(b"x" * 100, np.uint8))
    assert kernels.compile(long, "scale<float>").function.symbol == "_Z5scaleIfE"
    kernels.compile("code", "name", ["-DN=1"])
    architecture = "--gpu-architecture=sm_90"
    assert compiler.given == [
        (b"code", "kernel.cu", (architecture, "-DN=1"), ()),
        (b"x" * 100, "kernel.cu", (architecture,), ("scale<float>",)),
    ]
    with pytest.raises(NotOfferedError, match="nvrtc"):
        kernels.compile("code", "name", (), "nvcc")
    with pytest.raises(TypeError):
        kernels.launch(3, (1,), (1,))


@pytest.mark.parametrize(
    "source",
    [
        '#include "/etc/passwd"',
        '#if __has_include("/etc/passwd")\n#include "/etc/passwd"\n#endif\n#error none',
    ],
)
def test_a_source_on_a_gpu_node_reads_no_file_of_the_node(cupy: Any, source: str) -> None:
    """A worker may read all files there, and NVRTC quotes what it has read in its log."""
    with contextlib.closing(SourceCompiler()) as compiler:
        device: Any = FakeDevice()
        kernels = CupyKernels(cupy, device, compiler)
        with pytest.raises(CompileException) as caught:
            kernels.compile(source, "name")
    first = Path("/etc/passwd").read_text().partition(":")[0]
    assert re.search("cannot open|none", str(caught.value))
    assert f"{first}:" not in str(caught.value)


class Refused(Exception):
    pass


class Books:
    """A ledger of so many bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.peak = limit, 0, 0

    def charge_before(self, size: int) -> bool:
        fits = self.used + size <= self.limit
        self.used += size if fits else 0
        return fits

    def raise_peak(self) -> None:
        self.peak = max(self.peak, self.used)

    def release(self, size: int) -> None:
        self.used -= size


def test_a_segment_is_charged_before_the_device_is_asked() -> None:
    asked: list[int] = []

    def malloc(size: int) -> int:
        asked.append(size)
        if size == 7:
            raise Refused("the device is full")
        return 1000 + size

    runtime = SimpleNamespace(malloc=malloc, free=lambda address: None, CUDARuntimeError=Refused)
    books = Books(100)
    segments = ChargedSegments(SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)), books)  # type: ignore[arg-type]
    address = segments.malloc(80, 0)
    assert (books.used, asked) == (80, [80])
    with pytest.raises(Refused):
        segments.malloc(30, 0)
    assert (books.used, asked) == (80, [80])
    with pytest.raises(Refused, match="full"):
        segments.malloc(7, 0)
    assert (books.used, books.peak) == (80, 80), "what was refused was never used"
    segments.free(address, 0)
    assert books.used == 0
