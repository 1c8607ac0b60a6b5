"""The programs of a Prometheus that is installed on this machine."""

from __future__ import annotations

import shutil

import pytest


def program(name: str) -> str:
    """A program of Debian's package prometheus."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"there is no {name}: install Debian's package prometheus (apt-get install "
                    "prometheus), or put Prometheus' release on the PATH")  # fmt: skip
    return found
