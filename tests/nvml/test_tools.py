"""Tools that people use, against an emulated device: nvitop, gpustat and `rgpu smi`."""

from __future__ import annotations

import json

from helpers.command import run_rgpu_plain
from helpers.needs import needs
from helpers.nvml_client import MIB, tenant, tool
from helpers.server import Server

from rgpu_client.observe.nvml import Card, Node, Process
from rgpu_client.observe.smi_table import smi_lines

LEASE = {"RGPU_LEASE": "tools", "RGPU_MEMORY": "256MiB"}


@needs("gpustat")
def test_gpustat(server: Server) -> None:
    with tenant(server.unix, **LEASE) as process, tenant(server.unix, RGPU_LEASE="other"):
        shown = json.loads(tool("gpustat", "--json", RGPU_SERVER=server.unix, **LEASE))
        [gpu] = shown["gpus"]
        assert (gpu["memory.used"], gpu["memory.total"]) == (64, 256)
        assert [(row["pid"], row["gpu_memory_usage"]) for row in gpu["processes"]] == [
            (process.pid, 64)
        ]
        assert "rgpu emulated device" in tool("gpustat", RGPU_SERVER=server.unix, **LEASE)


@needs("nvitop")
def test_nvitop(server: Server) -> None:
    with tenant(server.unix, **LEASE) as process, tenant(server.unix, RGPU_LEASE="other") as other:
        shown = tool("nvitop", "--once", "--no-unicode", RGPU_SERVER=server.unix, **LEASE)
        assert "256.0MiB" in shown
        assert f" {process.pid} C" in shown
        assert str(other.pid) not in shown


def test_rgpu_smi(server: Server) -> None:
    with tenant(server.unix, **LEASE) as process, tenant(server.unix, RGPU_LEASE="other"):
        done = run_rgpu_plain("smi", "--server", server.unix, "--lease", "tools")
        assert done.returncode == 0, done.stderr
        assert "64MiB / 256MiB" in done.stdout
        done = run_rgpu_plain("smi", "--server", server.unix, "--lease", "tools", "--json")
        node = json.loads(done.stdout)
    [card] = node["devices"]
    assert (card["name"], card["memory_total_bytes"]) == ("rgpu emulated device", 256 * MIB)
    assert [row["pid"] for row in card["processes"]] == [process.pid]
    assert (card["temperature_c"], card["power_mw"]) == (None, None)


def test_rgpu_smi_reaches_a_server_through_http2(server: Server) -> None:
    done = run_rgpu_plain("smi", "--server", server.grpc, "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["devices"]) == 1


def test_rgpu_smi_without_a_server_says_so() -> None:
    done = run_rgpu_plain("smi", "--server", "127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr


def test_the_table_has_lines_of_one_width() -> None:
    busy = tuple(
        Process(pid, "a program with a very long name " * 4, 1 << 30) for pid in (1, 2**31)
    )
    cards = (
        Card(0, "NVIDIA H100 80GB HBM3 with a name that is too long", "GPU-1", "00000000:01:00.0", "9.0",
             80 << 30, 79 << 30, 100, 61, 650_400, 700_000, 100, 0, busy),
        Card(15, None, None, None, None, None, None, None, None, None, None, None, None, ()),
    )  # fmt: skip
    for devices in (cards, cards[1:], ()):
        node = Node("580.65.06", "13.0.1.0", "13.0", devices)
        lines = [line for line in smi_lines(node, "now")[1:] if line]
        assert {len(line) for line in lines} == {len(lines[0])}, "\n".join(lines)
    text = "\n".join(smi_lines(Node("580.65.06", "13.0.1.0", "13.0", cards), "now"))
    for word in ("650W / 700W", "61C", "P0", "81920MiB", "100%", "N/A", "580.65.06"):
        assert word in text
