"""netprobe in network namespaces: a responder in one, a probe in another."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.ends import stopped
from helpers.links import NICE, Namespace

NETPROBE = str(Path(sys.executable).parent / "netprobe")


@contextlib.contextmanager
def responder(space: Namespace, host: str = "0.0.0.0") -> Iterator[str]:
    """Runs `netprobe listen` on all addresses of a namespace; yields its port."""
    command = space.first(NETPROBE, "listen", "--listen", f"{host}:0", "--burst", "1000")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
    try:
        assert process.stdout is not None
        found = re.search(r"listening on .*:(\d+)", process.stdout.readline())
        assert found, "netprobe does not listen"
        yield found[1]
    finally:
        stopped(process)
        if process.stdout is not None:
            process.stdout.close()


def probe(space: Namespace, *paths: str, workload: str = "mixed") -> dict[str, Any]:
    """Returns the results of `netprobe run`."""
    text = space.run(*NICE, NETPROBE, "run", *paths, "--workload", workload, "--json")
    found: dict[str, Any] = json.loads(text)
    return found
