"""The litmus programs on the emulated device: in process, over the transports, both again in hostile
timing, and with the halts that NVIDIA's driver gets.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.counts import repeated_over
from helpers.server import Server
from litmus import programs

from rgpu_common.parts import compiled_part

COMPILER = f"{sys.executable} -m rgpu_emu.compiler"
TIMINGS = ["normal", "hostile:1", pytest.param("hostile:2", marks=pytest.mark.full)]
# Programs that must run out of memory, and their output then.
LITTLE_MEMORY = [
    ("deferred_error", "deferred_error ok\n"),
    ("local_memory_charged", "local_memory_charged ok (refused)\n"),
]
# A ring and a stream of bytes; the other stream of bytes in `make soak`.
TRANSPORTS = ["shm", "tcp", *repeated_over("unix")]
# 64 MiB both ways per round: what two busy cores copy well within the limit.
ROUNDS = "4"


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("litmus")
    programs.generate_header(folder)
    return programs.build(folder / "bin", folder)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("objects")


def in_process(cache: Path, timing: str) -> dict[str, str]:
    """Runs a program on the emulated device inside its own process."""
    return {
        **{k: v for k, v in os.environ.items() if not k.startswith("RGPU_")},
        "RGPU_LIBCUDA": str(compiled_part("rgpu_emu", "lib/librgpu_emu.so")),
        "RGPU_EMU_COMPILER": COMPILER,
        "RGPU_EMU_CACHE": str(cache),
        "RGPU_EMU_MEMORY": str(1 << 30),
        "RGPU_EMU_TIMING": timing,
        "LITMUS_ROUNDS": ROUNDS,
    }


@pytest.fixture(
    scope="module",
    params=[
        "normal",
        pytest.param("hostile:5", marks=pytest.mark.full),
        pytest.param("normal, halts in words", marks=pytest.mark.full),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("config") / "rgpu.toml"
    timing, _, halts = request.param.partition(", halts in ")
    text = f'[emulated]\ntiming = "{timing}"\n[leases]\nmemory = "256MiB"\n'
    config.write_text(text)
    # "words": as on NVIDIA's driver (rgpu_server/executor/halts.h).
    more = {"RGPU_WORKER_HALTS": halts} if halts else {}
    with Server("--config", str(config), device="emulated:16GiB", **more) as running:
        yield running


def over_the_wire(server: Server, transport: str, name: str, **extra: str) -> dict[str, str]:
    """Returns variables with a lease for each program, which its processes share. So a program that
    is still ending frees nothing in the next program's lease.
    """
    variables = {"RGPU_LEASE": name, "LITMUS_ROUNDS": ROUNDS, **extra}
    return clients.environment(server.address(transport), **variables)


@pytest.mark.parametrize("timing", TIMINGS)
@pytest.mark.parametrize("name", programs.NAMES)
def test_in_process(name: str, timing: str, binaries: Path, cache: Path) -> None:
    result = programs.run(binaries / name, in_process(cache, timing))
    assert result.ok, result.text


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", programs.NAMES)
def test_over_the_wire(name: str, transport: str, binaries: Path, server: Server) -> None:
    result = programs.run(binaries / name, over_the_wire(server, transport, f"{name}-{transport}"))
    assert result.ok, result.text


# One multiprocessor's threads need 32 MiB for 16 KiB each.
SMALL = 24 << 20


@pytest.mark.parametrize(("name", "expected"), LITTLE_MEMORY)
def test_too_little_memory_in_process(
    name: str, expected: str, binaries: Path, cache: Path
) -> None:
    variables = {**in_process(cache, "normal"), "RGPU_EMU_MEMORY": str(SMALL)}
    result = programs.run(binaries / name, variables)
    assert result.ok, result.text
    assert expected in result.text


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("name", "expected"), LITTLE_MEMORY)
def test_too_little_memory_over_the_wire(
    name: str, expected: str, transport: str, binaries: Path, server: Server
) -> None:
    variables = over_the_wire(
        server, transport, f"{name}-{transport}-small", RGPU_MEMORY=str(SMALL)
    )
    result = programs.run(binaries / name, variables)
    assert result.ok, result.text
    assert expected in result.text


def test_a_daemonised_child_keeps_nothing(server: Server) -> None:
    """A child that never calls CUDA inherits its dead parent's sockets; the memory is freed
    nevertheless.
    """
    parent = clients.start(
        server.unix,
        """
        import os, signal
        cuda.open()
        free, total = cuda.memory()
        cuda.alloc(total // 10 * 6)
        if os.fork() == 0:
            os.setsid()
            print("child", os.getpid(), flush=True)
            signal.pause()
        wait_for_line()
        """,
        RGPU_LEASE="daemonised",
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline().split()[1])
    try:
        parent.kill()
        parent.wait()
        code, output, errors = clients.run(
            server.unix,
            """
            import time
            cuda.open()
            free, total = cuda.memory()
            deadline = time.monotonic() + 60
            while cuda.memory()[0] < total // 10 * 6 and time.monotonic() < deadline:
                pass
            cuda.alloc(total // 10 * 6)
            print("there is room")
            """,
            RGPU_LEASE="daemonised",
        )
        assert (code, output) == (0, "there is room\n"), errors
    finally:
        os.kill(child, signal.SIGKILL)
        for stream in (parent.stdin, parent.stdout, parent.stderr):
            if stream is not None:
                stream.close()
