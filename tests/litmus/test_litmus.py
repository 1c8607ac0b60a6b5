"""The litmus programs on the emulated device: in process, over both transports, and both again in
hostile timing.  Five seconds each.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.clients import environment
from helpers.server import Server
from litmus import programs

from rgpu_common.parts import compiled_part

COMPILER = f"{sys.executable} -m rgpu_emu.compiler"
HOSTILE_SEEDS = (1, 2)
# 64 MiB both ways per round; as many as the copies of a small machine do in half the limit.
ROUNDS = "12"


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


@pytest.fixture(scope="module", params=["normal", "hostile:5"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with Server(device="emulated:1GiB", RGPU_EMU_TIMING=request.param) as running:
        yield running


def over_the_wire(server: Server, transport: str, **extra: str) -> dict[str, str]:
    """Two processes of a program share one lease."""
    return environment(
        server.address(transport), RGPU_LEASE="litmus", LITMUS_ROUNDS=ROUNDS, **extra
    )


@pytest.mark.parametrize("timing", ["normal", *(f"hostile:{seed}" for seed in HOSTILE_SEEDS)])
@pytest.mark.parametrize("name", programs.NAMES)
def test_in_process(name: str, timing: str, binaries: Path, cache: Path) -> None:
    result = programs.run(binaries / name, in_process(cache, timing))
    assert result.ok, result.text


@pytest.mark.parametrize("transport", ["unix", "tcp"])
@pytest.mark.parametrize("name", programs.NAMES)
def test_over_the_wire(name: str, transport: str, binaries: Path, server: Server) -> None:
    result = programs.run(binaries / name, over_the_wire(server, transport))
    assert result.ok, result.text
