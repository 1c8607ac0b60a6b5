"""Kernels of a session: compiled from source, launched on its arrays, and kept within it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers.array_worker import RemoteError, Session, array_worker
from helpers.ends import killed
from helpers.file_locks import locked, waited_for
from helpers.needs import needs
from helpers.waiting import wait_until

from rgpu_client.arrays.issuer import SessionLostError
from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays import equipment, nvrtc
from rgpu_server.arrays.headers import Headers
from rgpu_server.arrays.kernel_sources import checked_options
from rgpu_server.arrays.library import NotOfferedError
from rgpu_server.arrays.nvrtc import CODE, PTX, NvrtcMissingError, SourceError
from rgpu_server.arrays.places import Places
from rgpu_server.arrays.places_file import PlacesFile, make_file
from rgpu_server.arrays.source_compiler import SourceCompiler
from rgpu_server.config import CompilerLimits
from rgpu_server.isolation import Isolation
from rgpu_server.session_compilers import SessionCompilers
from rgpu_server.tokens.page import Phase, TokenView

A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]


def scalar(dtype: str) -> list[str]:
    return [Tag.SLOT_SCALAR, dtype]


SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
  int i = blockDim.x * blockIdx.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
STENCIL = r"""
#define R 1
extern "C" __global__ void blur(const double* in, double* out, int w, int h) {
  __shared__ double tile[TILE + 2 * R][TILE + 2 * R];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  for (int j = threadIdx.y; j < TILE + 2 * R; j += TILE)
    for (int i = threadIdx.x; i < TILE + 2 * R; i += TILE) {
      int gx = blockIdx.x * TILE + i - R, gy = blockIdx.y * TILE + j - R;
      bool in_it = gx >= 0 && gx < w && gy >= 0 && gy < h;
      tile[j][i] = in_it ? in[gy * w + gx] : 0.0;
    }
  __syncthreads();
  if (x >= w || y >= h) return;
  double sum = 0;
  for (int j = 0; j < 3; ++j)
    for (int i = 0; i < 3; ++i) sum += tile[threadIdx.y + j][threadIdx.x + i];
  out[y * w + x] = sum / 9;
}
"""
SUM = r"""
template <typename T>
__global__ void total(const T* x, T* out, long long n) {
  extern __shared__ unsigned char raw[];
  T* part = reinterpret_cast<T*>(raw);
  T own = 0;
  for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    own += x[i];
  part[threadIdx.x] = own;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, part[0]);
}
"""
WILD = 'extern "C" __global__ void wild(long long at) { *reinterpret_cast<int*>(at) = 7; }'


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with array_worker() as made:
        yield made


def compiled(session: Session, source: str, name: str, *options: str) -> int:
    return session.run("kernel.compile", [source, name], [V, V, [Tag.LIST, *options]])


def launch(
    session: Session,
    kernel: int,
    shape: tuple[Sequence[int], Sequence[int]],
    values: Sequence[tuple[Any, Any]],
    shared: int = 0,
) -> None:
    """Launches a kernel; values: slot and value of each argument."""
    grid, block = ([Tag.TUPLE, *part] for part in shape)
    kinds = [Tag.TUPLE, *(kind for kind, _ in values)]
    session.run(
        "kernel.launch",
        [kernel, *(value for _, value in values)],
        [A, grid, block, kinds, shared],
        0,
    )


def test_a_saxpy(session: Session) -> None:
    x, y = np.arange(10_000, dtype=np.float32), np.ones(10_000, np.float32)
    on_x, on_y = session.put(x), session.put(y)
    kernel = compiled(session, SAXPY, "saxpy")
    values = [(scalar("float32"), 2.5), (A, on_x), (A, on_y), (scalar("int32"), 10_000)]
    for _ in range(3):
        launch(session, kernel, ([40], [256]), values)
        y = np.float32(2.5) * x + y
    assert (session.read(on_y) == y).all()
    assert (session.read(on_x) == x).all()
    (name, attributes), *_ = session.issuer.describe([kernel])
    assert name == "saxpy"
    assert attributes["max_threads_per_block"] >= 256


def test_a_stencil_with_shared_memory(session: Session) -> None:
    image = np.random.default_rng(3).random((70, 50))
    on_image, on_out = session.put(image), session.put(np.zeros((70, 50)))
    kernel = compiled(session, STENCIL, "blur", "-DTILE=16", "--std=c++17")
    values = [(A, on_image), (A, on_out), (scalar("int32"), 50), (scalar("int32"), 70)]
    launch(session, kernel, ([4, 5], [16, 16]), values)
    padded = np.pad(image, 1)
    expected = sum(padded[j : j + 70, i : i + 50] for j in range(3) for i in range(3)) / 9
    np.testing.assert_allclose(session.read(on_out), expected, rtol=1e-12)


HALF = r"""
#include <cuda_fp16.h>
extern "C" __global__ void twice(__half* x) { x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]); }
"""


@needs("cuda-headers")
def test_a_kernel_with_a_header_of_cuda(session: Session) -> None:
    x = np.arange(32, dtype=np.float16)
    on_x = session.put(x)
    launch(session, compiled(session, HALF, "twice"), ([1], [32]), [(A, on_x)])
    assert (session.read(on_x) == x + x).all()


@pytest.mark.parametrize("kind", ["int", "double"])
def test_a_reduction_with_atomics(session: Session, kind: str) -> None:
    dtype = {"int": np.int32, "double": np.float64}[kind]
    numbers = np.arange(100_000).astype(dtype) % 1000
    on_numbers, on_out = session.put(numbers), session.put(np.zeros(1, dtype))
    kernel = compiled(session, SUM, f"total<{kind}>")
    values = [(A, on_numbers), (A, on_out), (V, 100_000)]
    launch(session, kernel, ([8], [128]), values, shared=128 * numbers.itemsize)
    assert session.read(on_out)[0] == numbers.sum()


def test_results_are_arguments_of_kernels(session: Session) -> None:
    on_x = session.put(np.full(100, 3, np.float32))
    twice = session.run("add", [on_x, on_x], [A, A])
    kernel = compiled(session, SAXPY, "saxpy")
    values = [(scalar("float32"), 2.0), (A, twice), (A, on_x), (scalar("int32"), 100)]
    launch(session, kernel, ([1], [128]), values)
    assert (session.read(on_x) == 15).all()


def test_a_long_source_comes_as_an_array(session: Session) -> None:
    source = SAXPY + "\n".join(f"// {n:1000}" for n in range(200))
    long = session.put(np.frombuffer(source.encode(), np.uint8))
    kernel = session.run("kernel.compile", [long, "saxpy"], [A, V])
    assert session.issuer.describe([kernel])[0][0] == "saxpy"


def fails(session: Session, wanted: int, match: str) -> None:
    with pytest.raises(RemoteError, match=match):
        session.issuer.describe([wanted])


def test_a_wrong_source_gets_the_compilers_log(session: Session) -> None:
    kernel = compiled(session, "__global__ void f() { return 1; }", "f")
    match = (
        r"cupy\.cuda\.compiler\.CompileException: kernel\.cu\(1\): error: (.|\n)*1 error detected"
    )
    fails(session, kernel, match)


def test_a_source_reads_no_file(session: Session) -> None:
    kernel = compiled(session, '#include "/etc/passwd"\n', "f")
    with pytest.raises(RemoteError, match="cannot open source file") as caught:
        session.issuer.describe([kernel])
    assert "root" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "match"),
    [
        (("-I/etc",), "the option '-I/etc' is not offered on a remote GPU"),
        (("--include-path=/etc",), "is not offered"),
        (("-include", "x"), "is not offered"),
        (("--gpu-architecture=compute_75",), "is not offered"),
        (("-DX=1\0-I/etc",), "is not offered"),
        (("--pre-include=/etc/passwd",), "is not offered"),
    ],
)
def test_options_that_name_files_are_refused(
    session: Session, wanted: tuple[str, ...], match: str
) -> None:
    fails(session, compiled(session, SAXPY, "saxpy", *wanted), match)


def test_options_that_change_the_code_are_taken() -> None:
    wanted = [
        "-DA",
        "-DA=b c",
        "-UA",
        "-std=c++17",
        "--use_fast_math",
        "-fmad=false",
        "-w",
        "--maxrregcount=32",
    ]
    assert checked_options(wanted) == tuple(wanted)
    assert checked_options([]) == ()
    for wrong in ("-std=c++17", [1], ["-DA"] * 65, ["-D" + "A" * 5000]):
        with pytest.raises(ValueError, match="options"):
            checked_options(wrong)
    with pytest.raises(NotOfferedError):
        checked_options(["-rdc=true"])


def test_names_backends_and_sources_are_checked(session: Session) -> None:
    fails(session, compiled(session, SAXPY, "other"), "CUDADriverError: CUDA_ERROR_NOT_FOUND")
    fails(session, compiled(session, SUM, "total<nothing>"), "CompileException")
    fails(session, compiled(session, "", "f"), "1 byte to 4 MiB")
    fails(session, compiled(session, SAXPY, ""), "a kernel's name")
    other = session.run("kernel.compile", [SAXPY, "saxpy"], [V, V, [Tag.LIST], "nvcc"])
    fails(session, other, "backend='nvrtc'")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([(V, 1.5)], "has 4 parameters, and 1 arguments were given"),
        ([(V, 1.5), (A, 0), (A, 0), (V, 1)], "argument 1 of kernel saxpy is float of 8 bytes"),
        ([(scalar("float32"), 1), (V, None), (A, 0), (scalar("int32"), 1)], "Unsupported type"),
        (
            [(A, 0), (A, 0), (A, 0), (scalar("int32"), 1)],
            "is an array of 8 bytes, and the kernel expects 4",
        ),
        (
            [(scalar("float32"), 1), (A, -1), (A, 0), (scalar("int32"), 1)],
            "outside the device's memory",
        ),
    ],
)
def test_values_are_checked(session: Session, values: list[tuple[Any, Any]], match: str) -> None:
    arrays = {0: session.put(np.ones(4, np.float32)), -1: session.run("strange", [], [])}
    given = [(kind, arrays[value] if kind is A else value) for kind, value in values]
    launch(session, compiled(session, SAXPY, "saxpy"), ([1], [32]), given)
    with pytest.raises(RemoteError, match=match):
        session.issuer.sync()
    session.issuer.sync()


@pytest.mark.parametrize(
    "shape", [([0], [32]), ([1, 1, 1, 1], [32]), ([1], [1 << 20]), ([1], [-1])]
)
def test_shapes_are_checked(session: Session, shape: tuple[list[int], list[int]]) -> None:
    kernel = compiled(session, 'extern "C" __global__ void f() {}', "f")
    launch(session, kernel, shape, [])
    with pytest.raises(RemoteError, match=r"grid and block|CUDA_ERROR_INVALID_VALUE"):
        session.issuer.sync()


def test_memory_of_code_is_charged_and_released() -> None:
    source = (
        '__device__ char table[5 << 20]; extern "C" __global__ void f(char* x) { *x = table[5]; }'
    )
    # A session of its own: after a compilation that got no memory, it waits for each further one.
    with array_worker() as session:
        used, _ = session.issuer.ask("used")
        kernel = compiled(session, source, "f")
        session.issuer.sync()
        assert session.issuer.ask("used")[0] >= used + (5 << 20)
        session.issuer.free(kernel)
        too_large = compiled(session, source.replace("5 << 20", "1 << 29"), "f")
        fails(session, too_large, "MemoryError: the lease has no room for")


def test_a_wild_kernel_ends_its_session_alone(session: Session) -> None:
    on_x = session.put(np.ones(10))
    with array_worker() as other:
        kernel = compiled(other, WILD, "wild")
        launch(other, kernel, ([1], [1]), [(V, 4096)])
        with pytest.raises(
            RemoteError, match=r"CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS: .*wild"
        ):
            other.issuer.sync()
        launch(other, kernel, ([1], [1]), [(V, 4096)])
        with pytest.raises(RemoteError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
            other.issuer.sync()
    assert (session.read(on_x) == 1).all()


def test_a_kernel_cannot_reach_the_worker_itself() -> None:
    """An address of the worker's own memory, which a client may guess, is none of the device's."""
    with array_worker() as other:
        kernel = compiled(other, WILD, "wild")
        launch(other, kernel, ([1], [1]), [(V, 0x7FFF_FFFF_0000)])
        with pytest.raises((RemoteError, SessionLostError), match=r"ILLEGAL_ADDRESS|lost"):
            other.issuer.sync()


def test_device_time_is_measured_by_events() -> None:
    with array_worker("--events") as session:
        token = TokenView(session.page.address)
        token.heartbeat(time.monotonic_ns() + 3600 * 10**9)
        token.write(Phase.OPEN, 1)
        began = time.monotonic_ns()
        x = session.put(np.ones(100, np.float32))
        kernel = compiled(session, SAXPY, "saxpy")
        values = [(scalar("float32"), 1.0), (A, x), (A, x), (scalar("int32"), 100)]
        for _ in range(10):
            launch(session, kernel, ([1], [128]), values)
        assert session.read(x)[0] == 1024
        wait_until(lambda: token.demand(1, slots=1).active == 0)
        assert 0 < token.demand(1, slots=1).busy_ns < time.monotonic_ns() - began
        assert session.page.read(0).launches >= 11


@contextlib.contextmanager
def taken_place() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Yields a file of one place, and another process, which has it until it is killed."""
    places = make_file(1)
    source = f"import fcntl; fcntl.lockf({places}, fcntl.LOCK_EX, 1); print(flush=True); input()"
    other = subprocess.Popen(
        [sys.executable, "-c", source], pass_fds=(places,), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"\n"
        yield places, other
    finally:
        other.kill()
        other.communicate()
        os.close(places)


@pytest.mark.parametrize(
    ("architecture", "begins", "holds"),
    [
        (f"{CODE}90", b"\x7fELF", b""),
        (f"{PTX}90", b"//", b".target sm_90"),
        (f"{CODE}9990", b"//", b".target sm_"),  # the device is newer than NVRTC
        (f"{CODE}91", b"//", b".target sm_90"),  # there is no such device between those it knows
    ],
)
def test_a_driver_that_is_older_than_the_compiler_gets_a_devices_code(
    architecture: str, begins: bytes, holds: bytes
) -> None:
    """Such a driver refuses the compiler's PTX."""
    with contextlib.closing(SourceCompiler()) as compiler:
        source = b"template <typename T> __global__ void f(T *x) { *x = 1; }"
        done = compiler.compile(source, "k.cu", [architecture], ["f<float>"])
    assert done.code.startswith(begins)
    assert holds in done.code
    assert done.names["f<float>"].encode() in done.code


def test_nvrtc_is_found_in_cudas_toolkit_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "find_spec", lambda _: None)  # NVIDIA's packages are not installed
    monkeypatch.setenv("CUDA_PATH", str(tmp_path))
    with pytest.raises(NvrtcMissingError, match=r"install nvidia-cuda-nvrtc .* CUDA_PATH"):
        nvrtc.Nvrtc()
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libnvrtc.so.13").write_text("no library")
    with pytest.raises(NvrtcMissingError, match=r"lib64 cannot be loaded: "):
        nvrtc.Nvrtc()
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "of_toolkit.h").write_text("int x;")
    assert list(Headers().of(b"#include <of_toolkit.h>")) == ["of_toolkit.h"]


