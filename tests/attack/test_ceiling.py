"""A worker's hard ceiling: it holds when the charge of memory has a defect."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from helpers.waiting import wait_until
from worker.client import Gone
from worker.warm import LIMIT, LeasePage, open_session, pooled

HERE = Path(__file__).resolve().parent
# docs/explanation/quotas-memory.md
OVERHEAD_BYTES = 4 << 30
OUT_OF_MEMORY = 2


def hoard(folder: Path) -> Path:
    """Builds the library that imitates the defect."""
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler"
    library = folder / "hoard.so"
    command = [compiler, "-std=c++20", "-O1", "-shared", "-fPIC", HERE / "hoard.cc", "-o", library]
    subprocess.run(command, check=True, timeout=600)
    return library


def test_a_defect_in_the_charge_stops_at_the_ceiling(tmp_path: Path) -> None:
    """The library touches no page of its memory: the ceiling bounds the memory that the worker may
    map.
    """
    library, report = hoard(tmp_path), tmp_path / "report"
    preload = {"LD_PRELOAD": str(library), "HOARD_REPORT": str(report)}
    with pooled("--no-sandbox", **preload) as warm, pooled("--no-sandbox") as beside:
        beside.hear()
        neighbour = open_session(beside, LeasePage(LIMIT))
        warm.hear()
        try:
            client = open_session(warm, LeasePage(LIMIT))
            wait_until(lambda: report.exists() and report.read_text().endswith("\n"), 60)
            address = client.result("rgpuMemAlloc", bytes=4096).values.get("dptr", 0)
            for stream in range(20, 60):
                client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
                client.wait_value(stream, int(str(address)), 1)
            # Their threads have no stacks to start on.
            assert client.result("rgpuPing", echo=1).status == 0
            assert client.result("rgpuMemGetInfo").status == OUT_OF_MEMORY
        except (Gone, ConnectionError):
            assert warm.process.wait(20) != 0
        wait_until(lambda: report.exists() and report.read_text().endswith("\n"), 60)
        hoarded = int(report.read_text())
        assert OVERHEAD_BYTES // 2 < hoarded <= LIMIT + OVERHEAD_BYTES
        assert neighbour.result("rgpuMemAlloc", bytes=4096).status == 0
