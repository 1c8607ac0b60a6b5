"""Whether the node takes anything new: not while it stops, and not while it is drained."""

from __future__ import annotations

from dataclasses import dataclass

from rgpu_server.core.model import Code, RefusedError


@dataclass(frozen=True, slots=True)
class Drain:
    """ends_at: when all leases end, in seconds of the caller's clock; None: never."""

    ends_at: float | None


@dataclass(slots=True)
class Standing:
    """stopping: for good.  drain: set while the node is drained; what runs goes on."""

    stopping: bool = False
    drain: Drain | None = None

    def check_running(self) -> None:
        """RefusedError while the node stops."""
        if self.stopping:
            raise RefusedError(
                Code.STOPPING, "the server is stopping; use another one or wait until it is back"
            )

    def check_not_draining(self) -> None:
        """RefusedError while the node is drained."""
        if self.drain is not None:
            raise RefusedError(
                Code.DRAINING,
                "the server is being drained by its operator and takes nothing new, and nobody "
                "waits for it in line; use another one, or try again after `rgpu undrain`",
            )
