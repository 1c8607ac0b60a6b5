"""Grants in a second, through a manager and the servers of its nodes, all of them real processes.

Clients ask for a share of a card, hear where it is, and give it back. Each grant is an order to the
node's server, and its answer; each return is another one.
"""

from __future__ import annotations

import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.server import ManagerProcess, node
from rgpu_client.cluster.asking import ManagerClient, new_request_id
from rgpu_common.clusters import manager_endpoint
from rgpu_common.units import PPM
from rgpu_common.v1 import cluster_pb2, lease_pb2

NODES = ("gpu1", "gpu2", "gpu3")
CARDS = 2
CLIENTS = 16
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figures:
    """per_second: requests that were granted and given back. p50_ms, p99_ms: from question to
    answer, one client after the other.
    """

    per_second: float
    p50_ms: float
    p99_ms: float


def _request() -> cluster_pb2.SubmitRequest:
    quota = lease_pb2.Quota(memory_bytes=16 * MIB, share_request_ppm=PPM // 20)
    return cluster_pb2.SubmitRequest(
        request_id=new_request_id(), cards=1, quota=quota, farthest=cluster_pb2.REACH_ANY
    )


def _ask(client: ManagerClient) -> float:
    """Asks for a card and gives it back; returns the seconds from the question to the answer."""
    request = _request()
    start = time.perf_counter()
    placed = client.submit(request, 0, lambda _: None)
    seconds = time.perf_counter() - start
    assert placed.ordinals
    client.withdraw(request.request_id)
    return seconds


def _many(manager: str, seconds: float) -> float:
    """Returns the grants in a second of CLIENTS clients at once."""
    ready = threading.Barrier(CLIENTS + 1)

    def work() -> int:
        done = 0
        with ManagerClient(manager_endpoint(manager)) as client:
            _ask(client)
            ready.wait()
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                _ask(client)
                done += 1
        return done

    with ThreadPoolExecutor(CLIENTS) as pool:
        futures = [pool.submit(work) for _ in range(CLIENTS)]
        ready.wait()
        start = time.perf_counter()
        done = sum(future.result() for future in futures)
        return done / (time.perf_counter() - start)


def measure(seconds: float) -> Figures:
    """Starts a manager and its nodes, and measures for so many seconds."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rgpu-bench-")))
        manager = stack.enter_context(ManagerProcess("--log-level", "warning"))
        more = ["--device", "emulated:1GiB"] * (CARDS - 1)
        for name in NODES:
            stack.enter_context(node(manager.address, name, folder / name, *more))
        manager.has(*NODES)
        with ManagerClient(manager_endpoint(manager.address)) as client:
            for _ in range(20):
                _ask(client)
            times = sorted(_ask(client) for _ in range(int(30 * seconds)))
        per_second = _many(manager.address, seconds)
    return Figures(per_second, 1e3 * times[len(times) // 2], 1e3 * times[len(times) * 99 // 100])
