"""Finds the server and the card of a run: by a manager, or among servers that the user named."""

from __future__ import annotations

import contextlib
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from msgspec import Struct

from netprobe.identity import machine_name, read_boot_id
from rgpu_client.device_names import DeviceName
from rgpu_client.session.audit import say
from rgpu_client.session.check import InLine
from rgpu_client.session.paths import workload_of
from rgpu_client.sizes import sizes_of
from rgpu_client.variables import variable
from rgpu_common.clusters import check_node_name, lease_key, manager_endpoint
from rgpu_common.errors import NoSessionError, UsageError
from rgpu_common.wire.claim import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from netprobe.cost import Workload
    from rgpu_client.cluster.asking import ManagerClient
    from rgpu_client.cluster.options import Wanted
    from rgpu_client.sizes import Sizes
    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1 import cluster_pb2, lease_pb2

# The lease has its sizes; what the program's own session asks for could only contradict them.
SIZES = (
    "RGPU_MEMORY", "RGPU_SHARE", "RGPU_LIMIT", "RGPU_POLICY", "RGPU_PRIORITY", "RGPU_WEIGHT",
)  # fmt: skip


class Placed(Struct, frozen=True):
    """Where a run's cards are.

    server: that of the cards; "" if they are on several, and RGPU_DEVICE names the server of each.
    environment: the variables for the program, without the paths.
    """

    server: str
    environment: dict[str, str]
    request: str
    # Open until the program has its leases, so that the manager notices if this process dies.
    client: ManagerClient

    def give_up(self) -> None:
        """Takes the request back, because its program does not start."""
        with self.client as client:
            client.withdraw(self.request)


def manager_of(option: str | None, environment: Mapping[str, str]) -> Endpoint | None:
    """Returns the manager of the option, else of RGPU_MANAGER; None: none is named."""
    text = option or environment.get("RGPU_MANAGER")
    if not text:
        return None
    try:
        return manager_endpoint(text)
    except UsageError as error:
        raise UsageError(f"{'--manager' if option else 'RGPU_MANAGER'}: {error}") from None


def place_by_manager(
    manager: Endpoint,
    wanted: Wanted,
    environment: Mapping[str, str],
    wait: float,
    *,
    name: str,
    loud: bool,
) -> Placed:
    """Asks the manager for a card. environment: with the sizes of the run. name: what it is called.

    Raises:
        UsageError: the sizes cannot be met by a manager.
        NoSessionError: there is no card.
    """
    from rgpu_client.cluster.asking import ManagerClient

    request = request_of(wanted, environment, wait)
    request.stays, request.name = True, name
    client = ManagerClient(manager)
    try:
        placed = submitted(client, request, wait)
        parts = parts_of(placed)
        if loud:
            places = " and ".join(f"{part.node} at {part.address}" for part in parts)
            say(f"{places}: {placed.reason} (request {request.request_id})")
    except BaseException:
        client.close()
        raise
    variables = variables_of(environment, request.request_id, placed.tenant, parts)
    server = "" if len(parts) > 1 else placed.address
    return Placed(server, variables, request.request_id, client)


def parts_of(placed: cluster_pb2.PlacedAt) -> list[cluster_pb2.PlacedOn]:
    """Returns the cards of each node, in the order of their leases."""
    from rgpu_common.v1 import cluster_pb2

    first = cluster_pb2.PlacedOn(node=placed.node, address=placed.address, ordinals=placed.ordinals)
    return [first, *placed.others]


