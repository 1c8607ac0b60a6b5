"""The built libraries export what the specification lists, and answer cuGetProcAddress by it."""

from __future__ import annotations

import importlib.util
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from cudaspec import rows

LIBRARIES = {
    "shim": ("rgpu_client", "libcuda.so.1"),
    "emu": ("rgpu_emu", "librgpu_emu.so"),
}
# Asks by (name, version, flags); prints result, status, and whether the pointer is `symbol`.
ASK = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
ask = library.cuGetProcAddress_v2
ask.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64,
                ctypes.POINTER(ctypes.c_int)]
answers = []
for name, version, flags, symbol in json.loads(sys.argv[2]):
    pointer, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = ask(name.encode(), ctypes.byref(pointer), version, flags, ctypes.byref(status))
    same = symbol and pointer.value == ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    answers.append([result, status.value, bool(same)])
print(json.dumps(answers))
"""
FOUND, NOT_FOUND, TOO_OLD = [0, 0, True], [0, 1, False], [0, 2, False]
QUESTIONS = [
    ("cuMemAlloc", 12000, 0, "cuMemAlloc_v2", FOUND),
    ("cuInit", 13050, 0, "cuInit", FOUND),
    ("cuLaunchKernel", 13000, 0, "cuLaunchKernel", FOUND),
    ("cuLaunchKernel", 13000, 2, "cuLaunchKernel_ptsz", FOUND),
    ("cuMemcpyHtoD", 13000, 2, "cuMemcpyHtoD_v2_ptds", FOUND),
    ("cuInit", 13000, 2, "cuInit", FOUND),
    ("cuCtxCreate", 12000, 0, "cuCtxCreate_v3", FOUND),
    ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4", FOUND),
    ("cuCtxSynchronize", 12080, 0, "cuCtxSynchronize", FOUND),
    ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2", FOUND),
    ("cuStreamDestroy", 2000, 0, "cuStreamDestroy", FOUND),
    ("cuMemAlloc", 2000, 0, "", NOT_FOUND),  # the 32-bit version
    ("cuMemAllocAsync", 11010, 0, "", TOO_OLD),
    ("cuImportExternalMemory", 13000, 0, "", NOT_FOUND),
    ("cuNoSuchFunction", 13000, 0, "", NOT_FOUND),
    ("", 13000, 0, "", NOT_FOUND),
]


def _library(name: str) -> Path:
    package, file = LIBRARIES[name]
    found = importlib.util.find_spec(package)
    assert found is not None, f"{package} is not installed: python -m pip install '.[test]'"
    paths = [Path(place) / "lib" / file for place in found.submodule_search_locations or ()]
    return next(path for path in paths if path.is_file())


def _defined(path: Path) -> set[str]:
    """The dynamic symbols that an ELF library (64 bits, little-endian) defines."""
    data = path.read_bytes()
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    dynsym = next(section for section in sections if section[1] == 11)  # SHT_DYNSYM
    names = sections[dynsym[6]][4]
    found = set()
    for at in range(dynsym[4], dynsym[4] + dynsym[5], 24):
        name, _, _, section, _, _ = struct.unpack_from("<IBBHQQ", data, at)
        if section:
            end = data.index(b"\0", names + name)
            found.add(data[names + name : end].decode())
    return found


@pytest.mark.parametrize("name", LIBRARIES)
def test_exported_symbols_equal_the_list(spec: rows.Spec, name: str) -> None:
    assert _defined(_library(name)) == {*spec.exported, *spec.extra_exports[name]}


@pytest.mark.parametrize("name", LIBRARIES)
def test_get_proc_address(name: str) -> None:
    questions = json.dumps([question[:4] for question in QUESTIONS])
    command = [sys.executable, "-c", ASK, str(_library(name)), questions]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    answers = json.loads(done.stdout)
    wrong = [(q, a) for q, a in zip(QUESTIONS, answers, strict=True) if q[4] != a]
    assert not wrong
