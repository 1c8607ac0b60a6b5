"""Writes docs/reference/torch-operators.md from the lists of operators.

python scripts/gen_torch_page.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LISTS = ROOT / "rgpu_server" / "arrays"
SAMPLES = ROOT / "tests" / "arrays" / "torch_operators.json"
PAGE = ROOT / "docs" / "reference" / "torch-operators.md"


def main() -> None:
    """Writes the page."""
    PAGE.write_text(page())


def page() -> str:
    """Returns the page."""
    lines = [
        "# PyTorch operators of the array seam",
        "",
        "For people who want to know whether a node executes an operator of PyTorch, and why not.",
        "`scripts/gen_torch_page.py` writes this page.",
        "",
        *_samples(json.loads(SAMPLES.read_text())),
    ]
    for path in sorted(LISTS.glob("torch_operators_*.json")):
        lines += _release(json.loads(path.read_text()))
    return "\n".join(lines) + "\n"


def _samples(data: dict[str, Any]) -> list[str]:
    left, total = data["left_out"], data["operators"]
    return [
        "## Samples",
        "",
        f"PyTorch has samples for {total} operators and variants. The tests execute those of "
        f"{total - len(left)} on a node with",
        "the CPU build, and compare results and gradients with those of the local CPU. These are "
        "left out:",
        "",
        "| Operator | Reason |",
        "| -- | -- |",
        *[f"| `{name}` | {reason} |" for name, reason in sorted(left.items())],
        "",
    ]


def _release(data: dict[str, Any]) -> list[str]:
    return [
        f"## PyTorch {data['torch']}",
        "",
        f"A worker executes {len(data['operators'])} operators of PyTorch's dispatcher. The others "
        "are left out:",
        "",
        "| Operators | Reason | Example |",
        "| -- | -- | -- |",
        *[
            f"| {len(one['operators'])} | {one['reason']} | `{one['operators'][0]}` |"
            for one in data["excluded"]
        ],
    ]


if __name__ == "__main__":
    main()
