"""Finds a lease by what a user writes for it: its id, key or name, how a drawn key begins, or
NODE/LEASE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.clusters import begins_id, is_given_id
from rgpu_common.errors import ServerError, UsageError
from rgpu_common.texts import may_be

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_common.v1 import lease_pb2


class Named(Struct, frozen=True):
    """A lease, and the server that has it."""

    server: Server
    lease: lease_pb2.Lease

    def __str__(self) -> str:
        node = f"{self.server.node}/" if self.server.node else ""
        return f"{node}{self.lease.lease_id}"


def find_lease(servers: Servers, text: str) -> Named:
    """Returns the lease that the user means.

    What is written out counts before what only begins so.

    Raises:
        UsageError: it may be one of several.
        ServerError: there is none, or no server answers.
    """
    answers = servers.ask(lambda client: client.leases())
    leases = [Named(server, lease) for server, found in answers for lease in found]
    found = _meant(leases, text)
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(may_be(text, list(map(str, found))))
    answers.complain()
    raise ServerError(f"there is no lease {text!r}; `rgpu lease list` shows which there are")


def _meant(leases: Sequence[Named], text: str) -> list[Named]:
    """Returns the leases that the text may mean: those of the first rule that finds one."""
    if is_given_id(text):
        return [one for one in leases if text in (str(one), one.lease.lease_id)]
    words = [(one, _words(one)) for one in leases if text]
    exactly = [one for one, known in words if text in known]
    return exactly or [one for one, known in words if any(begins_id(w, text) for w in known)]


def _words(one: Named) -> tuple[str, ...]:
    """Returns what people may call a lease. Its key and its name are what its owner likes, perhaps
    what others call theirs.
    """
    words = tuple(filter(None, (one.lease.lease_id, one.lease.key, one.lease.name)))
    node = one.server.node
    return (*words, *(f"{node}/{word}" for word in words)) if node else words
