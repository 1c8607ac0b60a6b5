"""The compilers of sessions: of PTX for emulated devices, and of CUDA C++ for arrays."""

from __future__ import annotations

import fcntl
import logging
import os
from typing import TYPE_CHECKING

from rgpu_common.errors import WorkerError
from rgpu_server.core.isolation import Process

if TYPE_CHECKING:
    import socket

    from rgpu_server.devices import Served
    from rgpu_server.isolation import Isolation
    from rgpu_server.workers.compiler import Compilers

log = logging.getLogger("rgpu.server")


class SessionCompilers:
    """Connects each session to its tenant's compiler, and releases the compiler with the session.

    Each array worker has a compiler of CUDA C++ beside it, whatever the device. Those of a tenant
    compile only as many sources at a time as the tenant has places.

    compilers: None if the server has no emulated device. places: how many each tenant has.
    """

    def __init__(self, compilers: Compilers | None, places: int, isolation: Isolation) -> None:
        self._compilers = compilers
        self._places = places
        # Session -> the tenant whose compiler it was connected to.
        self._tenants: dict[int, str] = {}
        # Session of arrays -> its tenant, and tenant -> the file of its places.
        self._at_places: dict[int, str] = {}
        self._files: dict[str, int] = {}
        if compilers is not None:
            compilers.check_with(lambda report: isolation.check(Process.COMPILER, report))

    def connect(self, session: int, tenant: str, served: Served) -> socket.socket | None:
        """Returns a connection to the compiler. None: the device needs no compiler, or it cannot be
        started.
        """
        if not served.emulated or self._compilers is None:
            return None
        try:
            connection = self._compilers.connect(tenant)
        except (WorkerError, OSError) as error:
            log.error("%s", error)
            return None
        self._tenants[session] = tenant
        return connection

    def places(self, session: int, tenant: str) -> int:
        """Returns the file of the places at which a tenant's sessions of arrays compile CUDA C++.

        Raises:
            OSError: the file could not be made.
        """
        if tenant not in self._files:
            self._files[tenant] = _places_file(self._places)
        self._at_places[session] = tenant
        return self._files[tenant]

    def release(self, session: int) -> None:
        """Notes that a session has ended."""
        tenant = self._tenants.pop(session, None)
        if tenant is not None and self._compilers is not None:
            self._compilers.release(tenant)
        tenant = self._at_places.pop(session, None)
        if tenant is not None and tenant not in self._at_places.values():
            os.close(self._files.pop(tenant))

    def close(self) -> None:
        """Ends all compilers."""
        while self._files:
            os.close(self._files.popitem()[1])
        if self._compilers is not None:
            self._compilers.close()


def _places_file(count: int) -> int:
    """Returns a file with one byte for each place. A worker has a place while it holds a lock on
    the byte. The system takes the lock from a worker that ends, so no place is lost.
    """
    file = os.memfd_create("rgpu-compile-places", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(file, count)
    # A tenant's workers share it: none of them may make places, or take them away for good.
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return file
