"""Which paths are measured next: a few of each class, never node by node. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core.paths import End

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths

# A class is measured again when its figures are this old.
OLD_SECONDS = 600
# How many measurements one look begins.
AT_ONCE = 4
# In how many looks a class is tried at most once: at first, because what leads to a node that has
# just come may follow it a moment later, and twice as many after each try up to PAUSE.
FIRST_PAUSE = 5
PAUSE = 30


class Probing:
    """Chooses pairs of nodes. Each class of paths is measured by one pair at a time, and each time
    by another one. A pair whose measurement fails is not tried again for a while.
    """

    def __init__(self) -> None:
        self._looks = 0
        # Class -> when it was tried last, and how often.
        self._tried: dict[tuple[End, End], tuple[int, int]] = {}

    def look(self, nodes: Sequence[Node], paths: Paths) -> list[tuple[Node, Node]]:
        """Returns the pairs (who measures, to whom) for this look; looks are seconds apart."""
        self._looks += 1
        by_end: dict[End, list[Node]] = {}
        for node in nodes:
            by_end.setdefault(End(node.rack, node.nic), []).append(node)
        self._tried = {k: v for k, v in self._tried.items() if k[0] in by_end and k[1] in by_end}
        chosen = []
        busy: set[str] = set()
        for client, server in self._due(by_end, paths):
            pair = self._pair(by_end[client], by_end[server], (client, server))
            if pair is None or pair[0].name in busy:
                continue
            _, times = self._tried.get((client, server), (0, 0))
            self._tried[client, server] = self._looks, times + 1
            busy.add(pair[0].name)
            chosen.append(pair)
            if len(chosen) == AT_ONCE:
                break
        return chosen

    def _due(self, by_end: dict[End, list[Node]], paths: Paths) -> list[tuple[End, End]]:
        """Returns the classes to measure: unmeasured ones first, then those whose figures are
        doubted, then the oldest figures.
        """
        known = paths.measured()
        due = []
        for client in by_end:
            for server in by_end:
                figures = known.get((client, server))
                last, times = self._tried.get((client, server), (0, 0))
                if times and self._looks - last < _pause(times):
                    continue
                if figures is None:
                    due.append((-1, last, client, server))
                elif paths.doubted((client, server)):
                    due.append((0, last, client, server))
                elif figures.age_seconds >= OLD_SECONDS:
                    due.append((1, last - figures.age_seconds, client, server))
        due.sort()
        return [(client, server) for _, _, client, server in due]

    def _pair(
        self, clients: Sequence[Node], servers: Sequence[Node], ends: tuple[End, End]
    ) -> tuple[Node, Node] | None:
        _, times = self._tried.get(ends, (0, 0))
        count = len(clients) * len(servers)
        for step in range(min(count, len(servers) + 1)):
            place = (times + step) % count
            client, server = clients[place // len(servers)], servers[place % len(servers)]
            if client.name != server.name:
                return client, server
        return None


def _pause(times: int) -> int:
    """Returns for how many looks a class rests that was tried so often."""
    return min(FIRST_PAUSE << min(times - 1, 8), PAUSE)
