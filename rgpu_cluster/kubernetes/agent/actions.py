"""What the keeper of a node's leases wants done. Each answer goes back to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_cluster.kubernetes import names

if TYPE_CHECKING:
    from rgpu_cluster.kubernetes.agent.views import PodRef
    from rgpu_common.v1 import agent_pb2

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Grant:
    """Ask the server for the lease of a claim. key: the allocation that it is for."""

    uid: str
    key: Key
    order: agent_pb2.GrantOrder


class Revoke(Struct, frozen=True):
    """End the leases of a claim up to this attempt, if a fresh look at the claim confirms it.

    namespace, name: of the claim; name "": only its namespace is known. leases: their ids.
    """

    uid: str
    namespace: str
    name: str
    attempt: int
    leases: frozenset[str]
    sentence: str


class Say(Struct, frozen=True):
    """Write into the claim's status that its shares are leased, or why not.

    condition: names.LEASED, names.REFUSED or names.LOST.
    """

    uid: str
    namespace: str
    name: str
    key: Key
    condition: str
    sentence: str = ""

    @property
    def leased(self) -> bool:
        return self.condition == names.LEASED


class Annotate(Struct, frozen=True):
    """Write into pods what RGPU_SERVER, RGPU_LEASE and RGPU_DEVICE are for their programs."""

    uid: str
    namespace: str
    key: Key
    pods: tuple[PodRef, ...]
    server: str
    lease: str
    device: str


Action = Grant | Revoke | Say | Annotate
