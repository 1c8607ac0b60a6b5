"""CUDA C++ to PTX with NVRTC, as cuda.core compiles it."""

from __future__ import annotations

from cuda.bindings import nvrtc
from cuda.pathfinder import find_nvidia_header_directory

OPTIONS = ("-std=c++17", "-arch=compute_80")


def compile_cuda(source: str, *options: str, headers: bool = False) -> str:
    """The PTX of `source`; the compiler's log as an AssertionError when it refuses.

    headers: with CUDA's own headers, such as cooperative_groups.h.
    """
    status, program = nvrtc.nvrtcCreateProgram(source.encode(), b"test.cu", 0, [], [])
    assert int(status) == 0
    words = [*OPTIONS, *options]
    if headers:
        words += [f"-I{find_nvidia_header_directory(part)}" for part in ("cudart", "cccl")]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(words), [w.encode() for w in words])
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    # It is written into: one byte alone would be the interpreter's only b" ".
    log = b" " * max(size, 2)
    nvrtc.nvrtcGetProgramLog(program, log)
    assert int(status) == 0, log.decode()
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode().rstrip("\0")
