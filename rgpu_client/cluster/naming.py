"""Finds a lease by what a user writes for it: its id, key or name, how one of them begins, or
NODE/LEASE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.errors import ServerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_common.v1 import lease_pb2

_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class Named:
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
        named = ", ".join(map(str, found[:_MOST_NAMED]))
        more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise UsageError(f"{text!r} may be {named}{more}: name one of them")
    answers.complain()
    raise ServerError(f"there is no lease {text!r}; `rgpu lease list` shows which there are")


def _meant(leases: Sequence[Named], text: str) -> list[Named]:
    """Returns the leases that the text may mean: those of the first rule that finds one."""
    node, slash, rest = text.partition("/")
    there = [one for one in leases if slash and one.server.node == node]
    for some, word in ((leases, text), (there, rest)):
        for rule in _RULES:
            if word and (found := [one for one in some if rule(one.lease, word)]):
                return found
    return []


_RULES: tuple[Callable[[lease_pb2.Lease, str], bool], ...] = (
    lambda lease, word: lease.lease_id == word,
    lambda lease, word: word in (lease.key, lease.name),
    lambda lease, word: lease.lease_id.startswith(word),
    lambda lease, word: lease.key.startswith(word) or lease.name.startswith(word),
)
