"""The operator's container: waits until every client computes, asks Prometheus who holds what, ends
the programs, and prints the tables.

python report.py PROMETHEUS CLIENT..., with REPORTS the folder that the containers share.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

DEADLINE_SECONDS = 60.0
MIB = 1 << 20
METRICS = {
    "request": "rgpu_share_request_ratio",
    "limit": "rgpu_share_limit_ratio",
    "got": "rgpu_share_achieved_1s_ratio",
    "memory": "rgpu_memory_used_bytes",
    "memory_limit": "rgpu_memory_limit_bytes",
}
Row = dict[str, Any]


def query(server: str, expression: str) -> list[Row]:
    """The series that Prometheus has for an expression; none as long as it does not answer."""
    url = f"http://{server}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            result: list[Row] = json.load(answer)["data"]["result"]
    except (urllib.error.URLError, TimeoutError):
        return []
    return result


def held(server: str) -> dict[str, Row]:
    """Client (the key of its lease) -> node and metrics."""
    found: dict[str, Row] = {}
    for name, metric in METRICS.items():
        for series in query(server, metric):
            row = found.setdefault(series["metric"].get("key", ""), {})
            row["node"] = series["metric"]["instance"].partition(":")[0]
            row[name] = float(series["value"][1])
    return found


def states(folder: Path, clients: list[str]) -> dict[str, Row]:
    """What the clients have reported so far."""
    found: dict[str, Row] = {}
    for name in clients:
        file = folder / f"{name}.json"
        found[name] = json.loads(file.read_text()) if file.exists() else {"state": "starting"}
    return found


def wait_for(what: str, seen: Any, seconds: float = DEADLINE_SECONDS) -> bool:
    """Polls until `seen()`; False, and a line that says so, if that takes too long."""
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            print(f"waited {seconds:.0f} s in vain: {what}", flush=True)
            return False
        time.sleep(0.2)
    print(what, flush=True)
    return True


def table(titles: list[str], rows: list[list[str]]) -> str:
    """Rows in columns."""
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    lines = [titles, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def mib(value: float | None) -> str:
    return "-" if value is None else f"{value / MIB:.0f} MiB"


def rows_of(clients: dict[str, Row], seen: dict[str, Row]) -> list[list[str]]:
    rows = []
    for name, client in clients.items():
        row = seen.get(name, {})
        trip = client.get("round_trip")
        rows.append(
            [
                name,
                row.get("node", "-"),
                client.get("path", "-"),
                "-" if trip is None else f"{trip * 1e6:.0f} us",
                percent(row.get("request")),
                percent(row.get("limit")),
                percent(row.get("got")),
                f"{mib(row.get('memory'))} of {mib(row.get('memory_limit'))}",
                "right" if client.get("right") and client["state"] == "done" else client["state"],
            ]
        )
    return rows


def say(folder: Path, state: str) -> None:
    """Writes the report's own state, for health.py."""
    (folder / "report.json").write_text(json.dumps({"state": state}))


def main() -> int:
    server, *names = sys.argv[1:]
    folder = Path(os.environ["REPORTS"])
    say(folder, "holding")
    ready = ("holding", "absent", "failed", "done")
    ok = wait_for(
        "every client computes, or has said why not",
        lambda: all(s["state"] in ready for s in states(folder, names).values()),
    )
    running = [n for n, s in states(folder, names).items() if s["state"] == "holding"]
    seen: dict[str, Row] = {}

    def complete(name: str) -> bool:
        return all(seen.get(name, {}).get(metric, 0) > 0 for metric in METRICS)

    def everything_seen() -> bool:
        # A program may rest in the second that is looked at, so what was complete once is kept.
        seen.update({name: row for name, row in held(server).items() if not complete(name)})
        return all(complete(name) for name in running)

    ok &= wait_for("Prometheus has seen their memory and shares", everything_seen)
    (folder / "release").touch()
    over = ("absent", "failed", "done")
    ok &= wait_for(
        "every program has ended",
        lambda: all(s["state"] in over for s in states(folder, names).values()),
    )
    clients = states(folder, names)
    titles = ["client", "node", "path", "round trip", "share", "limit", "got", "memory", "result"]
    print("\n" + table(titles, rows_of(clients, seen)) + "\n")
    print(
        "share: of the device's time, guaranteed; limit: at most; got: in the last second;\n"
        "memory: held, of what may be held; result: whether NumPy agrees.\n"
    )
    for name, client in clients.items():
        print(f"{name}: {client.get('path', 'no path')}: {client.get('why', '')}")
    failed = [name for name, client in clients.items() if client["state"] == "failed"]
    if not running:
        print("no client computed")
    return 0 if ok and running and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
