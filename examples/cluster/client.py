"""A client container: asks netprobe for the best path to a server, then runs a program over it.

python client.py NAME PATH... -- PROGRAM..., with REPORTS a folder that the containers share.  What
happens is written to REPORTS/NAME.json, for report.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from netprobe.prober import measure
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import UsageError

PROBE_SECONDS = 20.0


def known(path: str) -> bool:
    """Whether this release has the transport of a path."""
    try:
        parse_endpoint(path)
    except UsageError:
        return False
    return True


def choose(paths: list[str]) -> dict[str, Any]:
    """What netprobe says of the paths: the chosen one and the reason."""
    usable = [path for path in paths if known(path)]
    if not usable:
        return {"state": "absent", "why": f"this release has no transport for {', '.join(paths)}"}
    if usable[0].startswith("grpc"):
        return carried(usable[0])
    missing = [path.partition(":")[0] for path in paths if path not in usable]
    command = ["netprobe", "run", *usable, "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
    )
    if done.returncode != 0:
        return {"state": "failed", "why": f"{done.stderr}{done.stdout}".strip()}
    found = json.loads(done.stdout)
    choice = found["choice"]
    chosen = next(path for path in found["paths"] if path["uri"] == choice["uri"])
    why = choice["reason"]
    if missing:
        why += f" (this release has no {', '.join(missing)}:)"
    trip = chosen["round_trip"]["median"]
    return {"path": choice["uri"], "why": why, "round_trip": trip, "down": chosen["down"]}


def carried(path: str) -> dict[str, Any]:
    """The same for a path that an agent carries: it is measured through one of our own."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{folder}/agent"
        command = ["rgpu", "agent", "--server", path, "--listen", socket]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as agent:
            assert agent.stdout is not None
            agent.stdout.readline()
            found = measure(path, through=socket)
            agent.terminate()
    if found.round_trip is None:
        return {"state": "failed", "why": found.error}
    why = "it is the only path: an agent carries it inside HTTP/2"
    return {"path": path, "why": why, "round_trip": found.round_trip.median}


class Report:
    """REPORTS/NAME.json, always whole."""

    def __init__(self, name: str) -> None:
        self._file = Path(os.environ["REPORTS"]) / f"{name}.json"
        self.facts: dict[str, Any] = {"client": name}

    def say(self, **facts: Any) -> None:
        self.facts.update(facts)
        print(json.dumps(facts), flush=True)
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self.facts))
        part.rename(self._file)


def run(report: Report, path: str, program: list[str]) -> int:
    """Runs the program; the share, memory, tenant and lease come by variables (RGPU_...)."""
    command = ["rgpu", "run", "--server", path, "--", *program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                step = json.loads(line)
            except ValueError:
                print(line, end="", flush=True)
                continue
            report.say(state=step.pop("step"), **step)
    status = process.returncode
    right = report.facts.get("state") == "ending" and report.facts.get("right")
    if status != 0 or not right:
        report.say(state="failed", why=f"the program ended with exit code {status}")
        return 1
    report.say(state="done")
    return 0


def main() -> int:
    split = sys.argv.index("--")
    name, *paths = sys.argv[1:split]
    report = Report(name)
    choice = choose(paths)
    report.say(**{"state": "chosen", **choice})
    if "path" not in choice:
        return 0 if choice["state"] == "absent" else 1
    return run(report, choice["path"], sys.argv[split + 1 :])


if __name__ == "__main__":
    sys.exit(main())
