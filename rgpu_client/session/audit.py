"""Reports of the chosen path and the reason: a line on stderr, a line of JSON in the audit file,
and figures for a textfile collector.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from netprobe.record import user_folder
from rgpu_common.log_level import log_level

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from netprobe.prober import Measurement

_MAX_BYTES = 1 << 20
# O_NONBLOCK: opening a FIFO that nobody reads must not block.
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def is_loud(environment: Mapping[str, str]) -> bool:
    """True if choices go to stderr as well.

    Raises:
        UsageError: RGPU_LOG has no such level.
    """
    return log_level(environment) in ("info", "debug")


def say(sentence: str) -> None:
    """Writes one line to stderr."""
    sys.stderr.write(f"rgpu path: {sentence}\n")
    sys.stderr.flush()


def audit_file(environment: Mapping[str, str]) -> Path | None:
    """Returns the file to which this user's choices are appended; None if no folder is safe for
    it.
    """
    base = user_folder(environment, "XDG_STATE_HOME", ".local/state")
    return None if base is None else base / "rgpu" / "paths.jsonl"


def write_down(environment: Mapping[str, str], event: str, **facts: Any) -> None:
    """Appends a line to the audit file, and starts a new file when the old one is long.

    Errors are ignored, because a program must not fail for want of this file.
    """
    path = audit_file(environment)
    if path is None:
        return
    line = json.dumps({"at": round(time.time(), 3), "event": event, **facts}) + "\n"
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_BYTES:
            os.replace(path, path.with_suffix(".jsonl.1"))
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            # One write, because other processes may append at the same time.
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def textfile(paths: Sequence[Measurement], current: str, counters: Mapping[str, int]) -> str:
    """Returns figures in Prometheus' text format."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, rows: Sequence[tuple[str, float]]) -> None:
        lines.extend([f"# HELP {name} {text}", f"# TYPE {name} {kind}"])
        lines.extend(f"{name}{labels} {value:.9g}" for labels, value in rows)

    def label(uri: str) -> str:
        escaped = uri.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
        return f'{{path="{escaped}"}}'

    works = [path for path in paths if path.works]
    family("rgpu_path_works", "gauge", "1: the path works.",
           [(label(path.uri), float(path.works)) for path in paths])  # fmt: skip
    family("rgpu_path_chosen", "gauge", "1: the session goes over it.",
           [(label(path.uri), float(path.uri == current)) for path in paths])  # fmt: skip
    family("rgpu_path_round_trip_seconds", "gauge", "Median round trip.",
           [(label(p.uri), p.round_trip.median) for p in works if p.round_trip])  # fmt: skip
    for way in ("up", "down"):
        rows = [(label(p.uri), getattr(p, way).bytes_per_second) for p in works if getattr(p, way)]
        family(f"rgpu_path_{way}_bytes_per_second", "gauge", f"Bandwidth {way}.", rows)
    for name, count in counters.items():
        text = f"{name.replace('_', ' ').capitalize()} of the agent."
        family(f"rgpu_agent_{name}_total", "counter", text, [("", float(count))])
    return "\n".join(lines) + "\n"


def write_textfile(path: Path, text: str) -> None:
    """Replaces a file as a whole; ignores errors."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: a path without a name
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(text, encoding="utf-8", errors="replace")
        os.replace(temporary, path)
