"""The environment variables of rgpu, and suggestions for misspelt ones."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "RGPU_"
# The variables that users and operators set. docs/reference/client.md and server.md explain them.
KNOWN = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "AGENT_LOG", "AGENT_SECONDS", "AGENT_TEXTFILE", "COMPRESSION", "DEVICE",
        "HIDE_NVJITLINK", "LEASE", "LIBCUDA", "LIBSSL", "LIBUCP", "LIBZSTD", "LIMIT", "LOG",
        "MANAGER", "MEMORY", "MOVE", "NAME", "NODE", "PATHS", "POLICY", "PRIORITY", "RACK",
        "RESUME", "SERVER", "SHARE", "TENANT", "TLS_CA", "TLS_CERT", "TLS_KEY", "TLS_NAME",
        "TOKEN", "TOKEN_FILE", "TOKEN_FILES", "TRACE", "TRANSPORT", "WEIGHT", "WORKLOAD",
    )
)  # fmt: skip
# Variables by which rgpu's own processes tell each other something, and those of its tests and
# build.
_INTERNAL = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "AGENT",
        "BACKGROUND",
        "BUILD_DIR",
        "CHOSEN",
        "PYTEST",
        "ROUTES",
        "STARTED",
        "TUNNEL",
    )
)
_INTERNAL_KINDS = tuple(f"{PREFIX}{kind}_" for kind in ("EMU", "TEST", "UPDATE"))
# The least similarity, from 0 to 1, at which a name is taken for a misspelt variable of rgpu. Less
# similar names may belong to other software.
_ALIKE = 0.75
_LEAST_PREFIX = 3


def meant_by(name: str) -> str | None:
    """Returns the variable that `name` is probably a misspelling of. None: `name` is a variable of
    rgpu, or is not similar to any.
    """
    if not name.startswith(PREFIX) or name in KNOWN or name in _INTERNAL:
        return None
    if name.startswith(_INTERNAL_KINDS):
        return None
    rest = name.removeprefix(PREFIX)
    scored = [(_likeness(rest, known.removeprefix(PREFIX)), known) for known in sorted(KNOWN)]
    score, best = max(scored, key=lambda one: one[0])
    return best if score >= _ALIKE else None


def misspelt(names: Iterable[str]) -> list[str]:
    """Returns a sentence for each variable of `names` that is probably misspelt."""
    found = ((name, meant_by(name)) for name in sorted(names))
    return [
        f"{name} is no variable of rgpu and changes nothing: did you mean {meant}?"
        for name, meant in found
        if meant is not None
    ]


def say_misspelt(names: Iterable[str]) -> None:
    """Writes the sentences of `misspelt` to stderr."""
    for sentence in misspelt(names):
        sys.stderr.write(f"rgpu: {sentence}\n")
    sys.stderr.flush()


def _likeness(name: str, known: str) -> float:
    if len(name) >= _LEAST_PREFIX and known.startswith(name):
        return 1.0
    from difflib import SequenceMatcher

    return SequenceMatcher(None, name, known).ratio()
