"""`rgpu reserve` and `rgpu release`: room for programs that run later."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from typing import TYPE_CHECKING, TypedDict

from rgpu_client.cli import add_size_options, add_wait_option, settings_of
from rgpu_client.cluster.options import add_options, wanted
from rgpu_client.cluster.placing import manager_of, parts_of, request_of, submitted
from rgpu_common.command import OK, Command
from rgpu_common.errors import UsageError
from rgpu_common.texts import one_line
from rgpu_common.units import counted, format_duration, parse_duration

if TYPE_CHECKING:
    import argparse

    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1 import cluster_pb2


class ReservedPart(TypedDict):
    """Cards of one server. devices: their numbers there."""

    node: str
    address: str
    devices: list[int]


class Reserved(ReservedPart):
    """What `rgpu reserve --json` prints. others: the cards of further servers. seconds: how long
    the reservation lasts.
    """

    id: str
    others: list[ReservedPart]
    seconds: float
    tenant: str


_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,29}[A-Za-z0-9])?")
_EXAMPLE = (
    "Example: ID=$(rgpu reserve --share 50% --memory 8GiB --for 2h); "
    "rgpu run --reservation $ID -- python train.py"
)


def _manager(arguments: argparse.Namespace) -> Endpoint:
    manager = manager_of(arguments.manager, os.environ)
    if manager is None:
        raise UsageError("name the manager: --manager HOST:PORT, or RGPU_MANAGER")
    return manager


# rgpu reserve


def _configure_reserve(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLE
    parser.add_argument(
        "--for",
        dest="duration",
        metavar="TIME",
        required=True,
        help="how long: 90s, 30min, 2h or 1d; the reservation ends then by itself",
    )
    parser.add_argument(
        "--name", default="res", metavar="NAME", help="the beginning of its id (default: res)"
    )
    parser.add_argument("--json", action="store_true", help="print id, node and devices as JSON")
    add_size_options(parser)
    add_wait_option(parser)
    add_options(parser)


def _reserve(arguments: argparse.Namespace) -> int:
    from rgpu_client.cluster.asking import ManagerClient

    seconds = parse_duration(arguments.duration)
    where = wanted(arguments)
    settings = settings_of(arguments).variables()
    manager = _manager(arguments)
    kept = {k: v for k, v in os.environ.items() if k not in ("RGPU_LEASE", "RGPU_DEVICE")}
    request = request_of(where, {**kept, **settings}, arguments.wait)
    request.request_id, request.name = _new_id(arguments.name), arguments.name
    request.reserve_seconds = seconds
    with ManagerClient(manager) as client:
        placed = submitted(client, request, arguments.wait)
    if arguments.json:
        print(json.dumps(_as_json(request, placed), indent=2))
        return OK
    parts = parts_of(placed)
    cards = " and ".join(f"{counted(len(one.ordinals), 'card')} of {one.node}" for one in parts)
    said = f"rgpu: reserved {cards} for {format_duration(seconds)}: {placed.reason}"
    print(one_line(said), file=sys.stderr)
    print(request.request_id)
    return OK


def _as_json(request: cluster_pb2.SubmitRequest, placed: cluster_pb2.PlacedAt) -> Reserved:
    return {
        "id": request.request_id,
        "node": placed.node,
        "address": placed.address,
        "devices": list(placed.ordinals),
        "others": [
            {"node": one.node, "address": one.address, "devices": list(one.ordinals)}
            for one in placed.others
        ],
        "seconds": request.reserve_seconds,
        "tenant": placed.tenant,
    }


def _new_id(name: str) -> str:
    """Returns an id that nobody can guess. It begins with the name, which need not be unique."""
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"--name is 1 to 31 letters, digits, dots and dashes, with a letter or a digit at both "
            f"ends: {name!r}"
        )
    return f"{name}-{secrets.token_hex(8)}"


# rgpu release


def _configure_release(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manager", metavar="HOST:PORT", help="the manager (default: RGPU_MANAGER)"
    )
    parser.add_argument("--tenant", metavar="NAME", help="the tenant whose reservation it is")
    parser.add_argument("reservation", metavar="ID", help="the reservation: its id, or its name")


def _release(arguments: argparse.Namespace) -> int:
    from rgpu_client.cluster.asking import ManagerClient

    tenant = arguments.tenant or os.environ.get("RGPU_TENANT", "")
    with ManagerClient(_manager(arguments)) as client:
        released = client.release(arguments.reservation, tenant)
    print(one_line(f"reservation {released} was released"))
    return OK


reserve = Command(
    "reserve", "reserve room on a cluster for later runs", _configure_reserve, _reserve
)
release = Command("release", "end a reservation", _configure_release, _release)
