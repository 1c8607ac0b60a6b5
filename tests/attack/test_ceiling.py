"""A worker's hard ceiling: it holds when the charge of memory has a defect."""

from __future__ import annotations

import signal
from pathlib import Path

from helpers.ends import plant
from helpers.preload import preload
from helpers.waiting import wait_until
from worker.client import SECONDS, Gone
from worker.warm import LIMIT, LeasePage, open_session, pooled

HERE = Path(__file__).resolve().parent
# docs/explanation/quotas-memory.md
OVERHEAD_BYTES = 4 << 30
OUT_OF_MEMORY = 2


def test_a_defect_in_the_charge_stops_at_the_ceiling(tmp_path: Path) -> None:
    """The library touches no page of its memory: the ceiling bounds the memory that the worker may
    map.
    """
    plant(signal.SIGABRT)  # the worker ends so where an allocation of its own finds no memory
    report = tmp_path / "report"
    defect = preload(HERE / "hoard.cc", tmp_path) | {"HOARD_REPORT": str(report)}
    with pooled("--no-sandbox", **defect) as warm, pooled("--no-sandbox") as beside:
        beside.hear()
        neighbour = open_session(beside, LeasePage(LIMIT))
        warm.hear()
        try:
            client = open_session(warm, LeasePage(LIMIT))
            wait_until(lambda: report.exists() and report.read_text().endswith("\n"))
            address = client.result("rgpuMemAlloc", bytes=4096).values.get("dptr", 0)
            for stream in range(20, 60):
                client.post("rgpuStreamCreate", stream=stream, flags=1, priority=0)
                client.wait_value(stream, int(str(address)), 1)
            # Their threads have no stacks to start on.
            assert client.result("rgpuPing", echo=1).status == 0
            assert client.result("rgpuMemGetInfo").status == OUT_OF_MEMORY
        except (Gone, ConnectionError):
            assert warm.process.wait(SECONDS) != 0
        # A worker that has ended had no memory for one more thread while the defect took the last.
        hoarded = int(report.read_text())
        assert OVERHEAD_BYTES // 2 < hoarded <= LIMIT + OVERHEAD_BYTES
        assert neighbour.result("rgpuMemAlloc", bytes=4096).status == 0
