"""How long a program waits for a large module: its load, its kernels, and a second run.

The module is a fatbin of 20 MB of PTX: copies of the Triton kernels in tests/ptx/triton, with
registers, labels and names of their own.  Processor time is what a compiler's job needs, on any
load of the machine; clock time is what a program sees, over a Unix socket.  Kernels of small
modules are in `benchmarks.emu compile`.
"""

from __future__ import annotations

import json
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Row, arguments, below, report, say
from benchmarks.server import Server, client_environment
from rgpu_emu.compile_job import Work

TRITON = Path(__file__).resolve().parent.parent / "tests/ptx/triton"
LARGE_BYTES = 20_000_000
KEY = bytes(32)
ENTRY = re.compile(r"\.visible \.entry (\w+)\(")
REGISTER = re.compile(r"%(r|rd|rs|p)(\d+)\b")
REGISTERS = re.compile(r"%(r|rd|rs|p)<(\d+)>")
HEADER = """.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 global_smem[];
"""
# Loads the module, and one of its kernels.
PROGRAM = """
import ctypes, json, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    if (result := getattr(cuda, name)(*arguments)) != 0:
        sys.exit(f"{name} gave {result}")
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
image = open(sys.argv[1], "rb").read()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
start = time.monotonic()
call("cuModuleLoadData", ctypes.byref(module), image)
loaded = time.monotonic()
call("cuModuleGetFunction", ctypes.byref(function), module, sys.argv[2].encode())
call("cuFuncLoad", function)
print(json.dumps({"load": loaded - start, "kernel": time.monotonic() - loaded}))
"""


def kernels() -> Iterator[tuple[str, str]]:
    """The name and the text of each Triton kernel."""
    for path in sorted(TRITON.glob("*.ptx")):
        text = path.read_text()
        entry = ENTRY.search(text)
        if entry is not None:
            yield entry[1], text[entry.start() : text.rindex("}") + 1]


def renamed(name: str, text: str, number: int) -> str:
    """A kernel in which every name and number is another one than in its copies."""
    text = text.replace(f"{name}_param", f"{name}_{number}_param")
    text = text.replace(f"{name}(", f"{name}_{number}(", 1).replace("$L", f"$L{number}")
    text = REGISTER.sub(lambda m: f"%{m[1]}{int(m[2]) + number}", text)
    return REGISTERS.sub(lambda m: f"%{m[1]}<{int(m[2]) + number}>", text)


def large_module(size: int) -> tuple[bytes, int]:
    """A module of at least `size` bytes, and the number of its kernels."""
    sources, parts, held = list(kernels()), [HEADER], 0
    while held < size:
        number = len(parts)
        parts.append(renamed(*sources[number % len(sources)], number) + "\n")
        held += len(parts[-1])
    return "".join(parts).encode(), len(parts) - 1


def fatbin(text: bytes) -> bytes:
    """The PTX for sm_80, as nvcc packs it, uncompressed."""
    padded = text + bytes(-len(text) % 8)
    numbers = (1, 0x101, 64, len(padded), len(text), 0, 0, 80, 64, 0, 0, 0, len(text))
    body = struct.pack("<HHIQIIIIIIQQQ", *numbers) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lowering(work: Work, name: str) -> float:
    """The processor time of one kernel of a module that is loaded, in seconds."""
    start = time.process_time()
    work.lowered(name)
    return time.process_time() - start


def job_rows(text: bytes, count: int) -> list[Row]:
    """What loading costs a compiler's job, and what a kernel costs it after the first."""
    work = Work([text])
    start = time.process_time()
    work.loaded(KEY)
    loaded = time.process_time() - start
    sources = list(kernels())
    name, alone = sources[0]
    copies = range(len(sources), count, len(sources))[:20]
    cost = statistics.median(lowering(work, f"{name}_{number}") for number in copies)
    small = []
    for _ in copies:
        work = Work([(HEADER + alone).encode()])
        work.loaded(KEY)
        small.append(lowering(work, name))
    floor = statistics.median(small)
    return [
        below(f"load {len(text) / 1e6:.0f} MB, processor time", "s", loaded, 0.5),
        Row("a kernel of it, processor time", "ms", cost * 1e3, floor * 1e3, cost / floor),
    ]


def program_rows(text: bytes, runs: int) -> list[Row]:
    """What programs wait for, on new servers and on one that has seen the module."""
    sources = list(kernels())
    name = f"{sources[0][0]}_{len(sources)}"
    figures: dict[str, list[dict[str, float]]] = {"first": [], "second": []}
    with TemporaryDirectory() as folder:
        image = Path(folder) / "large.fatbin"
        image.write_bytes(fatbin(text))
        command = [sys.executable, "-c", PROGRAM, str(image), name]
        for _ in range(runs):
            with Server(device="emulated:4GiB") as server:
                for which in figures:
                    result = subprocess.run(
                        command,
                        env=client_environment(server, "unix"),
                        check=True,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    figures[which].append(json.loads(result.stdout))

    def mid(which: str, key: str) -> float:
        return statistics.median(figure[key] for figure in figures[which])

    return [
        below("load of the fatbin, first run", "s", mid("first", "load"), 0.5),
        below("load of the fatbin, second run", "s", mid("second", "load"), 0.5),
        Row("a kernel of it, first run", "ms", mid("first", "kernel") * 1e3),
        Row("a kernel of it, second run", "ms", mid("second", "kernel") * 1e3),
    ]


def main() -> int:
    options = arguments(__doc__ or "", ("job", "program"))
    rows: list[Row] = []
    text, count = large_module(LARGE_BYTES)
    if "job" in options.parts:
        say("a compiler's job")
        rows += job_rows(text, count)
    if "program" in options.parts:
        say("programs")
        rows += program_rows(text, 1 if options.quick else 5)
    report("startup", rows, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
