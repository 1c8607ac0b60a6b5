"""A GPU node that can die: runs a server, and kills everything of it when it is told to.

python node.py NAME COMMAND..., with REPORTS the folder that the containers share: the file
REPORTS/kill-NAME is the node's death.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def below(pid: int) -> list[int]:
    """Returns the processes that a process has started, and those that they have started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        found = [int(one) for task in tasks for one in (task / "children").read_text().split()]
    except OSError:
        return []
    return found + [one for child in found for one in below(child)]


def kill_all(pid: int) -> None:
    """Ends a process and all below it at once, as a power cut does."""
    os.kill(pid, signal.SIGSTOP)  # it starts nothing meanwhile
    for one in (pid, *below(pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def main() -> int:
    name, *command = sys.argv[1:]
    death = Path(os.environ["REPORTS"]) / f"kill-{name}"
    with subprocess.Popen(command) as server:
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        while server.poll() is None:
            if death.exists():
                print(f"{name} dies", flush=True)
                kill_all(server.pid)
            time.sleep(0.2)
        return abs(server.returncode)


if __name__ == "__main__":
    sys.exit(main())
