"""A client container: runs a program on the card that the manager chooses, and again elsewhere if
its node is gone.

python client.py NAME OPTION... -- PROGRAM..., with REPORTS the folder that the containers share.
REPORTS/NAME.json says where it is now, and where it was.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

# "rgpu: gpu-1 at gpu-1:7700: in the program's rack; ... (request run-...)"
_PLACED = re.compile(r"(\S+) at \S+: (.*) \(request (run-\S+)\)$")
MOST_RUNS = 6


class Report:
    """REPORTS/NAME.json, always whole."""

    def __init__(self, name: str) -> None:
        self._file = Path(os.environ["REPORTS"]) / f"{name}.json"
        self._facts: dict[str, Any] = {"client": name, "state": "starting", "nodes": []}

    @property
    def state(self) -> str:
        return str(self._facts["state"])

    def placed(self, node: str, why: str, request: str) -> None:
        self._facts["nodes"].append(node)
        self.say(node=node, why=why, request=request, state="placed")

    def say(self, **facts: Any) -> None:
        self._facts.update(facts)
        print(json.dumps(facts), flush=True)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self._facts))
        part.rename(self._file)


def _listen(errors: IO[str], report: Report) -> None:
    for line in errors:
        print(line, end="", flush=True)
        found = _PLACED.search(line.rstrip())
        if found:
            report.placed(*found.groups())


def _run(report: Report, options: list[str], program: list[str]) -> bool:
    """Runs the program once; True if it has ended as it should."""
    command = ["rgpu", "run", "-v", "--wait=60", *options, "--", *program]
    right = False
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        listener = threading.Thread(target=_listen, args=(process.stderr, report))
        listener.start()
        for line in process.stdout:
            step = json.loads(line) if line.startswith("{") else {}
            if step.get("step") == "holding":
                report.say(state="holding")
            right = right or bool(step.get("step") == "ending" and step["right"])
        listener.join()
    return process.returncode == 0 and right


def main() -> int:
    split = sys.argv.index("--")
    name, *options = sys.argv[1:split]
    report = Report(name)
    for _ in range(MOST_RUNS):
        if _run(report, options, sys.argv[split + 1 :]):
            report.say(state="done")
            return 0
        report.say(state="moving")
        time.sleep(0.5)
    report.say(state="failed")
    return 1


if __name__ == "__main__":
    sys.exit(main())