def test_a_compiler_waits_for_a_place_of_its_tenant() -> None:
    compiler = SourceCompiler()
    done: list[bytes] = []

    def compiles() -> None:
        done.append(compiler.compile(b"__global__ void f() {}", "k.cu", []).code)

    try:
        with taken_place() as (places, other):
            compiler.share(places)
            thread = threading.Thread(target=compiles)
            thread.start()
            wait_until(lambda: waited_for(places))
            assert not done
            killed(other)
            thread.join(60)
            assert [one.endswith(b"\0") for one in done] == [True]
    finally:
        compiler.close()


def threads_that_wait() -> int:
    """Returns how many threads of this process wait for a place."""
    return [one.name for one in threading.enumerate()].count("place")


def test_a_wait_for_a_place_ends_and_leaves_no_place_taken() -> None:
    compiler = SourceCompiler(wait_seconds=0.01)
    patient = SourceCompiler()
    why = r"waited 0\.01 s for other .*, of which 1 run.*compile less.*emulated\.compiler_processes"
    try:
        with taken_place() as (places, other):
            compiler.share(places)
            patient.share(places)
            for _ in range(2):
                with pytest.raises(RuntimeError, match=why):
                    compiler.compile(b"__global__ void f() {}", "k.cu", [])
            # The thread that waited in vain waits on, alone.
            wait_until(lambda: waited_for(places))
            assert threads_that_wait() == 1
            killed(other)
            # Nobody wants what that thread gets now.
            wait_until(lambda: threads_that_wait() == 0)
            assert not waited_for(places)
            assert not locked(places)
            for one in (compiler, patient):
                assert one.compile(b"__global__ void f() {}", "k.cu", []).code.endswith(b"\0")
            assert not locked(places)
    finally:
        compiler.close()
        patient.close()


