"""Asks NVIDIA's driver library in a process of its own, so that the daemon never holds a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

_SECONDS = 60


class DriverFacts(Struct, frozen=True):
    """What the driver library says of a device; 0: unknown."""

    cuda_version: int = 0
    compute_major: int = 0
    compute_minor: int = 0


def driver_facts(answer: Mapping[str, Any] | None) -> DriverFacts:
    """Returns the facts in an answer of `ask_driver`; unknown ones if it is an error."""
    if answer is None or "cuda_version" not in answer:
        return DriverFacts()
    return DriverFacts(answer["cuda_version"], answer["compute_major"], answer["compute_minor"])


def ask_driver(library: Path, *words: str, visible: str = "") -> dict[str, Any] | None:
    """Returns what `cuda_probe.py LIBRARY [ORDINAL]` prints; None: the driver does not answer.

    visible: the UUID of the only device that the driver is to show; "": all.
    """
    environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    if visible:
        environment["CUDA_VISIBLE_DEVICES"] = visible
    script = str(Path(__file__).with_name("cuda_probe.py"))
    try:
        done = subprocess.run(
            [sys.executable, script, str(library), *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer: dict[str, Any] = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return answer
