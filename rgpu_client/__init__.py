"""The client: runs unmodified CUDA programs on a machine without a GPU.

`rgpu run -- PROGRAM` needs no import of this package. In Python, before the first CUDA import:

    import rgpu_client
    rgpu_client.connect("gpu-node:7700", memory="2GiB")

| function | what it does |
| -- | -- |
| `connect` | gets a lease for this process and its children |
| `claim` | gets a lease for programs that this process starts, and leaves this process as it is |
| `disconnect` | gives up the lease of `connect` |
| `devices` | lists what a server offers |
| `emulated_server` | runs a server with an emulated device, for tests and examples |
| `library_path` | finds the driver library, for programs that are started in another way |

`connect` and `claim` return a `Lease`, which can be resized, watched and closed. `connect_async`,
`claim_async` and `devices_async` are for coroutines.

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
    from rgpu_client.claims import claim, claim_async, connect_async
    from rgpu_client.lease import Lease, Usage
    from rgpu_client.offers import Device, devices, devices_async
    from rgpu_client.own_server import emulated_server
    from rgpu_client.preload import connect, disconnect
    from rgpu_client.program_environment import library_path

__all__ = [
    "Device",
    "Lease",
    "MissingPartError",
    "NoSessionError",
    "RgpuError",
    "ServerError",
    "Usage",
    "UsageError",
    "claim",
    "claim_async",
    "connect",
    "connect_async",
    "devices",
    "devices_async",
    "disconnect",
    "emulated_server",
    "library_path",
]

# These need gRPC. The array seam, which is imported through this package, does without it.
_LATER = {
    "Device": "rgpu_client.offers",
    "Lease": "rgpu_client.lease",
    "Usage": "rgpu_client.lease",
    "claim": "rgpu_client.claims",
    "claim_async": "rgpu_client.claims",
    "connect": "rgpu_client.preload",
    "connect_async": "rgpu_client.claims",
    "devices": "rgpu_client.offers",
    "devices_async": "rgpu_client.offers",
    "disconnect": "rgpu_client.preload",
    "emulated_server": "rgpu_client.own_server",
    "library_path": "rgpu_client.program_environment",
}


# A type checker that saw this function would accept every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        module = _LATER.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(module), name)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext rgpu_client`: cells of a notebook show what they use of their lease."""
    from rgpu_client.notebook import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext rgpu_client`."""
    from rgpu_client.notebook import unload

    unload(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
