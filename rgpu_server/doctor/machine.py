"""What a GPU node's machine has: packages, driver, libraries, isolation."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from netprobe.schemes import scheme_of
from rgpu_common.arrays.seams import Seam
from rgpu_common.doctor.findings import note, ok, warning
from rgpu_common.doctor.libraries import NODE, library_findings
from rgpu_common.errors import DeviceError
from rgpu_common.installing import install_words
from rgpu_server.arrays.confine import private
from rgpu_server.core.isolation import OPTIONAL, Process
from rgpu_server.core.pool import seam_of
from rgpu_server.daemon import first_reports
from rgpu_server.default_devices import look_for_devices
from rgpu_server.devices import take_inventory
from rgpu_server.doctor.configured import configuration
from rgpu_server.isolation import isolation_of
from rgpu_server.workers import compiler
from rgpu_server.workers.binary import cuda_library, gateway_path, worker_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rgpu_common.doctor.findings import Finding
    from rgpu_server.devices import Inventory

# Module -> its package, and what a server without it lacks.
_PACKAGES = {
    "uvloop": ("uvloop", "its event loop is slower"),
    "pynvml": ("nvidia-ml-py", "it sees no MIG slices"),
    "prometheus_client": ("prometheus-client", "it has no metrics"),
}


def packages(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields the packages of the extra `server`. MissingPartError: a compiled part is missing."""
    del arguments
    for module, (package, lack) in _PACKAGES.items():
        if find_spec(module) is None:
            yield warning(
                "versions", f"the package {package} is not installed: {lack}",
                install_words("server"),
            )  # fmt: skip
    yield ok("versions", f"{worker_path()}, {gateway_path().name}")


def driver(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields which devices there are; errors as `look_for_devices` and `take_inventory`."""
    try:
        yield ok("driver", f"NVIDIA's driver library is {cuda_library()}")
    except DeviceError as error:
        yield note("driver", str(error).partition("; ")[0])
    if arguments.config is None:
        yield ok("driver", look_for_devices().why)
    inventory = take_inventory(configuration(arguments))
    for ordinal, facts in inventory.facts.items():
        yield ok("driver", f"device {ordinal}: {facts}")


def libraries(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Yields the C libraries that the addresses of the configuration need."""
    schemes = {scheme_of(str(endpoint)) for endpoint in configuration(arguments).listen}
    return library_findings(NODE, schemes)


def modules(closed: Sequence[str]) -> Iterator[Finding]:
    """Yields whether workers for arrays can load modules when they have a user of their own.

    closed: the folders that keep others from Python's modules.
    """
    if closed and find_spec("msgpack") is not None:
        yield warning(
            "sandbox", f"Python loads modules from below {', '.join(closed)}, where workers of "
            "their own user may not read: a worker for arrays has only what it imports when it "
            "starts, and an operation that needs another module fails",
            "install Python and rgpu where every user may read them, such as /opt, or let other "
            f"users go through: chmod o+x {' '.join(closed)}",
        )  # fmt: skip


def sandbox(arguments: argparse.Namespace) -> Iterator[Finding]:
    """Starts a process of each kind and yields what isolates it. ServerError: this machine lacks a
    measure without which the server refuses to start.
    """
    config = configuration(arguments)
    if not config.sandbox:
        yield warning(
            "sandbox", "isolation is off: programs of tenants can reach all of this user's files",
            "remove isolation.sandbox = false from the configuration",
        )  # fmt: skip
        return
    yield from modules(private() if os.geteuid() == 0 else [])
    isolation, inventory = isolation_of(config), take_inventory(config)
    isolation.require([*first_reports(inventory), *_compilers(inventory)])
    for process, measure in isolation.weakened:
        remains = OPTIONAL.get(measure, "nothing of it remains")
        yield warning(
            "sandbox", f"{process.value} runs without {measure}, as the configuration allows: "
            f"{remains}", "`rgpu help security` says what the measure needs",
        )  # fmt: skip
    if not isolation.weakened:
        yield ok(
            "sandbox", "workers, compilers and the probe responder have every measure of isolation"
        )


def _compilers(inventory: Inventory) -> Iterator[tuple[Process, str]]:
    """Yields what the compilers of sessions report. The server asks each when it starts it, which
    is when somebody waits for it. WorkerError: one cannot be started.
    """
    if any(options.emulated for options in inventory.options.values()):
        yield Process.COMPILER, compiler.first_report()
    if any(seam_of(pool) == Seam.CUPY.word for pool in inventory.options):
        # It needs packages that a node without arrays need not have.
        from rgpu_server.arrays import source_compiler

        yield Process.COMPILER, source_compiler.first_report()
