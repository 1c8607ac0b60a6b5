"""Decides what the NodePaths of this node say. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.paths import End
from rgpu_cluster.kubernetes.agent.degraded import is_degraded, with_usual
from rgpu_cluster.kubernetes.node_paths import client_of, merged, rows_in, rows_of, status_of
from rgpu_cluster.manager.reading import nic_of

if TYPE_CHECKING:
    from rgpu_cluster.kubernetes.node_paths import Row
    from rgpu_common.v1 import agent_pb2


class OwnPaths:
    """The rows of the object, and those that the server has measured since.

    The server remembers its measurements until it ends, and the object those of earlier servers.
    """

    def __init__(self) -> None:
        self._client: End | None = None
        self._rows: list[Row] = []
        # What was measured earlier was measured from another end.
        self._since = 0.0
        self._there: dict[str, Any] = {}

    def found(self, content: dict[str, Any] | None) -> None:
        """Takes the object as the API server has it; None: there is none."""
        self._there = (content or {}).get("status") or {}
        if content is not None and self._client is None:
            self._client, self._rows = client_of(content), rows_in(content)

    def wanted(self, report: agent_pb2.NodeReport, now: float) -> dict[str, Any] | None:
        """Returns the status that is to be written; None: the object says all already.

        now: seconds since 1970. Without a measurement there is nothing to say.
        """
        client = End(report.rack, nic_of(report.devices)[0])
        if self._client is not None and client != self._client:
            self._rows, self._since = [], now
        self._client = client
        measured = [row for row in rows_of(report) if row.measured_at >= self._since]
        self._rows = merged(self._rows, with_usual(self._rows, measured), now)
        status = status_of(client, self._rows)
        said = {name: value for name, value in status.items() if value is not None}
        if said == self._there or (not self._rows and not self._there):
            return None
        return status

    def is_degraded(self, now: float) -> bool:
        """Returns whether the network of the node has become much worse than it was."""
        return is_degraded(self._rows, now)

    def written(self, status: dict[str, Any]) -> None:
        """Notes that the object has this status now."""
        self._there = {name: value for name, value in status.items() if value is not None}
