"""`rgpu smi`: shows the devices of a lease and its processes, in the shape that people know.

Outside a lease it shows the whole devices of a server or a cluster.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from rgpu_client.cluster.servers import add_servers, only_server, servers_of
from rgpu_client.observe.nvml import LIBRARY, Card, Node, Process, look
from rgpu_client.observe.smi_table import smi_lines
from rgpu_client.session.launch import carried
from rgpu_client.settings import ClientSettings, configured_server
from rgpu_common.clusters import CONTAINER_KEY
from rgpu_common.command import OK, Command
from rgpu_common.endpoints import UcxEndpoint
from rgpu_common.errors import RgpuError
from rgpu_common.parts import compiled_part
from rgpu_common.units import PPM

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rgpu_client.cluster.servers import Servers
    from rgpu_client.control import ControlClient
    from rgpu_common.v1 import device_pb2, observe_pb2, session_pb2


def _configure(parser: argparse.ArgumentParser) -> None:
    add_servers(parser)
    parser.add_argument("--device", metavar="N", help="device, or several: 0,1 (default: any one)")
    parser.add_argument(
        "--lease", metavar="NAME", help="lease to show (default: RGPU_LEASE, then the container's)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _smi(arguments: argparse.Namespace) -> int:
    if arguments.lease or arguments.device or os.environ.get("RGPU_LEASE"):
        return _show_lease(arguments)
    servers = servers_of(arguments)
    if not servers.whole and isinstance(servers.asked[0].endpoint, UcxEndpoint):
        return _show_lease(arguments)
    answers = servers.ask(_cards)
    if not servers.whole:
        ((_, found),) = answers
        if found.leased:
            return _show_lease(arguments)
        _print(arguments, _detailed(found.node, servers), whole=True)
        return OK
    if arguments.json:
        print(json.dumps(answers.plain(lambda found: to_builtins(found.node)), indent=2))
        return answers.complain()
    tables = [_table(found.node, server.node, whole=True) for server, found in answers]
    print("\n\n".join(tables))
    return answers.complain()


def _print(arguments: argparse.Namespace, node: Node, *, whole: bool = False) -> None:
    print(
        json.dumps(to_builtins(node), indent=2) if arguments.json else _table(node, "", whole=whole)
    )


def _table(node: Node, name: str, *, whole: bool) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    return "\n".join(smi_lines(node, f"{when}  {name}".rstrip(), whole=whole))


def _show_lease(arguments: argparse.Namespace) -> int:
    server = arguments.server
    if arguments.node or (arguments.manager and not server):
        server = only_server(servers_of(arguments), "show").address
    settings = ClientSettings(server, device=arguments.device, lease=arguments.lease)
    _print(arguments, _seen(settings))
    return OK


def _seen(settings: ClientSettings) -> Node:
    """Returns what the programs of a lease see, by the library that they ask."""
    folder = compiled_part("rgpu_client", f"lib/{LIBRARY}").parent
    environment = {**os.environ, **settings.variables()}
    environment.setdefault("RGPU_SERVER", str(configured_server(None, environment)))
    # The library reads the environment of this process.
    os.environ.update(carried(environment))
    return look(folder)


def _detailed(node: Node, servers: Servers) -> Node:
    """Returns whole devices, also with what only the library tells of them."""
    ordinals = ",".join(str(card.index) for card in node.devices)
    try:
        seen = _seen(ClientSettings(servers.asked[0].address, device=ordinals))
    except RgpuError:
        return node
    if len(seen.devices) != len(node.devices):
        return node
    cards = tuple(
        replace(
            known,
            index=card.index,
            memory_total_bytes=card.memory_total_bytes,
            memory_used_bytes=card.memory_used_bytes,
            utilization_percent=card.utilization_percent,
            processes=card.processes,
        )
        for known, card in zip(seen.devices, node.devices, strict=True)
    )
    return replace(seen, devices=cards)


class _Cards(NamedTuple):
    """The devices of a server. leased: one of its leases is that of this container."""

    node: Node
    leased: bool


def _cards(client: ControlClient) -> _Cards:
    """Returns the whole devices, with the processes that the caller may see."""
    key = f"{CONTAINER_KEY}{os.uname().nodename}"
    devices, now, sessions = client.devices().devices, client.now(), client.sessions()
    used = {one.ordinal: one for one in now.devices}
    cards = tuple(_card(one, used.get(one.ordinal), sessions) for one in devices)
    return _Cards(Node(None, None, None, cards), any(one.key == key for one in now.leases))


def _card(
    device: device_pb2.Device,
    now: observe_pb2.DeviceNow | None,
    sessions: Sequence[session_pb2.Session],
) -> Card:
    here = [one for one in sessions if one.device == device.ordinal]
    return Card(
        index=device.ordinal,
        name=device.name,
        uuid=device.uuid,
        pci_bus_id=None,
        compute_capability=None,
        memory_total_bytes=device.memory_bytes,
        memory_used_bytes=device.used_memory_bytes,
        utilization_percent=None if now is None else min(now.share_1s_ppm, PPM) * 100 // PPM,
        temperature_c=None,
        power_mw=None,
        power_limit_mw=None,
        fan_percent=None,
        performance_state=None,
        processes=tuple(
            Process(one.client_pid, one.program, one.usage.memory_used_bytes) for one in here
        ),
    )


smi = Command("smi", "show devices and their processes, as nvidia-smi does", _configure, _smi)
