"""`rgpu run --reservation`, and `--lease` on a cluster: runs a program in room that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_client.cluster.naming import Named
from rgpu_client.cluster.placing import SIZES, parts_of, variables_of
from rgpu_client.device_names import DeviceName
from rgpu_client.session.audit import say
from rgpu_client.sizes import sizes_of
from rgpu_common.clusters import lease_key
from rgpu_common.errors import UsageError
from rgpu_common.texts import may_be

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

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


def in_lease(
    manager: Endpoint, lease: str, environment: Mapping[str, str], *, loud: bool
) -> tuple[str, dict[str, str]] | None:
    """Returns the server of a lease that is there, and the variables of a program that joins it, as
    `in_reservation` does. None: no lease has this key or this name.

    Raises:
        UsageError: several have it.
    """
    from rgpu_client.cluster.servers import nodes_of

    answers = nodes_of(manager).ask(lambda client: client.leases())
    tenant = sizes_of(environment).tenant
    seen = [Named(server, one) for server, found in answers for one in found]
    mine = [one for one in seen if not tenant or one.lease.tenant == tenant]
    key, parts = _parts(mine, lease)
    if not parts:
        return None
    nodes = dict.fromkeys(part.server.address for part in parts)
    if loud:
        where = " and ".join(dict.fromkeys(str(part) for part in parts))
        say(f"{where}: joined (lease {key})")
    devices = [
        DeviceName(part.lease.device, part.server.address if len(nodes) > 1 else "")
        for part in parts
    ]
    variables = {name: text for name, text in environment.items() if name not in SIZES}
    variables |= {
        "RGPU_LEASE": key,
        "RGPU_DEVICE": ",".join(map(str, devices)),
        "RGPU_TENANT": parts[0].lease.tenant,
    }
    return "" if len(nodes) > 1 else next(iter(nodes)), variables


def _parts(mine: Sequence[Named], lease: str) -> tuple[str, list[Named]]:
    """Returns the key of the request that has this key or this name, and its leases in the order of
    its cards; none: there is no such request. UsageError: several have it.
    """
    keys = {
        _request(one.lease.key, mine) for one in mine if lease in (one.lease.key, one.lease.name)
    }
    if not keys:
        return "", []
    if len(keys) > 1:
        raise UsageError(may_be(lease, sorted(keys)))
    (key,) = keys
    cards = {one.lease.key: one for one in mine if _request(one.lease.key, mine) == key}
    places = [lease_key(key, place) for place in range(len(cards))]
    return key, [cards[place] for place in places if place in cards]


def _request(key: str, there: Sequence[Named]) -> str:
    """Returns the key of the first lease of the request to which a lease belongs."""
    first, dot, place = key.rpartition(".")
    others = {one.lease.key for one in there}
    return first if dot and place.isdecimal() and first in others else key
