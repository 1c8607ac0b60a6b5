"""The operator's container: waits until all programs compute, drains a node, kills another one, and
prints and draws which program was where.

python report.py MANAGER DRAINED KILLED NODES CLIENT..., with REPORTS the folder that the containers
share; NODES are names with commas between.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = Path(os.environ["REPORTS"])
DEADLINE_SECONDS = 90.0


class TooLateError(Exception):
    """The message says what did not happen."""


def wait_for(what: str, seen: Callable[[], bool]) -> None:
    """Polls until `seen()`."""
    begun = time.monotonic()
    while not seen():
        if time.monotonic() - begun > DEADLINE_SECONDS:
            raise TooLateError(f"waited {DEADLINE_SECONDS:.0f} s in vain: {what}")
        time.sleep(0.2)
    print(f"{what} ({time.monotonic() - begun:.1f} s)", flush=True)


def states(clients: list[str]) -> dict[str, dict[str, Any]]:
    """What the clients have reported so far."""
    found = {}
    for name in clients:
        file = FOLDER / f"{name}.json"
        found[name] = json.loads(file.read_text()) if file.exists() else {"state": "starting"}
    return found


def rgpu(*words: str) -> str:
    """Returns what a command of rgpu prints."""
    done = subprocess.run(["rgpu", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise TooLateError(f"rgpu {' '.join(words)}: {done.stderr}")
    return done.stdout


class Picture:
    """Which program was where, a column for each node."""

    def __init__(self, nodes: list[str]) -> None:
        self._nodes = nodes
        self._lines = ["  ".join([f"{'':22}", *(f"{node:24}" for node in nodes)]).rstrip()]

    def add(self, moment: str, where: dict[str, str], gone: str = "") -> None:
        """Draws where the programs are now. gone: a node that is dead."""
        cells = []
        for node in self._nodes:
            mine = [name for name, at in where.items() if at == node]
            cells.append(f"{'x' if node == gone else ' '.join(mine) or '-':24}")
        self._lines.append("  ".join([f"{moment:22}", *cells]).rstrip())

    def __str__(self) -> str:
        return "\n".join(self._lines)


class Tour:
    """The steps of the demo."""

    def __init__(self, manager: str, nodes: list[str], clients: list[str]) -> None:
        self._manager, self._clients = manager, clients
        self.picture = Picture(nodes)

    def settled(self, moment: str, without: str = "", gone: str = "") -> None:
        """Waits until every program computes, on no node that is named, and draws it."""

        def seen() -> bool:
            found = states(self._clients).values()
            return all(one["state"] == "holding" and one["node"] != without for one in found)

        wait_for(f"{moment}: every program computes", seen)
        where = {name: one["node"] for name, one in states(self._clients).items()}
        self.picture.add(moment, where, gone)

    def measured(self) -> None:
        """Waits until the path from one rack to another was measured: a program is placed by it."""

        def seen() -> bool:
            pool = json.loads(rgpu("pool", "--json", "--paths", "--manager", self._manager))
            return any(one["client_rack"] != one["server_rack"] for one in pool["paths"])

        wait_for("the network between the racks is measured", seen)

    def drain(self, node: str) -> None:
        """Drains a node; its programs end at once and are run again."""
        rgpu("drain", "--end-after", "0.1", "--server", f"{node}:7700")
        self.settled(f"{node} drained", without=node)
        rgpu("undrain", "--server", f"{node}:7700")
        self._ready(node)

    def kill(self, node: str) -> None:
        """Lets a node die."""
        (FOLDER / f"kill-{node}").touch()
        self.settled(f"{node} dead", without=node, gone=node)

    def _ready(self, name: str) -> None:
        def seen() -> bool:
            pool = json.loads(rgpu("pool", "--json", "--manager", self._manager))
            return any(n["name"] == name and not n["taints"] for n in pool["nodes"])

        wait_for(f"{name} takes leases again", seen)

    def show(self) -> None:
        """Prints the pool, the explanation of each program, and the picture."""
        print(rgpu("pool", "--paths", "--manager", self._manager))
        for name, one in states(self._clients).items():
            print(f"{name}: {one['node']}: {one['why']}")
        first = states(self._clients)[self._clients[0]]["request"]
        print("\n" + rgpu("explain", first, "--manager", self._manager))
        print(f"{self.picture}\n\nx: the node is dead; -: no program of the demo")


def main() -> int:
    manager, drained, killed, names, *clients = sys.argv[1:]
    tour = Tour(manager, names.split(","), clients)
    try:
        tour.settled("at first")
        tour.measured()
        tour.drain(drained)
        tour.kill(killed)
        tour.show()
        (FOLDER / "release").touch()
        wait_for(
            "every program has ended right",
            lambda: all(one["state"] == "done" for one in states(clients).values()),
        )
    except TooLateError as error:
        print(error)
        print(json.dumps(states(clients), indent=1))
        return 1
    finally:
        (FOLDER / "report.json").write_text(json.dumps({"state": "done"}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
