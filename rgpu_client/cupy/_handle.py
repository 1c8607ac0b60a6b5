"""An object on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rgpu_client.cupy._session import Session


class Handle:
    """An object on the node, which is freed there when Python frees this one.

    _meta: what the client knows of it; part of the keys of signatures.
    """

    __slots__ = ("__weakref__", "_base", "_id", "_meta", "_session")

    def __init__(self, session: Session, id: int, meta: Any, base: Any = None) -> None:  # noqa: A002
        self._session = session
        self._id = id
        self._meta = meta
        self._base = base

    def __del__(self) -> None:
        try:  # noqa: SIM105 (it is on the way of every operation)
            self._session.free(self._id)
        except AttributeError:
            # It was never made.
            pass


class Opaque(Handle):
    """An object of which the client knows nothing, as several results that are kept as one."""

    __slots__ = ()


def wrong_session() -> ValueError:
    """Returns the error for arrays of two sessions in one operation."""
    return ValueError(
        "the arrays are of different sessions; copy one with asnumpy() and asarray() first"
    )
