"""The transports by name, and which of them is preferred."""

from __future__ import annotations

# Preference among paths whose costs are not clearly different.
ORDER = ("shm", "unix", "ucx", "tcp", "tls", "grpc", "grpcs")
LOCAL = ("shm", "unix")
ENCRYPTED = ("tls", "grpcs")


def scheme_of(uri: str) -> str:
    """Returns the transport of a URI; HOST:PORT is tcp."""
    scheme = uri.partition(":")[0]
    return scheme if scheme in ORDER else "tcp"


def rank_of(uri: str) -> int:
    """Returns the place of a URI's transport in the order of preference."""
    return ORDER.index(scheme_of(uri))
