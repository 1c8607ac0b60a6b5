"""Whether the node takes new leases and sessions: not while it stops, and not while it is
drained.
"""

from __future__ import annotations

from msgspec import Struct

from rgpu_server.core.model import Code, RefusedError


class Drain(Struct, frozen=True):
    """A drain of the node. ends_at: when all leases end, in seconds of the caller's clock; None:
    never.
    """

    ends_at: float | None


class Standing(Struct):
    """stopping: the node stops and does not start again. drain: set while the node is drained;
    running sessions go on.
    """

    stopping: bool = False
    drain: Drain | None = None

    def check_running(self) -> None:
        """Raises RefusedError while the node stops."""
        if self.stopping:
            raise RefusedError(
                Code.STOPPING, "the server is stopping; use another one or wait until it is back"
            )

    def check_not_draining(self) -> None:
        """Raises RefusedError while the node is drained."""
        if self.drain is not None:
            raise RefusedError(
                Code.DRAINING,
                "the server is being drained by its operator: it takes no new lease and no new "
                "session, and nobody can wait in line; use another server, or try again after "
                "`rgpu undrain`",
            )
