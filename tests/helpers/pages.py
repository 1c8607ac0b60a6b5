"""The YAML of the pages of docs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"(?:(Before|After):\n\n)?```yaml\n(.*?)```", re.DOTALL)


def text_of(page: str) -> str:
    return (DOCS / page).read_text()


def blocks(page: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Returns the objects of each block, after the word that introduces it: Before, After, or ""."""
    return [(kind, list(yaml.safe_load_all(text))) for kind, text in _BLOCK.findall(text_of(page))]


def pairs(page: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Returns each object before, and the objects after."""
    marked = [(kind, objects) for kind, objects in blocks(page) if kind]
    assert [kind for kind, _ in marked] == ["Before", "After"] * (len(marked) // 2)
    return [
        (before[0], after)
        for (_, before), (_, after) in zip(marked[::2], marked[1::2], strict=True)
    ]
