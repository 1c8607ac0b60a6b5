"""Refuses processes that this machine does not isolate, and keeps what was weakened for reports."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.errors import ServerError
from rgpu_server.core.isolation import (
    NOT_ROOT,
    OWN_USER,
    SANDBOX,
    Lack,
    Machine,
    Process,
    Rules,
    judge,
    refusal,
    weakening,
)
from rgpu_server.core.pool import device_library

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_server.config import ServerConfig

log = logging.getLogger("rgpu.isolation")

# So many weakened measures are kept: a process that says more is not believed anyway.
_MOST = 64
_FORBIDDING = (
    ("/proc/sys/user/max_user_namespaces", "0"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"),
)


class Isolation:
    """Hears every report.  weakened: what processes do without, as the operator allows."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rules = rules if rules is not None else Rules(root=os.geteuid() == 0)
        self.weakened: dict[tuple[Process, str], Lack] = {}

    def check(self, process: Process, report: str) -> str:
        """Returns "", or why a process with this report must not be used."""
        verdict = judge(process, report, self._rules)
        for lack in verdict.weakened:
            self._note(process, lack)
        if not verdict.refused:
            return ""
        return refusal([(process, lack) for lack in verdict.refused], look_at_machine())

    def require(self, reports: Iterable[tuple[Process, str]]) -> None:
        """Checks several reports at once.

        Raises:
            ServerError: with everything that is missing, and what to do.
        """
        refused: list[tuple[Process, Lack]] = []
        for process, report in reports:
            verdict = judge(process, report, self._rules)
            refused += [(process, lack) for lack in verdict.refused]
            for lack in verdict.weakened:
                self._note(process, lack)
        if refused:
            raise ServerError(refusal(refused, look_at_machine()))

    def lines(self) -> list[str]:
        """What was weakened, a line for each process and measure."""
        return [f"{process.value}: no {measure}" for process, measure in self.weakened]

    def _note(self, process: Process, lack: Lack) -> None:
        key = (process, lack.measure)
        if key not in self.weakened and len(self.weakened) < _MOST:
            self.weakened[key] = lack
            log.warning("%s", weakening(process, lack))


def isolation_of(config: ServerConfig) -> Isolation:
    """What the configuration allows.

    Raises:
        ServerError: a device needs more than this server can give; nothing was started for it.
    """
    allowed = config.allow_weak if config.sandbox else config.allow_weak | {SANDBOX}
    isolation = Isolation(Rules(allowed, root=os.geteuid() == 0))
    if config.sandbox and os.geteuid() != 0 and any(d.kind == "cuda" for d in config.devices):
        isolation.require([(Process.CUDA_WORKER, f"{OWN_USER}: {NOT_ROOT}")])
    return isolation


def worker_of(library: str) -> Process:
    """Returns which process a worker of this pool is."""
    return Process.WORKER if device_library(library) == "emulated" else Process.CUDA_WORKER


def look_at_machine() -> Machine:
    """Reads what explains a refusal."""
    status = _text("/proc/self/status")
    filtered = any(
        line.partition(":")[2].strip() == "2"
        for line in status.splitlines()
        if line.startswith("Seccomp:")
    )
    forbidding = (
        f"{path.removeprefix('/proc/sys/').replace('/', '.')} = {value}"
        for path, value in _FORBIDDING
        if _text(path).strip() == value
    )
    return Machine(filtered, next(forbidding, ""))


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
