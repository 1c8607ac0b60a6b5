"""Lists and watches the objects of one kind as dictionaries, one by one.

lightkube turns a whole list into its models at once, so one object with a time of the year 0000
makes the list unreadable. And it cuts a watch at each character that Python takes for the end of a
line, such as U+0085, which tenants may write. Here each object is read by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lightkube import ApiError
from lightkube.core import resource as lightkube
from lightkube.core.decoders import decode_object, decode_status, decode_watch_event
from lightkube.core.selector import build_selector

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from lightkube import AsyncClient

Content = dict[str, Any]
Key = tuple[str, str]

# The server stores objects of 1.5 MiB, and writes each character with six at most.
_MOST_LINE = 16 << 20
_CHUNK = 500


class Objects:
    """The objects of a kind. where: `namespace`, `labels` and `fields`, as lightkube has them."""

    def __init__(self, client: AsyncClient, kind: Any, where: Mapping[str, Any]) -> None:
        self._client: Any = client
        self._kind = plain(kind)
        self._where = dict(where)

    def list(self) -> Any:
        """Returns all objects as an asynchronous iterable, which has a `resourceVersion` then.

        It raises one of `api.CALL_ERRORS`.
        """
        return self._client.list(self._kind, chunk_size=_CHUNK, **self._where)

    async def watch(self, version: str, seconds: int) -> AsyncIterator[tuple[str, Content]]:
        """Yields the changes since a version until the server ends the watch after `seconds`.

        Raises one of `api.CALL_ERRORS`, or ValueError for an answer that is no watch.
        """
        # lightkube's own watch splits the lines, so only its request is used.
        http = self._client._client
        asked = http.prepare_request(
            "list", res=self._kind, namespace=self._where.get("namespace"), watch=True,
            params=self._parameters(version, seconds),
        )  # fmt: skip
        asked.timeout = http._watch_timeout
        response = await http.send(http.build_adapter_request(asked), stream=True)
        try:
            response.raise_for_status()
            async for line in _lines(response.aiter_bytes()):
                event = decode_watch_event(line)
                if event.type == "ERROR":
                    raise ApiError(status=decode_status(event.object))
                yield event.type, decode_object(event.object, self._kind)
        finally:
            await response.aclose()

    def _parameters(self, version: str, seconds: int) -> dict[str, Any]:
        labels, fields = self._where.get("labels"), self._where.get("fields")
        return {
            "timeoutSeconds": seconds,
            "resourceVersion": version,
            "labelSelector": build_selector(labels) if labels else None,
            "fieldSelector": build_selector(fields, for_fields=True) if fields else None,
        }


def plain(kind: Any) -> Any:
    """Returns a kind of lightkube whose objects are dictionaries."""
    scopes = (lightkube.NamespacedResourceG, lightkube.NamespacedResource, lightkube.GlobalResource)
    scope = next(one for one in scopes if issubclass(kind, one))
    return type(f"Plain{kind.__name__}", (dict, scope), {"_api_info": kind._api_info})


def key_of(content: Mapping[str, Any]) -> Key:
    """Returns the namespace, "" if it is in none, and the name of an object."""
    metadata = content["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])


def model_of(kind: Any, content: Content) -> Any:
    """Returns an object as lightkube's model, without the history of its fields, which is as large
    as the object and of no use here.

    Raises:
        ValueError, TypeError, LookupError: the model cannot have one of the values.
    """
    metadata = {k: v for k, v in content["metadata"].items() if k != "managedFields"}
    one: Any = kind.from_dict({**content, "metadata": metadata})
    if issubclass(kind, dict):
        # Kinds without a model read their metadata whenever they are asked for it.
        one["metadata"] = one.metadata
    return one


async def read(client: Any, kind: Any, name: str, namespace: str) -> Any:
    """Returns one object as `model_of` does, also if its history cannot be read.

    Raises one of `api.CALL_ERRORS`, of which one says that the object cannot be read.
    """
    return model_of(kind, await content_of(client, kind, name, namespace=namespace))


async def content_of(client: Any, kind: Any, name: str, **where: str) -> Content:
    """Returns one object as a dictionary; raises one of `api.CALL_ERRORS`. where: its namespace."""
    return dict(await client.get(plain(kind), name, **where))


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the lines of an answer. ValueError: a line is too long."""
    begun = bytearray()
    async for part in parts:
        *whole, rest = part.split(b"\n")
        for line in whole:
            yield bytes(begun) + line
            begun.clear()
        begun += rest
        if len(begun) > _MOST_LINE:
            raise ValueError(f"an event has more than {_MOST_LINE} bytes")
