"""The types of the Python API, as a user's type checker sees the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs

pytestmark = [needs("mypy"), pytest.mark.full]

RIGHT = """
import asyncio
import rgpu_client

def claim() -> int:
    offered: list[rgpu_client.Device] = rgpu_client.devices("gpu-node:7700")
    with rgpu_client.claim(memory="64MiB", share=0.25, policy="burst", wait=3) as lease:
        lease.resize(memory="128MiB")
        usage: rgpu_client.Usage = lease.usage()
        return usage.memory_used_bytes + offered[0].free_bytes

async def claim_later() -> float:
    async with await rgpu_client.claim_async(memory=1 << 20) as lease:
        await lease.resize_async(share="10%")
        return (await lease.usage_async()).share

lease: rgpu_client.Lease = rgpu_client.connect("gpu-node:7700", memory="2GiB")
with rgpu_client.emulated_server() as address:
    asyncio.run(rgpu_client.devices_async(address.upper()))
"""
WRONG = """
import rgpu_client
rgpu_client.konnect("gpu-node:7700")
rgpu_client.claim(memories="2GiB")
rgpu_client.connect(memory=[2])
rgpu_client.claim().resize(kill="yes")
"""


def checked(tmp_path: Path, program: str) -> str:
    file = tmp_path / "program.py"
    file.write_text(program)
    # Outside of the checkout, so that mypy reads what is installed.
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), file.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_a_right_program_passes(tmp_path: Path) -> None:
    assert checked(tmp_path, RIGHT) == "Success: no issues found in 1 source file\n"


def test_a_wrong_program_fails_line_by_line(tmp_path: Path) -> None:
    said = checked(tmp_path, WRONG)
    for line, code in ((3, "attr-defined"), (4, "call-arg"), (5, "arg-type"), (6, "arg-type")):
        assert any(
            one.startswith(f"program.py:{line}: error") and one.endswith(f"[{code}]")
            for one in said.splitlines()
        ), said
