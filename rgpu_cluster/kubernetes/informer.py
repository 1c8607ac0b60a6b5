"""Keeps a copy of all objects of one kind, as a list and a watch of the API server give them."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.names import GROUP
from rgpu_cluster.kubernetes.objects import Objects, key_of, model_of
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.objects import Content, Key

log = logging.getLogger("rgpu.kubernetes")

T = TypeVar("T")

# The server ends a watch after so long, and we begin another one.
_WATCH_SECONDS = 60
# A watch on which nothing has come for longer is dead.
_SILENCE_SECONDS = _WATCH_SECONDS + 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_NOT_FOUND, _GONE = 404, 410
# Where kinds come from that a cluster may lack, by their group.
_WHERE = {
    "resource.k8s.io": "Kubernetes 1.34 and later have them",
    GROUP: "apply deploy/kubernetes/crds",
}
_MOST_TEXT = 200


class Informer(Generic[T]):
    """store: (namespace, name) -> the object, as it was last heard. synced: all objects are in the
    store. on_change: called with the object before and after; None: it was not there, or has gone.
    needed: returns what is kept of an object.

    An object that cannot be read stays as it was when it could be read last, or is left out.

    A class of a kind that the server does not have is an error that is said once, and tried again.
    """

    def __init__(
        self,
        client: AsyncClient,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: dict[str, Any] | None = None,
        fields: dict[str, Any] | None = None,
        on_change: Callable[[T | None, T | None], None] = lambda before, after: None,
        needed: Callable[[Content], Content] = lambda content: content,
    ) -> None:
        self._kind: Any = kind
        where = {"namespace": namespace, "labels": labels, "fields": fields}
        self._objects = Objects(client, kind, {k: v for k, v in where.items() if v is not None})
        self._on_change = on_change
        self._needed = needed
        # Objects that could not be read when they were heard last.
        self._unread: set[Key] = set()
        self.store: dict[Key, T] = {}
        self.synced = asyncio.Event()
        self._said = ""
        self._version = ""
        self._heard = 0.0

    async def run(self) -> None:
        """Lists and watches until it is cancelled."""
        pause = _FIRST_PAUSE
        while True:
            version = ""
            try:
                version = await self._list()
                pause, self._said = _FIRST_PAUSE, ""
                while True:
                    version = await self._watch(version)
            except CALL_ERRORS as error:
                if code_of(error) != _GONE:
                    self._say(self._why(error))
            except Exception as error:
                # An answer that cannot be read must not end the process that watches.
                why = one_line(f"{type(error).__name__}: {error}", _MOST_TEXT)
                self._say(f"the API server's answer cannot be read ({why})")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _why(self, error: Exception) -> str:
        if code_of(error) != _NOT_FOUND:
            return sentence_of(error)
        # A list finds nothing only where the kind itself is not there.
        info = self._kind._api_info
        group, version = info.resource.group, info.resource.version
        sentence = f"the API server has no {info.plural} of {group}/{version}"
        return f"{sentence}; {_WHERE[group]}" if group in _WHERE else sentence

    def _say(self, sentence: str) -> None:
        if sentence != self._said:
            log.warning("%s are not watched now: %s", self._kind.__name__, sentence)
            self._said = sentence

    async def _list(self) -> str:
        """Takes over a whole list; returns its version."""
        listed = self._objects.list()
        # At most a part of the list is there as dictionaries, which are large.
        found = {key_of(content): self._taken(content) async for content in listed}
        for key in [key for key in self.store if key not in found]:
            self._gone(key)
        self._unread &= found.keys()
        for key, one in found.items():
            self._there(key, one)
        self.synced.set()
        return str(listed.resourceVersion)

    async def _watch(self, version: str) -> str:
        """Takes over changes since a version until the watch ends; returns the version then."""
        self._version, self._heard = version, time.monotonic()
        # One task reads the whole stream; another one would confuse the HTTP client.
        following = asyncio.ensure_future(self._follow())
        try:
            while not following.done():
                left = self._heard + _SILENCE_SECONDS - time.monotonic()
                if left <= 0:
                    raise TimeoutError("the API server says nothing")
                await asyncio.wait({following}, timeout=left)
            following.result()
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        return self._version

    async def _follow(self) -> None:
        async for event, content in self._objects.watch(self._version, _WATCH_SECONDS):
            self._version = str(content["metadata"]["resourceVersion"])
            self._heard = time.monotonic()
            if event == "DELETED":
                self._gone(key_of(content), self._read(content))
                self._unread.discard(key_of(content))
            elif event in ("ADDED", "MODIFIED"):
                self._there(key_of(content), self._taken(content))

    def _read(self, content: Content) -> T | None:
        """Returns an object; None: it cannot be read, which is said once."""
        key = key_of(content)
        try:
            one: T = model_of(self._kind, self._needed(content))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            if key not in self._unread:
                self._unread.add(key)
                log.warning(
                    "%s %s/%s cannot be read, so its last change counts for nothing: %s",
                    self._kind.__name__, *key, one_line(str(error), _MOST_TEXT),
                )  # fmt: skip
            return None
        self._unread.discard(key)
        return one

    def _taken(self, content: Content) -> T | None:
        """Returns an object as it counts from now on; None: there is nothing that can be read."""
        before = self.store.get(key_of(content))
        if before is not None and _version(before) == _version_of(content):
            return before
        one = self._read(content)
        same = before is not None and _version(before)[0] == _version_of(content)[0]
        return before if one is None and same else one

    def _there(self, key: Key, one: T | None) -> None:
        before = self.store.get(key)
        if one is None:
            self._gone(key)
        elif before is not one:
            self.store[key] = one
            self._tell(before, one)

    def _gone(self, key: Key, last: T | None = None) -> None:
        before = self.store.pop(key, None)
        if before is not None:
            self._tell(last if last is not None else before, None)

    def _tell(self, before: T | None, after: T | None) -> None:
        try:
            self._on_change(before, after)
        except Exception:
            # A defect for one object must not stop the others.
            log.exception("a change of %s was not handled", self._kind.__name__)


def _version(one: Any) -> tuple[str, str]:
    return (str(one.metadata.uid), str(one.metadata.resourceVersion))


def _version_of(content: Content) -> tuple[str, str]:
    metadata = content["metadata"]
    return (str(metadata.get("uid")), str(metadata.get("resourceVersion")))
