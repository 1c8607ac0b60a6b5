"""`rgpu demo --arrays`: PyTorch trains beside a numba-cuda program, each with its share."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.control import ControlClient
from rgpu_client.demo.show import MIB, Part, check_needs, grant, run_part, server
from rgpu_common.tables import table
from rgpu_common.units import PPM, format_bytes, format_part, format_share

if TYPE_CHECKING:
    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1.observe_pb2 import LeaseNow

SECONDS = 15
_DEADLINE_SECONDS = 240.0
# The shares of the leases end within so much of what they were granted. The demo shows how shares
# hold; benchmarks.quota measures how exactly.
_OFF_PPM = PPM // 10
_NEEDS = {"torch": "torch", "msgpack": "msgpack"}
_DRIVER_NEEDS = {"numba_cuda": "numba-cuda", "numpy": "numpy", "llvmlite": "llvmlite"}


def run_arrays(verbose: bool = False) -> bool:
    """Runs the demo and prints its progress. Returns whether all was as expected.

    Raises:
        MissingPartError: a package that the demo needs is not installed.
        ServerError: the server did not start.
    """
    check_needs(_DRIVER_NEEDS)
    # A step of its own: with both extras at once pip finds no cuda-toolkit that suits both.
    check_needs(_NEEDS, "torch")
    parts = [
        Part("train", "train.py", 384 * MIB, 40 * PPM // 100, (str(SECONDS),), arrays=True),
        Part("compute", "compute.py", 128 * MIB, 60 * PPM // 100, (str(SECONDS),)),
    ]
    with tempfile.TemporaryDirectory(prefix="rgpu-demo-") as folder:
        log_path = Path(folder) / "server.log"
        print("starting a server with an emulated device of 1 GiB ...", flush=True)
        with server(log_path) as endpoint, ControlClient(endpoint) as client:
            for part in parts:
                grant(part, client)
                share = format_share(part.share_ppm)
                print(f"lease {part.title!r}: {share} of the device, program {part.program}")
            print(flush=True)
            shares, last = _watch(parts, client, endpoint)
        if verbose:
            print(log_path.read_text(encoding="utf-8", errors="replace"))
    return _summary(parts, shares, last)


def _watch(
    parts: list[Part], client: ControlClient, endpoint: Endpoint
) -> tuple[dict[str, float], dict[str, LeaseNow]]:
    """Runs the programs. Returns each lease's part of the time in which the device worked for
    either while both ran, and the last figures of the leases.
    """
    news: queue.Queue[tuple[Part, str]] = queue.Queue()
    threads = [threading.Thread(target=run_part, args=(part, endpoint, news)) for part in parts]
    for thread in threads:
        thread.start()
    running: set[str] = set()
    first: dict[str, int] = {}
    after = last = _now(client)
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while any(part.status is None for part in parts) and time.monotonic() < deadline:
        both = len(running) == len(parts) and all(part.status is None for part in parts)
        try:
            part, line = news.get(timeout=1.0)
        except queue.Empty:
            pass
        else:
            running.add(part.title)
            if line:
                print(f"  [{part.title}] {line}", flush=True)
        last = _now(client)
        if both and not first:
            first = {title: lease.device_ns for title, lease in last.items()}
        elif both:
            after = last
    for thread in threads:
        thread.join()
    used = {title: after[title].device_ns - first.get(title, 0) for title in first}
    total = sum(used.values()) or 1
    return {title: value / total for title, value in used.items()}, last


def _now(client: ControlClient) -> dict[str, LeaseNow]:
    return {lease.key: lease for lease in client.now().leases}


def _summary(parts: list[Part], shares: dict[str, float], last: dict[str, LeaseNow]) -> bool:
    rows, good = [], True
    for part in parts:
        got = shares.get(part.title, 0.0)
        fair = part.status == 0 and abs(got * PPM - part.share_ppm) <= _OFF_PPM
        good = good and fair
        lease = last[part.title]
        rows.append(
            (
                part.title,
                format_share(part.share_ppm),
                format_part(round(got * PPM)),
                format_bytes(lease.memory_limit_bytes),
                format_bytes(lease.memory_peak_bytes),
                "as expected" if fair else "NOT as expected",
            )
        )
    titles = ("lease", "share>", "got>", "memory>", "peak>", "verdict")
    print("\n" + table(titles, rows))
    for part in parts:
        if part.errors and part.status != 0:
            print(f"\n[{part.title}] printed on stderr:\n{part.errors}")
    return good