def test_a_place_that_one_source_waited_for_in_vain_goes_to_the_next() -> None:
    with taken_place() as (file, other):
        places = Places(file)
        with pytest.raises(RuntimeError, match=r"waited 0\.01 s"), places.place(0.01):
            pass
        had: list[bool] = []

        def take() -> None:
            with places.place(60):
                had.append(locked(file))

        thread = threading.Thread(target=take)
        thread.start()
        wait_until(lambda: waited_for(file))
        assert not had
        killed(other)
        thread.join(60)
        assert had == [True]
        assert not locked(file)


def test_a_tenants_sessions_share_places_whatever_the_device() -> None:
    # No emulated device, so none of PTX.
    compilers = SessionCompilers(None, CompilerLimits(processes=2), Isolation())
    first, second = compilers.places(1, "alice"), compilers.places(2, "alice")
    assert first == second != compilers.places(3, "bob")
    assert PlacesFile(first).places == 2
    compilers.release(1)
    compilers.release(2)
    assert compilers.places(4, "alice") == first
    compilers.close()


@pytest.mark.parametrize(
    ("own", "compilers", "told"),
    [
        ("", "", ""),
        ("", "own-user: EPERM from setresuid", "own-user: EPERM from setresuid"),
        ("landlock: none", "own-user: none", "landlock: none; own-user: none"),
    ],
)
def test_a_worker_reports_what_its_compiler_lacks(
    monkeypatch: pytest.MonkeyPatch, own: str, compilers: str, told: str
) -> None:
    """The daemon uses no worker whose report is worse than what it allows."""
    monkeypatch.setattr(equipment, "confine", lambda **_: own)
    loaded = object.__new__(equipment.Loaded)
    loaded._emulated = True
    loaded._compiler = SimpleNamespace(report=lambda: compilers)
    assert loaded.confine() == told
    loaded._compiler = None  # PyTorch compiles no kernels
    assert loaded.confine() == own


def test_a_compiler_that_is_asked_for_too_much_refuses() -> None:
    compiler = SourceCompiler(memory_bytes=512 << 20, seconds=1)
    try:
        assert isinstance(compiler.report(), str)
        many = b"#define A(x) x x x x x x x x\n" + b"#define B(x) A(A(A(A(A(A(A(A(A(x)))))))))\n"
        with pytest.raises((RuntimeError, SourceError)):
            compiler.compile(many + b"__device__ int b[] = {B(1,)};", "k.cu", [])
        assert compiler.compile(b"__global__ void f() {}", "k.cu", []).code.endswith(b"\0")
        with pytest.raises(ValueError, match="at most 8 MiB"):
            compiler.compile(b" " * (9 << 20), "k.cu", [])
    finally:
        compiler.close()
