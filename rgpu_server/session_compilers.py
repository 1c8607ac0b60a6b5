"""The compilers of sessions: of PTX for emulated devices, and of CUDA C++ for arrays."""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from rgpu_common.errors import WorkerError
from rgpu_emu.compile_schedule import Debts
from rgpu_server.arrays.places_file import PlacesFile, make_file
from rgpu_server.core.isolation import Process

if TYPE_CHECKING:
    import socket

    from rgpu_server.config import CompilerLimits
    from rgpu_server.devices import Served
    from rgpu_server.isolation import Isolation
    from rgpu_server.workers.compiler import Compilers

log = logging.getLogger("rgpu.server")

# How many files of tenants without sessions are kept. Processes that compiled for their last
# sessions may charge them for a moment; of older ones the debt is kept.
_MOST_IDLE: Final = 64


class SessionCompilers:
    """Connects each session to its tenant's compiler, and releases the compiler with the session.

    Each array worker has a compiler of CUDA C++ beside it, whatever the device. Those of a tenant
    compile only as many sources at a time as the tenant has places, and share its budget of
    processor time.

    compilers: None if the server has no emulated device. limits: of each tenant.
    """

    def __init__(
        self, compilers: Compilers | None, limits: CompilerLimits, isolation: Isolation
    ) -> None:
        self._compilers = compilers
        self._limits = limits
        # Session -> the tenant whose compiler it was connected to.
        self._tenants: dict[int, str] = {}
        # Session of arrays -> its tenant, and tenant -> the file of its places.
        self._at_places: dict[int, str] = {}
        self._files: dict[str, int] = {}
        # The same of tenants without sessions, the last that had one last.
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._debts = Debts()
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
            file = self._idle.pop(tenant, -1)
            self._files[tenant] = file if file >= 0 else self._make_file(tenant)
        self._at_places[session] = tenant
        return self._files[tenant]

    def release(self, session: int) -> None:
        """Notes that a session has ended."""
        tenant = self._tenants.pop(session, None)
        if tenant is not None and self._compilers is not None:
            self._compilers.release(tenant)
        tenant = self._at_places.pop(session, None)
        if tenant is not None and tenant not in self._at_places.values():
            self._rest(tenant, self._files.pop(tenant))

    def close(self) -> None:
        """Ends all compilers."""
        for files in (self._files, self._idle):
            while files:
                os.close(files.popitem()[1])
        if self._compilers is not None:
            self._compilers.close()

    def _make_file(self, tenant: str) -> int:
        now = time.monotonic()
        debt = self._debts.take(tenant, now)
        return make_file(self._limits.processes, self._limits.burst_seconds, debt, now=now)

    def _rest(self, tenant: str, file: int) -> None:
        """Keeps the file of a tenant whose last session has ended, or its debt."""
        self._idle[tenant] = file
        while len(self._idle) > _MOST_IDLE:
            oldest, file = self._idle.popitem(last=False)
            self._debts.keep(oldest, PlacesFile(file).spent(), 0.0, time.monotonic())
            os.close(file)
