"""Programs of tests that ask rgpu's NVML through nvidia-ml-py, and tenants that use a device."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers import clients

MIB = 1 << 20
# Stays with a session and this much memory until its input ends; with work it launches all the time.
HOLDS = """
import select, sys
PTX = b'''
.version 8.0
.target sm_80
.address_size 64
.visible .entry hold(.param .u64 ns)
{
    .reg .pred %p<2>; .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [ns];
    mov.u64 %rd2, %globaltimer;
    add.u64 %rd3, %rd2, %rd1;
again:
    nanosleep.u32 100000;
    mov.u64 %rd4, %globaltimer;
    setp.lt.u64 %p1, %rd4, %rd3;
    @%p1 bra again;
    ret;
}
\\0'''
cuda.open()
held = cuda.alloc(BYTES)
hold = cuda.function(cuda.load(PTX), "hold") if WORKS else None
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0 if WORKS else None)[0]:
    cuda.launch(hold, 1, 1, 5_000_000)
    cuda.synchronize()
"""
ASKS = """
import json, sys
import pynvml as nvml
def tried(name, *arguments):
    try:
        return getattr(nvml, name)(*arguments)
    except nvml.NVMLError as error:
        return f"error {error.value}"
def processes(device):
    rows = nvml.nvmlDeviceGetComputeRunningProcesses(device)
    return [[row.pid, row.usedGpuMemory] for row in rows]
def device(index=0):
    return nvml.nvmlDeviceGetHandleByIndex(index)
"""
SHOWS = """
def show(value):
    print(json.dumps(value))
"""


@contextmanager
def tenant(
    server: str,
    used_bytes: int = 64 * MIB,
    works: bool = False,
    script: Path | None = None,
    **environment: str,
) -> Iterator[subprocess.Popen[str]]:
    """Runs a program that holds memory in its lease, and works if asked to; yields once it does.

    script: is written, and gives the program its name.
    """
    words = clients.command(f"BYTES, WORKS = {used_bytes}, {works}\n{HOLDS}")
    if script is not None:
        script.write_text(words[-1])
        words[-2:] = [str(script)]
    with subprocess.Popen(
        words, env=clients.environment(server, **environment), cwd="/", stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first == "ready\n", process.communicate(timeout=60)[1]
            yield process
        finally:
            process.kill()


def ask(server: str | None, source: str, **environment: str) -> Any:
    """Returns what `source` passes to `show`, a function that it calls once."""
    done = run(server, SHOWS + textwrap.dedent(source), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(server: str | None, source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `source` after ASKS. Nothing in it loads the driver library."""
    return subprocess.run(
        [sys.executable, "-c", ASKS + textwrap.dedent(source)],
        env=clients.environment(server, **environment), cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def tool(name: str, *arguments: str, **environment: str) -> str:
    """Runs a tool of this Python's environment; returns its output."""
    server = environment.pop("RGPU_SERVER")
    done = subprocess.run(
        [str(Path(sys.executable).parent / name), *arguments],
        env=clients.environment(server, **environment), cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
