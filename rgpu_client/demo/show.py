"""Runs the demo: starts the server and the programs, watches them, and prints a summary."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_client.control import ControlClient, LeaseRequest
from rgpu_client.own_server import own_server
from rgpu_client.program_environment import HIDE_NVJITLINK, client_environment, library_path
from rgpu_common.endpoints import Endpoint, parse_endpoint
from rgpu_common.errors import MissingPartError
from rgpu_common.installing import install_words
from rgpu_common.tables import table
from rgpu_common.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rgpu_common.v1 import session_pb2

MIB = 1 << 20
DEADLINE_SECONDS = 300.0
_NEEDS = {"numba_cuda": "numba-cuda", "numpy": "numpy", "llvmlite": "llvmlite"}
_NEXT = """
what next, each in a terminal of its own (`rgpu help client` says more):
  rgpu serve                                 a server for the programs of this machine
  rgpu run --memory 1GiB -- python FILE.py   a program of yours on it
  rgpu top                                   who uses the device"""


@dataclass(slots=True)
class Part:
    """One program in one lease. steps: the results that it has reported so far."""

    title: str
    program: str
    memory_bytes: int
    share_ppm: int = 0
    words: tuple[str, ...] = ()
    arrays: bool = False
    steps: list[tuple[str, bool, float]] = field(default_factory=list)
    lease_id: str = ""
    status: int | None = None
    errors: str = ""

    def environment(self, clean: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
        """Returns the program's environment. One that uses arrays needs no driver library."""
        if self.arrays:
            return {**clean, **variables}
        # PyTorch brings nvJitLink, with which numba-cuda sends machine code.
        hidden = {**variables, HIDE_NVJITLINK: "1"}
        return client_environment(clean, hidden, library_path())

    @property
    def right(self) -> bool:
        return self.status == 0 and bool(self.steps) and all(right for _, right, _ in self.steps)


def run_demo(verbose: bool = False) -> bool:
    """Runs the demo and prints its progress. Returns whether all results were as expected.

    Raises:
        MissingPartError: a package that the demo needs is not installed.
        ServerError: the server did not start.
    """
    check_needs(_NEEDS)
    parts = [
        Part("calculate", "calculate.py", 256 * MIB),
        Part("overfill", "overfill.py", 96 * MIB),
    ]
    with tempfile.TemporaryDirectory(prefix="rgpu-demo-") as folder:
        log_path = Path(folder) / "server.log"
        print("starting a server with an emulated device of 1 GiB ...", flush=True)
        print("(its only tenant is this demo, so it may run with weak isolation)", flush=True)
        with server(log_path) as endpoint, ControlClient(endpoint) as client:
            print(f"it serves on {endpoint}\n", flush=True)
            _run_parts(parts, client, endpoint)
            usages = {part.lease_id: client.usage(part.lease_id)[0] for part in parts}
        if verbose:
            print(log_path.read_text(encoding="utf-8", errors="replace"))
    _summary(parts, usages)
    good = all(_as_expected(part, usages[part.lease_id]) for part in parts)
    if good:
        print(_NEXT)
    return good


def check_needs(needs: Mapping[str, str], extra: str = "demo") -> None:
    """Checks that packages are installed. needs: module -> package.

    Raises:
        MissingPartError: one is not.
    """
    missing = [name for module, name in needs.items() if find_spec(module) is None]
    if missing:
        raise MissingPartError(f"the demo needs {', '.join(missing)}: {install_words(extra)}")


@contextmanager
def server(log_path: Path) -> Iterator[Endpoint]:
    """Runs a server with an emulated device of 1 GiB; raises ServerError if it does not start."""
    with own_server("127.0.0.1:0", "1GiB", log_path) as address:
        yield parse_endpoint(address)


def _run_parts(parts: list[Part], client: ControlClient, endpoint: Endpoint) -> None:
    for part in parts:
        grant(part, client)
        print(f"lease {part.title!r}: {format_bytes(part.memory_bytes)}, program {part.program}")
    print(flush=True)
    news: queue.Queue[tuple[Part, str]] = queue.Queue()
    threads = [threading.Thread(target=run_part, args=(p, endpoint, news)) for p in parts]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    while any(part.status is None for part in parts):
        try:
            part, line = news.get(timeout=5.0)
        except queue.Empty:
            print(f"  ... {time.monotonic() - started:.0f} s", flush=True)
            continue
        if line:
            print(f"  [{part.title}] {line}", flush=True)
    for thread in threads:
        thread.join()


def grant(part: Part, client: ControlClient) -> None:
    """Gets a part its lease."""
    request = LeaseRequest(
        tenant="demo",
        key=part.title,
        memory_bytes=part.memory_bytes,
        share_request_ppm=part.share_ppm,
        ttl_seconds=DEADLINE_SECONDS,
    )
    part.lease_id = client.grant(request).lease_id


def run_part(part: Part, endpoint: Endpoint, news: queue.Queue[tuple[Part, str]]) -> None:
    """Runs a part's program to its end, and tells what it prints."""
    variables = {
        "RGPU_SERVER": str(endpoint),
        "RGPU_TENANT": "demo",
        "RGPU_LEASE": part.title,
        "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0",
    }
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    process = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "programs" / part.program), *part.words],
        env=part.environment(clean, variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )
    timer = threading.Timer(DEADLINE_SECONDS, process.kill)
    timer.start()
    errors: list[str] = []
    assert process.stdout is not None
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: errors.extend(process.stderr or ()))
    reader.start()
    for line in process.stdout:
        news.put((part, _take_step(part, line)))
    status = process.wait()
    reader.join()
    timer.cancel()
    process.stdout.close()
    process.stderr.close()
    part.errors = "".join(errors)
    part.status = status
    news.put((part, "" if status == 0 else f"ended with exit code {status}"))


def _take_step(part: Part, line: str) -> str:
    try:
        step = json.loads(line)
        name, right, seconds = str(step["step"]), bool(step["right"]), float(step["seconds"])
    except (ValueError, KeyError, TypeError):
        return line.rstrip()
    part.steps.append((name, right, seconds))
    return f"{name}: {'right' if right else 'WRONG'} ({format_seconds(seconds)})"


def _as_expected(part: Part, usage: session_pb2.LeaseUsage) -> bool:
    """Returns whether the numbers are right, the memory limit held, and only the program that asks
    for too much was refused memory.
    """
    held = usage.usage.memory_peak_bytes <= usage.memory_limit_bytes
    refused = usage.usage.refused_allocations > 0
    return part.right and held and refused == (part.title == "overfill")


def _summary(parts: list[Part], usages: dict[str, session_pb2.LeaseUsage]) -> None:
    rows = []
    for part in parts:
        usage = usages[part.lease_id]
        rows.append(
            (
                part.title,
                format_bytes(usage.memory_limit_bytes),
                format_bytes(usage.usage.memory_peak_bytes),
                str(usage.usage.refused_allocations),
                str(usage.usage.launches),
                f"{sum(right for _, right, _ in part.steps)} of {len(part.steps)} right",
                format_seconds(sum(seconds for _, _, seconds in part.steps)),
                "as expected" if _as_expected(part, usage) else "NOT as expected",
            )
        )
    titles = ("lease", "memory>", "peak>", "refused>", "launches>", "results", "time>", "verdict")
    print("\n" + table(titles, rows))
    for part in parts:
        if part.errors and not part.right:
            print(f"\n[{part.title}] printed on stderr:\n{part.errors}")
