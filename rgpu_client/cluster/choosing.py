"""Chooses one of several servers that the user named, by the functions that a manager uses."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct

from netprobe.candidates import is_explicit
from netprobe.survey import chosen, find, paths_of, quick
from rgpu_client.control import ControlClient
from rgpu_client.session.audit import say
from rgpu_client.session.paths import workload_of
from rgpu_client.sizes import sizes_of
from rgpu_cluster.core.card import Card, CardId, Holding
from rgpu_cluster.core.decision import Decision, Refusal, why
from rgpu_cluster.core.errors import PlacementError
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.paths import End, Figures, Paths
from rgpu_cluster.core.place import place
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client, Mode, Profile, Request
from rgpu_common.endpoints import UcxEndpoint, parse_endpoint
from rgpu_common.errors import NoSessionError, RgpuError, UsageError
from rgpu_common.mig import bare_name
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from netprobe.prober import Measurement
    from rgpu_client.cluster.options import Wanted
    from rgpu_common.v1 import device_pb2

MOST_SERVERS = 32
_ANSWER_SECONDS = 3.0
_NS = 1_000_000_000
# What a lease gets of a card's memory if nobody says, as on a server with its defaults.
_DEFAULT_MEMORY_PPM = PPM // 4
_REQUEST = "run"


class Seen(Struct, frozen=True):
    """What one server has said. same_host: it is on this machine. path: None: not measured."""

    name: str
    devices: tuple[device_pb2.Device, ...] = ()
    draining: bool = False
    same_host: bool = False
    path: Measurement | None = None
    error: str = ""


def servers_of(text: str) -> list[str]:
    """Returns the addresses in "a:7700,b:7700"; one address is a list of one. UsageError."""
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not 0 < len(found) <= MOST_SERVERS:
        raise UsageError(f"name 1 to {MOST_SERVERS} servers, with commas between them: {text!r}")
    for one in found:
        if isinstance(parse_endpoint(one), UcxEndpoint):
            raise UsageError(f"{one} carries sessions only: name another address of that server")
    return found


def choose_server(
    servers: Sequence[str],
    wanted: Wanted,
    environment: Mapping[str, str],
    *,
    wait: bool,
    loud: bool,
) -> tuple[str, str]:
    """Returns the server and its devices ("0,1") on which the run is placed. Devices of several
    servers name them ("0@a:7700,0@b:7700"), and the server is "".

    wait: if no server has room, the one that would fit an empty pool best is taken, and the run
    waits there.

    Raises:
        UsageError: the options need a manager.
        NoSessionError: no server takes the run; the sentence says why.
    """
    _check_alone(wanted)
    with ThreadPoolExecutor(len(servers)) as pool:
        seen = list(pool.map(lambda name: _look(name, environment), servers))
    found = _place(seen, wanted, environment, empty=False)
    if not isinstance(found, Decision) and wait and found.possible:
        found = _place(seen, wanted, environment, empty=True)
    if not isinstance(found, Decision):
        raise NoSessionError(_refusal(seen, found.remedy, possible=found.possible))
    cards = found.chosen.cards
    names = list(dict.fromkeys(card.node for card in cards))
    if loud:
        say(f"{' and '.join(names)} of {len(servers)} servers: {why(found.chosen)}")
    if len(names) > 1:
        return "", ",".join(f"{card.ordinal}@{card.node}" for card in cards)
    return names[0], ",".join(str(card.ordinal) for card in cards)


def _check_alone(wanted: Wanted) -> None:
    """UsageError for what only a manager can do."""
    if wanted.gang:
        raise UsageError("only a manager starts several runs together: name it for --gang")
    if wanted.least_ppm is not None or wanted.least_bytes is not None:
        raise UsageError(
            "only a manager has leases give way to others: name it for --min-share and --min-memory"
        )
    if wanted.labelled or wanted.reach == "near" or any(wanted.max_per[1:]):
        raise UsageError(
            "servers do not know the labels of each other's leases, nor their racks: use a "
            "manager (RGPU_MANAGER) for --affinity, --anti-affinity, --exclusive-label, --near, "
            "--max-per-rack and --max-per-zone"
        )


def _refusal(seen: Sequence[Seen], remedy: str, *, possible: bool) -> str:
    silent = [one for one in seen if one.error]
    if len(silent) == len(seen):
        return f"none of the {len(seen)} servers answers: {silent[0].error}"
    also = f" ({len(silent)} of {len(seen)} servers do not answer)" if silent else ""
    return remedy + also + ("; wait for room with --wait" if possible else "")


def _look(name: str, environment: Mapping[str, str]) -> Seen:
    """Asks a server what it has, and measures the paths to it."""
    try:
        where, explicit = parse_endpoint(name), is_explicit(name)
        with ControlClient(where, _ANSWER_SECONDS, explicit=explicit) as client:
            answer = client.devices()
    except RgpuError as error:
        return Seen(name, error=str(error))
    devices = tuple(answer.devices)
    try:
        found = find(name, timeout=1.0)
        paths = quick(paths_of(found, environment).uris, found.offer.server)
        choice = chosen(paths, found.same_host, workload_of(environment))
    except RgpuError:
        return Seen(name, devices, answer.draining)
    best = next((path for path in paths if choice and path.uri == choice.uri), None)
    return Seen(name, devices, answer.draining, found.same_host, best)


def _place(
    seen: Sequence[Seen], wanted: Wanted, environment: Mapping[str, str], *, empty: bool
) -> Decision | Refusal:
    """empty: as if the servers had no leases."""
    pool, measured = Pool(), {}
    for one in seen:
        if one.error:
            continue
        pool.report(_node(one), {} if empty else _held(one))
        if one.path is not None and one.path.round_trip is not None:
            measured[End("", ""), End(one.name, "")] = _figures(one.path)
    home = next((one.name for one in seen if one.same_host), "")
    try:
        request = _request(wanted, environment, home)
    except PlacementError as error:
        raise UsageError(str(error)) from None
    return place(pool, request, Paths(measured))


def _node(one: Seen) -> Node:
    cards = tuple(
        Card(CardId(one.name, d.ordinal), bare_name(d.name), d.memory_bytes, d.pool, mig=d.mig)
        for d in one.devices
        if d.memory_bytes
    )
    taints = frozenset({"drain"} if one.draining else ())
    # Each server is a class of paths of its own.
    return Node(one.name, 1, cards, one.name, rack=one.name, taints=taints)


def _held(one: Seen) -> dict[CardId, list[Holding]]:
    return {
        CardId(one.name, device.ordinal): [
            Holding(
                f"{one.name}/leases",
                "",
                min(device.leased_share_ppm, PPM),
                device.leased_memory_bytes,
            )
        ]
        for device in one.devices
        if device.leases
    }


def _figures(path: Measurement) -> Figures:
    assert path.round_trip is not None
    return Figures(
        round(path.round_trip.median * _NS),
        round(path.round_trip.jitter * _NS),
        round(path.up.bytes_per_second) if path.up is not None else 0,
        round(path.down.bytes_per_second) if path.down is not None else 0,
        round(path.messages_per_second or 0),
        path.uri.partition(":")[0],
    )


def _request(wanted: Wanted, environment: Mapping[str, str], home: str) -> Request:
    sizes, workload = sizes_of(environment), workload_of(environment)
    memory_ppm = 0 if sizes.memory.bytes else sizes.memory.ppm or _DEFAULT_MEMORY_PPM
    return Request(
        id=_REQUEST,
        tenant=sizes.tenant or "default",
        share_ppm=PPM if wanted.whole else sizes.share_ppm,
        memory_bytes=0 if wanted.whole else sizes.memory.bytes,
        memory_ppm=PPM if wanted.whole else memory_ppm,
        cards=wanted.cards,
        limit_ppm=None if wanted.whole else sizes.limit_ppm or None,
        policy=sizes.policy or SharePolicy.NONE,
        whole=wanted.whole,
        model=wanted.model,
        pool=wanted.pool,
        client=Client(home),
        farthest=Mode[wanted.reach.upper()],
        max_slowdown_ppm=wanted.max_slowdown_ppm,
        profile=Profile(
            int(workload.calls), int(workload.syncs), int(workload.up_bytes),
            int(workload.down_bytes),
        ),
        mig=wanted.mig,
        one_node=not wanted.across,
        max_per_node=wanted.max_per[0],
    )  # fmt: skip
