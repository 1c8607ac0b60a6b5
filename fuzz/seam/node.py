"""A server, and a neighbour on its device whose array must stay as it was."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tempfile
import threading
from pathlib import Path

from helpers.command import rgpu_command
from helpers.server import Server
from helpers.waiting import wait_until
from typing_extensions import Self

from rgpu_common.arrays.messages import Op
from rgpu_common.arrays.seams import Seam
from seam.tenant import Tenant

# An operation that takes longer while the neighbour wants the device is ended.
KERNEL_SECONDS = 2.0
CANARY = random.Random(1).randbytes(1 << 20)
_PAUSE_SECONDS = 0.2


class Node:
    """A server with one emulated device. The neighbour computes now and then, in a thread."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rgpu-fuzz-")
        configuration = Path(self._folder.name) / "rgpu.toml"
        configuration.write_text(f"[quota]\nmax_kernel_seconds = {KERNEL_SECONDS}\n")
        self._server = Server("--config", str(configuration))
        self._over = threading.Event()
        self._hurt = ""

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._neighbour = Tenant(self._server.unix, Seam.CUPY, "neighbour")
        self._neighbour.send([Op.PUT, 1, "uint8", [len(CANARY)], len(CANARY)], body=CANARY)
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._neighbour.cut()
        wait_until(lambda: not self._listed()["sessions"])
        self._server.stop()
        self._folder.cleanup()
        self.check()

    @property
    def address(self) -> str:
        """Where the server listens."""
        return self._server.unix

    def check(self) -> None:
        """Raises AssertionError if the neighbour was hurt, or the server has ended."""
        assert not self._hurt, f"the neighbour was hurt: {self._hurt}"
        process = self._server.process
        assert process is not None
        assert process.poll() is None or self._over.is_set(), "the server has ended"

    def said(self) -> str:
        """Returns the end of the server's log."""
        return "".join(self._server.log[-40:])

    def largest_bytes(self) -> int:
        """Returns the private memory of the largest process of the server."""
        return max(map(_data_bytes, self._server.descendants()), default=0)

    def held(self, key: str) -> int:
        """Returns how many sessions a lease has."""
        return sum(one["lease_key"] == key for one in self._listed()["sessions"])

    def _listed(self) -> dict[str, list[dict[str, object]]]:
        words = [rgpu_command(), "ps", "--json", "--server", self.address]
        found: dict[str, list[dict[str, object]]] = json.loads(
            subprocess.check_output(words, timeout=60)
        )
        return found

    def _watch(self) -> None:
        """Computes with the neighbour's array and reads it, again and again."""
        wanted, number = [Op.DEFINE, 1, "add", [["a"], ["a"]], {}, 1], 10
        try:
            self._neighbour.send(wanted)
            while not self._over.wait(_PAUSE_SECONDS):
                number += 2
                self._neighbour.send([Op.RUN, 1, [1, 1], [number]], [Op.FREE, [number]])
                if self._neighbour.read(number + 1, 1, len(CANARY)) != CANARY:
                    self._hurt = "its array has changed"
                    return
        except Exception as error:
            self._hurt = f"{type(error).__name__}: {error}"


def _data_bytes(process: int) -> int:
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    rows = dict(row.split(":", 1) for row in status.splitlines() if ":" in row)
    return int(rows.get("VmData", "0 kB").split()[0]) * 1024 if os.name == "posix" else 0
