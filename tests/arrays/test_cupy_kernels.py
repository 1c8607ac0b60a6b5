"""Kernels of a program: the C++ that the client writes, and what it asks of the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_session import session
from helpers.needs import demand, needs

import rgpu_client.cupy as cp
from rgpu_client.cupy._current import use
from rgpu_client.cupy._kernels.text import parameters
from rgpu_client.cupy.errors import CompileException, exception
from rgpu_server.arrays.cupy_library import CupyLibrary
from rgpu_server.arrays.library import Operation

SQUARE = 'extern "C" __global__ void square(const float* x, float* y, int n) {}'


class CompileError(Exception):
    __module__ = "cupy.cuda.compiler"
    __qualname__ = "CompileException"


class Kernel:
    """What the node has for a compiled kernel."""

    def __init__(self, source: str, name: str) -> None:
        self.source, self.name = source, name
        self.attributes = {"num_regs": 17, "max_threads_per_block": 1024}


class Node:
    """The operations on kernels, which note what they are asked."""

    def __init__(self) -> None:
        self.compiled: list[Any] = []
        self.launched: list[Any] = []

    def compile(self, source: Any, name: Any, options: Any = (), backend: Any = "nvrtc") -> Kernel:
        text = source if isinstance(source, str) else source.tobytes().decode()
        if "error" in text:
            raise CompileError('kernel.cu(1): error: identifier "error" is undefined')
        self.compiled.append((text, name, list(options), backend))
        return Kernel(text, name)

    def launch(self, kernel: Any, grid: Any, block: Any, args: Any = (), shared: Any = 0) -> None:
        assert isinstance(kernel, Kernel)
        self.launched.append((kernel.name, grid, block, args, shared))
        if kernel.name == "square":
            np.square(args[0], out=args[1])


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    more = {
        "kernel.compile": Operation(made.compile),
        "kernel.launch": Operation(made.launch, changes=(3, "args")),
    }
    with session(CupyLibrary(more=more, kernels=(Kernel,)), exception) as issuer:
        use(issuer)
        yield made
        use(None)


def test_a_raw_kernel_is_compiled_once_and_launched_with_its_arguments(node: Node) -> None:
    kernel = cp.RawKernel(SQUARE, "square", options=("-DN=3", "--std=c++17"))
    x, y = cp.arange(4, dtype=cp.float32), cp.zeros(4, dtype=cp.float32)
    for _ in range(2):
        kernel((1,), (32, 2), (x, y, np.int32(4)), shared_mem=64)
    assert y.tolist() == [0, 1, 4, 9]
    assert node.compiled == [(SQUARE, "square", ["-DN=3", "--std=c++17"], "nvrtc")]
    name, grid, block, arguments, shared = node.launched[1]
    assert (name, tuple(grid), tuple(block), shared) == ("square", (1,), (32, 2), 64)
    assert type(arguments[2]) is np.int32
    assert kernel.num_regs == 17
    assert kernel.attributes["max_threads_per_block"] == 1024


def test_a_source_that_does_not_compile_is_refused_where_it_is_launched(node: Node) -> None:
    kernel = cp.RawKernel("error", "broken")
    with pytest.raises(CompileException, match='identifier "error" is undefined'):
        kernel((1,), (1,), ())


def test_a_long_source_travels_as_bytes(node: Node) -> None:
    source = SQUARE + " " * 100_000
    cp.RawModule(code=source).get_function("square").compile()
    assert node.compiled[0][0] == source


def test_what_a_node_cannot_have_is_refused_with_a_sentence(node: Node) -> None:
    with pytest.raises(NotImplementedError, match="source only"):
        cp.RawModule(path="kernels.cubin")
    with pytest.raises(NotImplementedError, match="cannot be reached from here"):
        cp.RawModule(code=SQUARE).get_global("x")
    with pytest.raises(NotImplementedError, match="cooperative groups"):
        cp.RawKernel(SQUARE, "square", enable_cooperative_groups=True)
    with pytest.raises(TypeError, match=r"Unsupported type <class 'numpy\.ndarray'>"):
        cp.RawKernel(SQUARE, "square")((1,), (1,), (np.ones(3),))


def test_an_elementwise_kernel_becomes_a_loop_over_elements() -> None:
    kernel = cp.ElementwiseKernel("T x, raw S y, int32 m", "T z", "z = x * y[i] + m", "scaled")
    source = kernel.source(
        {"T": np.dtype("float32"), "S": np.dtype("int64")}, [True, True, False, True]
    )
    for part in (
        "typedef float T;", "typedef long long S;", 'extern "C" __global__ void rgpu_scaled(', "const float* _x,",
        "long long* _y,", "const int m,", "float* _z,", "const long long n)", "const float x = _x[i];",
        "float& z = _z[i];", "z = x * y[i] + m;", "const rgpu_raw<long long> y = {_y, _y_size};",
    ):  # fmt: skip
        assert part in source
    complex_source = cp.ElementwiseKernel("T x", "T y", "y = x * x").source(
        {"T": np.dtype("complex64")}, [True, True]
    )
    assert "typedef complex<float> T;" in complex_source
    half = cp.ElementwiseKernel("float16 x", "float16 y", "y = x").source({}, [True, True])
    assert "#include <cuda_fp16.h>" in half


def test_an_elementwise_kernel_is_launched_on_arrays_that_fit(node: Node) -> None:
    kernel = cp.ElementwiseKernel("T x, T y", "T z", "z = x + y", "added")
    made = kernel(cp.ones((3, 1), "float32"), cp.ones(4, "float32"))
    assert made.shape == (3, 4)
    assert made.dtype == np.float32
    cp.cuda.Device().synchronize()
    name, grid, block, arguments, _ = node.launched[0]
    assert (name, tuple(grid), tuple(block)) == ("rgpu_added", (1,), (128,))
    assert [one.shape for one in arguments[:3]] == [(3, 4)] * 3
    assert all(one.flags.c_contiguous for one in arguments[:3])
    assert int(arguments[3]) == 12
    kernel(cp.ones(2, "float32"), 3)
    cp.cuda.Device().synchronize()
    assert type(node.launched[1][3][1]) is np.float32


def test_wrong_use_of_an_elementwise_kernel_has_cupys_exceptions(node: Node) -> None:
    kernel = cp.ElementwiseKernel("T x, T y", "T z", "z = x + y", "added")
    with pytest.raises(TypeError, match="Type is mismatched"):
        kernel(cp.ones(3), cp.ones(3, int))
    with pytest.raises(TypeError, match="Wrong number of arguments"):
        kernel(cp.ones(3))
    with pytest.raises(ValueError, match="Out shape is mismatched"):
        kernel(cp.ones(3), cp.ones(3), cp.ones(4))
    with pytest.raises(ValueError, match="Loop size is undecided"):
        cp.ElementwiseKernel("", "raw T y", "y[i] = i")(cp.ones(3))
    for text in ("T", "T x y", "T i", "T _x", "nothing x", "T 1x"):
        with pytest.raises(ValueError, match=r"Invalid kernel parameter|is not allowed"):
            parameters(text)


def test_a_reduction_kernel_becomes_a_block_for_each_output(node: Node) -> None:
    norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
    source = norm.source({"T": np.dtype("float64")}, [True])
    for part in (
        "typedef double _reduced;", "return a + b;", "(x * x)", "y = sqrt(a);", "_reduced(0)", "__syncthreads();",
    ):  # fmt: skip
        assert part in source
    made = norm(cp.ones((2, 3, 4)), axis=1, keepdims=True)
    assert made.shape == (2, 1, 4)
    cp.cuda.Device().synchronize()
    name, grid, _, arguments, _ = node.launched[0]
    assert (name, tuple(grid)) == ("rgpu_norm", (8,))
    assert arguments[0].shape == (2, 4, 3)
    assert [int(one) for one in arguments[2:]] == [8, 3]
    with pytest.raises(ValueError, match="has no identity"):
        cp.ReductionKernel("T x", "T y", "x", "a + b", "y = a", None)(cp.ones(0))


def test_fused_functions_give_the_same_results(node: Node) -> None:
    @cp.fuse()
    def doubled(x: Any) -> Any:
        return x * 2 + 1

    assert doubled(cp.arange(3)).tolist() == [1, 3, 5]
    assert cp.fuse(lambda x: x + 1)(cp.arange(2)).tolist() == [1, 2]


ELEMENTWISE = [
    ("T x, T y", "T z", "z = x * y + T(2)", {}),
    ("T x, raw T y", "T z", "z = y[n - 1 - i] + x * (T)y.size()", {}),
    ("float32 x, int64 n_max", "bool z, float64 w", "z = x > n_max; w = sin(x) + _ind.size()", {}),
    (
        "T x",
        "T y",
        "y = twice(x)",
        {"preamble": "__device__ float twice(float v) { return v + v; }"},
    ),
    (
        "T x",
        "T y",
        "y = x + prepared",
        {"loop_prep": "float prepared = 3", "after_loop": "prepared = 0"},
    ),
]


def compiled(source: str) -> str:
    """Compiles a source with NVRTC and returns its log; empty if there is nothing to say."""
    demand("cuda-bindings")
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, [], [])
    result = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    # NVRTC writes into it. A `bytes` of one character would be the one that all of Python shares.
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return "" if int(result[0]) == 0 else log.decode()


@needs("cuda-bindings")
@pytest.mark.parametrize(("inputs", "outputs", "operation", "more"), ELEMENTWISE)
def test_nvrtc_compiles_an_elementwise_kernel(
    inputs: str, outputs: str, operation: str, more: dict[str, Any]
) -> None:
    kernel = cp.ElementwiseKernel(inputs, outputs, operation, "kernel", **more)
    for dtype in ("float32", "float64", "int32", "complex64"):
        if dtype == "complex64" and (more or "raw" in inputs or "T" not in inputs):
            continue
        assert not compiled(kernel.source({"T": np.dtype(dtype)}, [True] * kernel.nargs))


@needs("cuda-bindings")
@pytest.mark.parametrize(
    ("map_expr", "reduce_expr", "post", "identity"),
    [
        ("x * x", "a + b", "y = sqrt(a)", "0"),
        ("x", "max(a, b)", "y = a", None),
        ("abs(x)", "a * b", "y = a + 1", 1),
    ],
)
def test_nvrtc_compiles_a_reduction_kernel(
    map_expr: str, reduce_expr: str, post: str, identity: Any
) -> None:
    kernel = cp.ReductionKernel("T x", "T y", map_expr, reduce_expr, post, identity)
    for dtype in ("float32", "float64"):
        assert not compiled(kernel.source({"T": np.dtype(dtype)}, [True]))
    product = cp.ReductionKernel("T x", "T y", "conj(x)", "a * b", "y = a", "1")
    assert not compiled(product.source({"T": np.dtype("complex128")}, [True]))
