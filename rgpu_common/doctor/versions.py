"""The versions of what every machine with rgpu has."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from rgpu_common import release
from rgpu_common.doctor.findings import ok, warning, wrong
from rgpu_common.installing import install_words
from rgpu_common.parts import native_library
from rgpu_common.wire.frame import WIRE_MAJOR, WIRE_MINOR

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from rgpu_common.doctor.findings import Finding

# What the tests run on.
_OLDEST, _NEWEST = (3, 10), (3, 13)
_MACHINES = ("x86_64", "aarch64")
_PACKAGES = ("grpcio", "protobuf")
INSTALL_AGAIN = install_words(again=True)


def versions(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields what is installed. Its RgpuError: a compiled part is missing."""
    del arguments
    python = ".".join(map(str, sys.version_info[:3]))
    machine = platform.machine()
    if release() == "unknown":
        yield wrong("versions", "rgpu runs from a source tree that is not installed", INSTALL_AGAIN)
    yield ok(
        "versions",
        f"rgpu {release()}, wire version {WIRE_MAJOR}.{WIRE_MINOR}, Python {python}, {machine}",
    )
    if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        yield warning(
            "versions", f"rgpu is not tested on Python {python}", "use Python 3.10 to 3.13"
        )
    if sys.platform != "linux" or machine not in _MACHINES:
        yield wrong(
            "versions", f"rgpu does not run on {sys.platform} on {machine}",
            "use Linux on x86-64 or aarch64",
        )  # fmt: skip
    yield from map(_package, _PACKAGES)
    yield ok("versions", f"compiled parts: {native_library().parent}")


def _package(name: str) -> Finding:
    try:
        return ok("versions", f"{name} {version(name)}")
    except PackageNotFoundError:
        return wrong("versions", f"the package {name} is missing", INSTALL_AGAIN)
