"""`rgpu run --reservation`: runs a program in room that was reserved before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_client.cluster.placing import parts_of, variables_of
from rgpu_client.session.audit import say
from rgpu_client.sizes import sizes_of
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from rgpu_client.cluster.options import Wanted
    from rgpu_common.endpoints import Endpoint

_SIZES = ("memory", "share", "limit", "policy", "priority", "weight", "device", "lease")


def check_options(arguments: argparse.Namespace, where: Wanted) -> None:
    """UsageError for an option that says what the reservation has settled already."""
    given = [f"--{name}" for name in _SIZES if getattr(arguments, name) is not None]
    if given:
        raise UsageError(f"a reservation has its sizes and its cards: leave out {given[0]}")
    if where.given:
        raise UsageError(
            "a reservation has its place: leave out the other options for a cluster, or give them "
            "to `rgpu reserve`"
        )
    if arguments.wait:
        raise UsageError("the room of a reservation is there already: leave out --wait")
    if arguments.hold:
        raise UsageError("a reservation needs nobody to keep it alive: leave out --hold")
    if arguments.server:
        raise UsageError("the manager knows the server of a reservation: leave out --server")


def in_reservation(
    manager: Endpoint, reservation: str, environment: Mapping[str, str], *, loud: bool
) -> tuple[str, dict[str, str]]:
    """Returns the server of a reservation, and the variables of a program that uses it. The server
    is "" if there are several, and RGPU_DEVICE names the server of each card.

    Raises:
        ServerError: the tenant has no such reservation now, or the manager does not answer.
    """
    from rgpu_client.cluster.asking import ManagerClient

    with ManagerClient(manager) as client:
        found = client.find_reservation(reservation, sizes_of(environment).tenant)
    parts = parts_of(found)
    if loud:
        places = " and ".join(f"{part.node} at {part.address}" for part in parts)
        say(f"{places}: reserved (reservation {found.request_id})")
    server = found.address if len(parts) == 1 else ""
    return server, variables_of(environment, found.request_id, found.tenant, parts)
