"""The manager's own time, which goes on only while the manager looks."""

from __future__ import annotations

# Between two events at most so much time passes. The shell sends a tick every second.
MOST_NS = 2_000_000_000


class OwnClock:
    """Time in ns that never goes back, and that stands still while the manager is stopped.

    Without it a manager that was stopped for a minute, or whose clock jumped, would find all nodes
    silent, although it was the manager that did not listen.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._last_ns: int | None = None

    def look(self, shell_ns: int) -> None:
        """Takes the time of the shell's clock."""
        if self._last_ns is not None:
            self.now_ns += min(max(shell_ns - self._last_ns, 0), MOST_NS)
        self._last_ns = shell_ns
