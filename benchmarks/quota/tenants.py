"""Tenants: processes of `native/tenant.c` as clients of a server, each with a lease of its own."""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import Self

from benchmarks.quota.logs import Log
from benchmarks.server import Server, client_environment
from rgpu_common.closing import Closing

DEADLINE_SECONDS = 60.0
_FILL_NS = 200_000_000


@dataclass(frozen=True, slots=True)
class Work:
    """What a tenant keeps queued.

    pieces: the cycle as tenant.c takes it; batch: how many are queued between two waits (three
    times as many at most); kernel_ns: the longest; nominal_ns: what each piece of the cycle counts.
    """

    name: str
    pieces: tuple[str, ...]
    batch: int
    kernel_ns: int
    nominal_ns: tuple[float, ...]

    @property
    def atomic(self) -> bool:
        """Each piece is one kernel."""
        return not any(piece.startswith(("copy", "upload")) for piece in self.pieces)


def hold(name: str, *times_ns: int) -> Work:
    """Kernels that hold the device for these times without using a CPU; at least three queued."""
    mean = sum(times_ns) / len(times_ns)
    batch = max(1, min(128, int(20_000_000 / mean)))
    pieces = tuple(f"hold:{ns}" for ns in times_ns)
    return Work(name, pieces, batch, max(times_ns), tuple(map(float, times_ns)))


def compute(name: str, rounds: int) -> Work:
    """Kernels that compute on all processors, for as long as that takes (about 2 ms)."""
    return Work(name, (f"compute:{rounds}",), 16, 3_000_000, (1.0,))


def copies(name: str, size: int) -> Work:
    """Copies of so many bytes within the device."""
    return Work(name, (f"copy:{size}",), 16, 1_000_000, (1.0,))


@dataclass(frozen=True, slots=True)
class Grant:
    """What a tenant asks for: share and limit as fractions.  tenant: whose lease it is, where that
    is not a tenant of its own.
    """

    share: float
    limit: float = 1.0
    priority: int = 0
    tenant: str = ""

    def variables(self) -> dict[str, str]:
        share = {"RGPU_SHARE": f"{self.share:.6f}"} if self.share else {}
        return {
            **share,
            "RGPU_LIMIT": f"{self.limit:g}",
            **({"RGPU_PRIORITY": str(self.priority)} if self.priority else {}),
        }


class Tenant(Closing):
    """`with Tenant(...) as tenant:` has a session and has run each piece once."""

    def __init__(
        self, program: Path, server: Server, folder: Path, name: str, work: Work, grant: Grant,
        transport: str = "unix",
    ) -> None:  # fmt: skip
        self.name, self.work, self.grant = name, work, grant
        self._file = folder / f"{name}.log"
        self._command = [str(program), str(self._file), str(work.batch), ",".join(work.pieces)]
        own = {
            "RGPU_TENANT": grant.tenant or name,
            "RGPU_LEASE": f"quota-{name}",
            "RGPU_MEMORY": os.environ.get("RGPU_TEST_MEMORY", "64MiB"),
        }
        self._environment = {
            **client_environment(server, transport), **own, **grant.variables()
        }  # fmt: skip

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.wait("ready")
        return self

    def close(self) -> None:
        """Ends the tenant's process."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def tell(self, word: str) -> int:
        """ "go", "pause" or "end"; returns when, in ns of the device's clock."""
        assert self._process.stdin is not None
        now = time.time_ns()
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        return now

    def wait(self, word: str = "done") -> None:
        """Waits until the tenant has answered."""
        assert self._process.stdout is not None
        seen, _, _ = select.select([self._process.stdout], [], [], DEADLINE_SECONDS)
        answer = self._process.stdout.readline().strip() if seen else "nothing"
        if answer != word:
            raise RuntimeError(f"tenant {self.name} said {answer!r} instead of {word!r}")

    def alone(self, seconds: float) -> tuple[int, int]:
        """Works for some time and stops: the window in which its queue was full."""
        begin = self.tell("go") + _FILL_NS
        time.sleep(seconds)
        end = self.tell("pause")
        self.wait()
        return begin, end

    def finish(self) -> Log:
        """Ends the tenant: what the device counted."""
        self.tell("end")
        self.wait()
        self._process.wait(DEADLINE_SECONDS)
        return Log.read(self._file, self.work.nominal_ns)
