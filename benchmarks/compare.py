"""Compares two JSON files of one benchmark: `python -m benchmarks.compare OLD NEW`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Prints new / old for each figure that both files hold."""
    if len(sys.argv) != 3:
        print("usage: python -m benchmarks.compare OLD.json NEW.json", file=sys.stderr)
        return 2
    old, new = (json.loads(Path(name).read_text()) for name in sys.argv[1:])
    if old["machine"] != new["machine"]:
        print("note: the two files are from different machines")
    before = {row["name"]: row for row in old["rows"]}
    print(
        f"{'figure':44} {'old':>10} {'new':>10} {'new/old':>8} {'ratio old':>10} {'ratio new':>10}"
    )
    for row in new["rows"]:
        if row["name"] not in before:
            continue
        was = before[row["name"]]
        change = row["value"] / was["value"] if was["value"] else float("nan")
        ratios = ["" if r["ratio"] is None else f"{r['ratio']:.2f}" for r in (was, row)]
        label = f"{row['name']} [{row['unit']}]"
        print(
            f"{label:44} {was['value']:>10.3f} {row['value']:>10.3f} {change:>8.2f} "
            f"{ratios[0]:>10} {ratios[1]:>10}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
