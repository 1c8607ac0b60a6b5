"""Pods that name a claim which is not there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.views import claim_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Missing:
    """A pod may be heard of before its claim is, so a claim is missing only at the second look."""

    def __init__(self) -> None:
        self._before: set[tuple[str, str]] = set()

    def look(
        self, pods: Iterable[Any], claims: Mapping[tuple[str, str], Any]
    ) -> Iterator[tuple[Any, str]]:
        """Yields each pod that still lacks a claim which it lacked at the last look, and the name
        of that claim.
        """
        lacked, self._before = self._before, set()
        for pod in pods:
            metadata = pod.metadata
            for name in claim_names(pod):
                if name is None or (metadata.namespace, name) in claims:
                    continue
                self._before.add((metadata.uid, name))
                if (metadata.uid, name) in lacked:
                    yield pod, name
