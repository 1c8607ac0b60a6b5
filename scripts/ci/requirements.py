"""Prints what extras of rgpu need, so that it can be installed while rgpu is being built.

python scripts/ci/requirements.py EXTRA...
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pip has it, and nothing else is installed yet
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


def requirements(project: dict[str, Any], extras: list[str]) -> list[str]:
    """Returns what a project and its extras need; `NAME[EXTRA]` of itself is looked up."""
    own = f"{project['name']}["
    found: set[str] = set(project["dependencies"])
    left = list(extras)
    seen: set[str] = set()
    while left:
        extra = left.pop()
        if extra in seen:
            continue
        seen.add(extra)
        for requirement in project["optional-dependencies"][extra]:
            if requirement.startswith(own):
                left += requirement[len(own) :].rstrip("]").split(",")
            else:
                found.add(requirement)
    return sorted(found)


if __name__ == "__main__":
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    print("\n".join(requirements(tomllib.loads(text)["project"], sys.argv[1:])))
