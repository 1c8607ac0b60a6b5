"""Code that client and server share: the control-plane API, the wire in Python, configuration,
errors, units, clock.
"""

from __future__ import annotations

import functools
import os

from rgpu_common.wire.version import WIRE_MAJOR, WIRE_MINOR


@functools.cache
def _built() -> dict[str, str]:
    """Returns what the build wrote beside this file; {} in a bare source tree."""
    try:
        with open(os.path.join(os.path.dirname(__file__), "build.txt")) as file:
            return dict(line.rstrip("\n").split(" ", 1) for line in file)
    except OSError:
        return {}


def release() -> str:
    """Returns the version of the installed distribution, or "unknown" in a bare source tree."""
    return _built().get("version") or _installed()


@functools.cache
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