def submitted(
    client: ManagerClient, request: cluster_pb2.SubmitRequest, wait: float
) -> cluster_pb2.PlacedAt:
    """Submits a request, and shows its place in line meanwhile; NoSessionError."""
    line = InLine(sys.stderr)

    def show(place: cluster_pb2.InLine) -> None:
        line.show(Place(place.place, place.waiting, place.sentence))

    try:
        with _ended_by_sigterm():
            placed = client.submit(request, wait, show)
    finally:
        line.clear()
    for part in parts_of(placed):
        if not part.address or not part.ordinals:
            # Its cards elsewhere are not for a program that lacks some.
            client.withdraw(request.request_id)
            raise NoSessionError(f"node {part.node} has left the cluster meanwhile; try again")
    return placed


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """In the block SIGTERM ends this process as Ctrl-C does: it takes its request back first, which
    would wait on for a client that has gone.
    """

    def leave(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def variables_of(
    environment: Mapping[str, str],
    request: str,
    tenant: str,
    parts: Sequence[cluster_pb2.PlacedOn],
) -> dict[str, str]:
    """Returns the variables of a program that uses the leases of a request."""
    kept = {name: text for name, text in environment.items() if name not in SIZES}
    devices = [
        DeviceName(ordinal, part.address if len(parts) > 1 else "")
        for part in parts
        for ordinal in part.ordinals
    ]
    found = {
        **kept,
        "RGPU_LEASE": lease_key(request, 0),
        "RGPU_DEVICE": ",".join(map(str, devices)),
    }
    if tenant:
        # A server that takes the program for another tenant refuses, and opens no second lease.
        found["RGPU_TENANT"] = tenant
    return found


def request_of(
    wanted: Wanted, environment: Mapping[str, str], wait: float
) -> cluster_pb2.SubmitRequest:
    """Returns the request for a manager; UsageError for what only one server can do."""
    from rgpu_client.cluster.asking import new_request_id
    from rgpu_common.v1 import cluster_pb2

    _check_alone(environment)
    sizes = sizes_of(environment)
    message = cluster_pb2.SubmitRequest(
        request_id=new_request_id(),
        tenant=sizes.tenant,
        cards=wanted.cards,
        quota=_quota(sizes),
        whole=wanted.whole,
        model=wanted.model,
        pool=wanted.pool,
        farthest=cluster_pb2.Reach.Value(f"REACH_{wanted.reach.upper()}"),
        max_slowdown_ppm=wanted.max_slowdown_ppm,
        mig=wanted.mig,
        one_node=not wanted.across,
        max_per_node=wanted.max_per[0],
        max_per_rack=wanted.max_per[1],
        max_per_zone=wanted.max_per[2],
        place=_here(environment),
        wait=wait > 0,
        gang=wanted.gang,
        gang_size=wanted.gang_size,
        least_ppm=wanted.least_ppm,
        least_bytes=wanted.least_bytes,
    )
    message.neighbours.affinity = wanted.affinity
    message.neighbours.anti_affinity = wanted.anti_affinity
    message.neighbours.exclusion = wanted.exclusion
    _describe(workload_of(environment), message.profile)
    return message


def _quota(sizes: Sizes) -> lease_pb2.Quota:
    from rgpu_common.v1 import lease_pb2

    policy = "UNSPECIFIED" if sizes.policy is None else sizes.policy.name
    return lease_pb2.Quota(
        memory_bytes=sizes.memory.bytes,
        memory_ppm=sizes.memory.ppm,
        share_request_ppm=sizes.share_ppm,
        share_limit_ppm=sizes.limit_ppm,
        policy=lease_pb2.SharePolicy.Value(f"SHARE_POLICY_{policy}"),
        priority=sizes.priority,
        weight=sizes.weight,
    )


def _describe(workload: Workload, profile: cluster_pb2.ProgramProfile) -> None:
    profile.calls, profile.syncs = int(workload.calls), int(workload.syncs)
    profile.up_bytes, profile.down_bytes = int(workload.up_bytes), int(workload.down_bytes)


def _check_alone(environment: Mapping[str, str]) -> None:
    if environment.get("RGPU_DEVICE"):
        raise UsageError(
            "--device or RGPU_DEVICE names something of one server, and a manager chooses the "
            "server: leave --device out, or name the server with --server"
        )


def _here(environment: Mapping[str, str]) -> cluster_pb2.ProgramPlace:
    from rgpu_common.v1 import cluster_pb2

    return cluster_pb2.ProgramPlace(
        node=variable(environment, "RGPU_NODE", check_node_name) or "",
        host=machine_name(read_boot_id()),
        rack=variable(environment, "RGPU_RACK", check_node_name) or "",
    )
