"""Searches in the graph of calls. Each takes time in proportion to the number of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rgpu_emu.ptx.module import Function

    Edges = Mapping[Function, list[Function]]


def reaching(edges: Edges, start: Iterable[Function]) -> set[Function]:
    """Returns `start` and all functions that reach one of them by calls."""
    callers: dict[Function, list[Function]] = {}
    for function, callees in edges.items():
        for callee in callees:
            callers.setdefault(callee, []).append(function)
    found = set(start)
    queue = list(found)
    while queue:
        for caller in callers.get(queue.pop(), []):
            if caller not in found:
                found.add(caller)
                queue.append(caller)
    return found


class _Components:
    """Tarjan's algorithm for strongly connected components."""

    def __init__(self, edges: Edges) -> None:
        self._edges = edges
        self._number: dict[Function, int] = {}
        self._low: dict[Function, int] = {}
        self._open: dict[Function, None] = {}
        self._stack: list[tuple[Function, Iterator[Function]]] = []
        self.cyclic = {f for f, callees in edges.items() if f in callees}
        for root in edges:
            if root not in self._number:
                self._enter(root)
            while self._stack:
                self._step()

    def _enter(self, function: Function) -> None:
        self._number[function] = self._low[function] = len(self._number)
        self._open[function] = None
        self._stack.append((function, iter(self._edges[function])))

    def _step(self) -> None:
        function, rest = self._stack[-1]
        for callee in rest:
            if callee not in self._number:
                self._enter(callee)
                return
            if callee in self._open:
                self._low[function] = min(self._low[function], self._number[callee])
        self._stack.pop()
        if self._stack:
            caller = self._stack[-1][0]
            self._low[caller] = min(self._low[caller], self._low[function])
        if self._low[function] == self._number[function]:
            self._close(function)

    def _close(self, first: Function) -> None:
        component: list[Function] = []
        while not component or component[-1] is not first:
            component.append(self._open.popitem()[0])
        if len(component) > 1:
            self.cyclic.update(component)


def recursive(edges: Edges) -> set[Function]:
    """Returns the functions that a chain of calls leads back to."""
    return _Components(edges).cyclic


def heaviest(edges: Edges, weight: Mapping[Function, int], start: Function) -> int:
    """Returns the greatest sum of weights on a chain of calls from `start`. A call back to a
    function of the chain does not count.
    """
    total: dict[Function, int] = {}
    best = {start: 0}
    stack = [(start, iter(edges.get(start, [])))]
    while stack:
        function, rest = stack[-1]
        for callee in rest:
            if callee in total:
                best[function] = max(best[function], total[callee])
            elif callee not in best:
                best[callee] = 0
                stack.append((callee, iter(edges.get(callee, []))))
                break
        else:
            stack.pop()
            total[function] = best[function] + weight.get(function, 0)
            if stack:
                caller = stack[-1][0]
                best[caller] = max(best[caller], total[function])
    return total[start]
