"""What claims ask for, read once for each change: a wrong claim costs as little as a sound one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.parameters import in_fields
from rgpu_cluster.kubernetes.views import gang_of
from rgpu_cluster.kubernetes.wishes import is_our_class, wishes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.kubernetes.wishes import Wish

Key = tuple[str, str]


class Asked(NamedTuple):
    """What a claim asks for. gang: that of its first pod, with its size."""

    wishes: tuple[Wish, ...]
    gang: tuple[str, int]


class ClaimReading:
    """classes: the DeviceClasses by namespace and name, as an informer has them."""

    def __init__(self, classes: Mapping[Key, Any]) -> None:
        self._classes = classes
        self._by_name: dict[str, dict[str, Any]] | None = None
        # Claim -> its version, and what is in it as a dictionary, which takes long to make.
        self._contents: dict[Key, tuple[str, dict[str, Any]]] = {}
        # Claim -> the claim and the pod that were wrong, and the sentence.
        self._wrong: dict[Key, tuple[tuple[str, str], str]] = {}

    def class_changed(self, before: Any, after: Any) -> None:
        """Notes that a DeviceClass has changed, so that all claims are read again."""
        self._by_name = None
        self._wrong.clear()

    def forget(self, key: Key) -> None:
        """Notes that there is no such claim any more."""
        self._contents.pop(key, None)
        self._wrong.pop(key, None)

    def content(self, claim: Any) -> dict[str, Any]:
        """Returns a claim as a dictionary."""
        key, version = _key(claim), claim.metadata.resourceVersion
        known = self._contents.get(key)
        if known is None or known[0] != version:
            known = self._contents[key] = version, claim.to_dict()
        return known[1]

    def asked(self, claim: Any, pod: Any) -> Asked | str:
        """Returns what a claim asks for, or a sentence if it cannot be met as it is.

        pod: the first pod that uses it, or None.
        """
        key, seen = _key(claim), (claim.metadata.uid, pod.metadata.resourceVersion if pod else "")
        wrong = self._wrong.get(key)
        if wrong is not None and wrong[0] == seen:
            return wrong[1]
        try:
            found = self._read(claim, pod)
        except RequestError as error:
            sentence = in_fields(str(error))
            self._wrong[key] = seen, sentence
            return sentence
        self._wrong.pop(key, None)
        return found

    def _read(self, claim: Any, pod: Any) -> Asked:
        from_pod = gang_of(pod) if pod is not None else ("", 1)
        if isinstance(from_pod, str):
            raise RequestError(from_pod)
        content = pod.to_dict() if pod is not None else None
        return Asked(wishes_of(self.content(claim), self._named(), content), from_pod)

    def _named(self) -> dict[str, dict[str, Any]]:
        if self._by_name is None:
            self._by_name = {
                name: one.to_dict() for (_, name), one in self._classes.items()
                if is_our_class(name)
            }  # fmt: skip
        return self._by_name


def _key(one: Any) -> Key:
    return (one.metadata.namespace or "", one.metadata.name)
