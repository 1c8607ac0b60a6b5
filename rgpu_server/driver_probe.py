"""Asks NVIDIA's driver library in a process of its own, so that the daemon never holds a device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_SECONDS = 60


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
