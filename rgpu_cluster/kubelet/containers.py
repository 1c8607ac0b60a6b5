"""Says what the containers of a claim get: variables and mounts. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_client.device_names import DeviceName, parse_devices
from rgpu_client.settings import SEND_PTX
from rgpu_cluster.kubelet import cdi
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.shelf import AUTHORITIES
from rgpu_common.clusters import lease_key
from rgpu_common.credentials import TOKEN_FILES
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_cluster.kubelet.claims import Allocated, ClaimName, Part
    from rgpu_cluster.kubelet.pods import Use
    from rgpu_cluster.kubelet.shelf import Held

# Where containers find the driver library, and the credentials of their claim. Images have rgpu
# itself in /opt/rgpu, of which a mount there would hide the Python packages.
LIBRARY, CREDENTIALS = "/opt/rgpu.dev/lib", "/opt/rgpu.dev/credentials"


class Folders(Struct, frozen=True):
    """Folders of this node. authorities: the credentials' folder has a file of authorities.
    server_name: the name in the servers' certificates; "": that of their addresses.
    """

    library: str
    credentials: str
    authorities: bool
    server_name: str = ""


def devices_for(
    allocated: Allocated,
    use: Use,
    held: Sequence[Held],
    folders: Folders,
) -> dict[str, Any]:
    """Returns what the containers get, by the request that they name; "" is the whole claim.

    Raises:
        PrepareError: a program cannot use so many cards.
    """
    mounts = {LIBRARY: folders.library, CREDENTIALS: folders.credentials}
    common = {
        **SEND_PTX,
        "LD_LIBRARY_PATH": ":".join([LIBRARY, *(p for p in use.libraries if p != LIBRARY)]),
    }
    if folders.authorities:
        common["RGPU_TLS_CA"] = f"{CREDENTIALS}/{AUTHORITIES}"
    if folders.server_name:
        common["RGPU_TLS_NAME"] = folders.server_name
    requests = [""]
    if use.by_request:
        cards = (part for part in allocated.parts if part.ordinal is not None)
        requests = [*dict.fromkeys(card.request for card in cards)]
    return {
        request: cdi.edits({**common, **_variables(allocated, request, held)}, mounts)
        for request in requests
    }


def _variables(allocated: Allocated, request: str, held: Sequence[Held]) -> dict[str, str]:
    """Returns the variables that lead a program to the leases of a request."""
    cards = [part for part in allocated.parts if part.ordinal is not None]
    places = _places(allocated.claim, cards, request)
    by_pool = {
        one.pool: (f"{CREDENTIALS}/{number}", one.credential) for number, one in enumerate(held)
    }
    pools = [*dict.fromkeys(cards[place].pool for place in places)]
    several = len(pools) > 1
    devices = [
        DeviceName(card.ordinal or 0, by_pool[card.pool][1].server if several else "")
        for card in (cards[place] for place in places)
    ]
    found = {
        # The lease of the first card. A program finds the leases of the next places from it.
        "RGPU_LEASE": lease_key(allocated.claim.uid, places[0]),
        "RGPU_DEVICE": _checked(devices, allocated),
    }
    if several:
        files = [
            f"{given.server}={file}"
            for file, given in (by_pool[pool] for pool in pools)
            if given.token
        ]
        return {**found, **({TOKEN_FILES: ";".join(files)} if files else {})}
    file, given = by_pool[pools[0]]
    # Without a credential the containers have said where their own token is.
    shown = {"RGPU_TOKEN_FILE": file} if given.token else {}
    return {"RGPU_SERVER": given.server, **found, **shown}


def _places(claim: ClaimName, cards: Sequence[Part], request: str) -> list[int]:
    """Returns the places of a request's cards among all cards of the claim."""
    places = [place for place, card in enumerate(cards) if request in ("", card.request)]
    if places[0] and len(places) > 1:
        # A program finds the lease of its card N by the place of its first card and N.
        raise PrepareError(
            f"request {request!r} of {claim} has several cards and is not the claim's first: make "
            "it the first, or name the claim without `request`"
        )
    return places


def _checked(devices: Sequence[DeviceName], allocated: Allocated) -> str:
    text = ",".join(map(str, devices))
    try:
        parse_devices(text)
    except UsageError as error:
        raise PrepareError(
            f"{allocated.claim} gives programs devices without use: {error}"
        ) from None
    return text
