"""Code that is longer than rgpu sends to a server: the program's user reads how long it may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import clients

LIMIT = 256 << 20
SOURCE = """
import struct
from ctypes import byref, c_size_t, c_void_p
cuda.open()
handle = c_void_p()
cuda("cuLinkCreate_v2", 0, None, None, byref(handle))
link = handle.value
fatbin = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, LIMIT)
calls = {
    "fatbin": lambda: cuda.result("cuModuleLoadData", byref(handle), fatbin),
    "text": lambda: cuda.result("cuModuleLoadData", byref(handle), b" " * LIMIT),
    "file": lambda: cuda.result("cuModuleLoad", byref(handle), PATH),
    "link": lambda: cuda.result(
        "cuLinkAddData_v2", c_void_p(link), 1, b"", c_size_t(LIMIT + 1), b"big.ptx", 0, None, None
    ),
    "linked file": lambda: cuda.result(
        "cuLinkAddFile_v2", c_void_p(link), 1, PATH, 0, None, None
    ),
}
print(calls[WAY]())
"""
CODE = "code that this program loads (PTX, a fatbin or a cubin)"


@pytest.mark.parametrize(
    ("way", "what"),
    [("fatbin", CODE), ("text", CODE), ("file", ""), ("link", "big.ptx"), ("linked file", "")],
)
def test_the_limit_is_named(server: str, tmp_path: Path, way: str, what: str) -> None:
    file = tmp_path / "huge.ptx"
    with file.open("wb") as made:
        made.truncate(LIMIT + 1)
    names = {"LIMIT": LIMIT, "PATH": str(file).encode(), "WAY": way}
    head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    code, output, errors = clients.run(server, head + SOURCE)
    assert (code, output) == (0, "200\n"), errors
    said = [line for line in errors.splitlines() if line.startswith("rgpu: ")]
    assert said == [
        f"rgpu: {what or file} is longer than 256 MiB, the most that one load or one input of a "
        "link may have, and is refused (CUDA_ERROR_INVALID_IMAGE); divide it into several modules, "
        "or leave out the code for other GPUs (nvcc -gencode, nvprune)"
    ]
