"""The compilers that sessions on emulated devices are connected to."""

from __future__ import annotations

import logging
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

    compilers: None if the server has no emulated device.
    """

    def __init__(self, compilers: Compilers | None, isolation: Isolation) -> None:
        self._compilers = compilers
        # Session -> the tenant whose compiler it was connected to.
        self._tenants: dict[int, str] = {}
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

    def release(self, session: int) -> None:
        """Notes that a session has ended."""
        tenant = self._tenants.pop(session, None)
        if tenant is not None and self._compilers is not None:
            self._compilers.release(tenant)

    def close(self) -> None:
        """Ends all compilers."""
        if self._compilers is not None:
            self._compilers.close()
