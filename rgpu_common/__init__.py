"""Code that client and server share: the control-plane API, the wire in Python, configuration,
errors, units, clock.
"""

from __future__ import annotations

import os

from rgpu_common.wire.version import WIRE_MAJOR, WIRE_MINOR

# Every command imports this module, so it imports only what the interpreter has loaded already.
_known: dict[str, str] = {}


def _built() -> dict[str, str]:
    """Returns what the build wrote beside this file; {} in a bare source tree."""
    if not _known:
        path = os.path.join(os.path.dirname(__file__), "build.txt")
        try:
            with open(path, encoding="utf-8") as file:
                for line in file:
                    name, _, text = line.rstrip("\n").partition(" ")
                    _known[name] = text
        except OSError:
            return {}
    return _known


def release() -> str:
    """Returns the version of the installed distribution, or "unknown" in a bare source tree."""
    return _built().get("version") or _installed()


def _installed() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rgpu-cuda")
    except PackageNotFoundError:
        return "unknown"


def build() -> str:
    """Returns what the compiled parts were made from and by, or "unknown"."""
    return _built().get("build", "unknown")


def version_line() -> str:
    """Returns what `rgpu --version` prints."""
    return f"rgpu {release()} (protocol {WIRE_MAJOR}.{WIRE_MINOR}; {build()})"
