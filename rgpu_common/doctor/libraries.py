"""The C libraries that rgpu loads at run time: which of them this machine has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.doctor.findings import note, ok, wrong

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rgpu_common.doctor.findings import Finding

_SECONDS = 20.0
# In a process of its own: some libraries install signal handlers when they are loaded.
_LOADS = """
import ctypes, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
        found[name] = ""
    except OSError as error:
        found[name] = str(error)
print(json.dumps(found))
"""


@dataclass(frozen=True, slots=True)
class Library:
    """variable: names the file where it is in an unusual place; "": no variable does. needed_by:
    the schemes that need it. does: what it is for. install: the command that installs it.
    """

    names: tuple[str, ...]
    variable: str
    needed_by: frozenset[str]
    does: str
    install: str


_OPENSSL = Library(
    ("libssl.so.3", "libssl.so.1.1"), "RGPU_LIBSSL", frozenset({"tls"}), "tls: addresses",
    "apt-get install libssl3 (Debian, Ubuntu) or dnf install openssl-libs (Fedora)",
)  # fmt: skip
_UCX = Library(
    ("libucp.so.0",), "RGPU_LIBUCP", frozenset({"ucx"}), "ucx: addresses (RDMA)",
    "apt-get install libucx0 (Debian, Ubuntu) or dnf install ucx (Fedora)",
)  # fmt: skip
_ZSTD = Library(
    ("libzstd.so.1",), "RGPU_LIBZSTD", frozenset(), "compression over slow networks",
    "apt-get install libzstd1 (Debian, Ubuntu) or dnf install libzstd (Fedora)",
)  # fmt: skip
_NGHTTP2 = Library(
    ("libnghttp2.so.14",), "RGPU_LIBNGHTTP2", frozenset({"grpc", "grpcs"}),
    "serving grpc: and grpcs: addresses",
    "apt-get install libnghttp2-14 (Debian, Ubuntu) or dnf install libnghttp2 (Fedora)",
)  # fmt: skip
CLIENT = (_OPENSSL, _UCX, _ZSTD)
NODE = (*CLIENT, _NGHTTP2)


def library_findings(libraries: Collection[Library], schemes: Collection[str]) -> Iterator[Finding]:
    """Yields a finding for each library. schemes: those of the addresses that are used; a missing
    library that one of them needs is an error.
    """
    asked = {library: _names(library) for library in libraries}
    answers = _loadable([name for names in asked.values() for name in names])
    for library, names in asked.items():
        there = next((name for name in names if answers.get(name) == ""), None)
        if there is not None:
            yield ok("libraries", f"{there}: {library.does}")
            continue
        why = answers.get(names[0], "") or "the loader gave no answer"
        sentence = f"{names[0]} cannot be loaded, so there are no {library.does}: {why}"
        remedy = library.install
        if os.environ.get(library.variable):
            remedy = f"correct or unset {library.variable}, or {remedy}"
        needed = library.needed_by & set(schemes)
        yield (wrong if needed else note)("libraries", sentence, remedy)


def _names(library: Library) -> tuple[str, ...]:
    named = os.environ.get(library.variable)
    return (named,) if named else library.names


def _loadable(names: list[str]) -> dict[str, str]:
    """Returns, for each library, why it cannot be loaded; "" if it can."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LOADS, *names],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        found: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
        return {}
    return found
