"""The client: runs unmodified CUDA programs on a machine without a GPU.

`rgpu run -- PROGRAM` needs no import of this package. In Python, before the first CUDA import:

    import rgpu_client
    rgpu_client.connect("gpu-node:7700", memory="2GiB")

Every error is an RgpuError: NoSessionError where the server is not there or refuses, ServerError
where it does not offer what was asked for, UsageError for a value that is not accepted or a call
that comes too late, MissingPartError for an installation that lacks a part.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_common.errors import (
    MissingPartError,
    NoSessionError,
    RgpuError,
    ServerError,
    UsageError,
)

if TYPE_CHECKING:
    from rgpu_client.connection import Connection
    from rgpu_client.preload import connect, disconnect, library_path

__all__ = [
    "Connection",
    "MissingPartError",
    "NoSessionError",
    "RgpuError",
    "ServerError",
    "UsageError",
    "connect",
    "disconnect",
    "library_path",
]

# These need gRPC. The array seam, which is imported through this package, does without it.
_LATER = {
    "Connection": "rgpu_client.connection",
    "connect": "rgpu_client.preload",
    "disconnect": "rgpu_client.preload",
    "library_path": "rgpu_client.preload",
}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)
