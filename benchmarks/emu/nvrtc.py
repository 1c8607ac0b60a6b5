"""CUDA C++ to PTX."""

from __future__ import annotations

from cuda.bindings import nvrtc


def compile_cuda(source: str) -> str:
    """The PTX of `source` for compute capability 8.0; RuntimeError with NVRTC's log if it fails."""
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"benchmark.cu", 0, [], [])
    options = [b"-std=c++17", b"-arch=compute_80"]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if int(status) != 0:
        _, size = nvrtc.nvrtcGetProgramLogSize(program)
        log = b" " * max(size, 2)
        nvrtc.nvrtcGetProgramLog(program, log)
        raise RuntimeError(log.decode())
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode().rstrip("\0")
