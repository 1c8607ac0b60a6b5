"""`rgpu lease`, `drain`, `undrain` and `tenants`: commands of an operator for a running server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rgpu_client.cluster.naming import find_lease
from rgpu_client.cluster.servers import add_servers, only_server, servers_of
from rgpu_client.sizes import parse_guarantee
from rgpu_common.clusters import check_run_name
from rgpu_common.command import OK, Command
from rgpu_common.errors import UsageError
from rgpu_common.sharing import POLICIES, parse_policy
from rgpu_common.tables import fitting, plain_groups, terminal_width
from rgpu_common.texts import one_line
from rgpu_common.units import (
    counted,
    format_bytes,
    format_seconds,
    format_share,
    parse_memory,
    parse_share,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from rgpu_client.cluster.naming import Named
    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_client.control import ControlClient, LeaseRequest, ResizeRequest
    from rgpu_common.v1 import lease_pb2, node_pb2


def _seconds_of(option: str) -> Callable[[str], float]:
    """Returns a function that reads the option's value; UsageError."""

    def read(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise UsageError(f"{option} takes a number of seconds, not {text!r}") from None

    return read


# rgpu lease


def _configure_lease(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list all leases, their sizes and which ones borrow")
    listing.add_argument("--tenant", default="", metavar="NAME", help="only this tenant's")
    listing.add_argument("--json", action="store_true", help="print JSON instead of a table")
    grant = verbs.add_parser("grant", help="grant a lease before its program starts")
    grant.add_argument("key", metavar="KEY", help="the name that programs give with --lease")
    grant.add_argument(
        "--tenant", default="", metavar="NAME", help="the tenant whose quota is charged"
    )
    grant.add_argument("--name", default="", metavar="NAME", help="what lists call it")
    grant.add_argument("--device", type=int, metavar="N", help="device of the server")
    grant.add_argument(
        "--ttl",
        type=_seconds_of("--ttl"),
        metavar="SECONDS",
        help="lifetime without a program (default: 30)",
    )
    resize = verbs.add_parser("resize", help="change the sizes of a running lease")
    for sized in (grant, resize):
        _add_sizes(sized)
    resize.add_argument(
        "--kill",
        action="store_true",
        help="end sessions, the largest first, until the rest fits into the new memory limit",
    )
    others = [
        verbs.add_parser("pause", help="stop a lease's device work; the lease keeps its memory"),
        verbs.add_parser("resume", help="allow a paused lease's device work again"),
        verbs.add_parser("revoke", help="end a lease and its sessions"),
    ]
    for one in (resize, *others):
        one.add_argument("lease", metavar="LEASE", help="its id, or its key if that is unique")
    for verb in (listing, grant, resize, *others):
        add_servers(verb)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="SIZE", help="2GiB, 25%%, or 8vmem (of 256 MiB)")
    parser.add_argument("--share", metavar="PART", help="guaranteed: 0.4, 40%% or 40vcore")
    parser.add_argument("--limit", metavar="PART", help="cap: 0.7")
    parser.add_argument("--policy", choices=POLICIES, help="how the limit follows from the share")
    parser.add_argument("--priority", type=int, metavar="N", help="0 to 100")
    parser.add_argument("--weight", type=int, metavar="N", help="1 to 1000")


def _lease(arguments: argparse.Namespace) -> int:
    servers = servers_of(arguments)
    if arguments.verb == "list":
        return _list(servers, arguments)
    if arguments.verb == "grant":
        request = _grant_request(arguments)
        with only_server(servers, "grant the lease on").asking() as client:
            lease = client.grant(request)
        print(f"{one_line(lease.lease_id)}: {_words(lease)}")
        return OK
    _check_verb(arguments)
    found = find_lease(servers, arguments.lease)
    with found.server.asking() as client:
        print(one_line(_VERBS[arguments.verb](client, found, arguments)))
    return OK


# Columns that a narrow terminal does not show, the first of them first.
_DROPPED = ("key", "weight", "priority", "policy", "tenant", "device", "sessions", "limit")


def _list(servers: Servers, arguments: argparse.Namespace) -> int:
    answers = servers.ask(lambda client: client.leases(arguments.tenant))
    if arguments.json:
        print(json.dumps(answers.plain(lambda found: plain_groups({"leases": found})), indent=2))
        return answers.complain()
    rows = [servers.cells(server, _lease_row(one)) for server, found in answers for one in found]
    titles = ("lease", "name", "tenant", "key", "device>", "memory>", "used>", "share>", "limit>")
    more = ("policy", "priority>", "weight>", "sessions>", "state")
    print(fitting(servers.titles((*titles, *more)), rows, _DROPPED, terminal_width()))
    return answers.complain()


def _lease_row(lease: lease_pb2.Lease) -> tuple[str, ...]:
    return (
        lease.lease_id,
        lease.name,
        lease.tenant,
        lease.key,
        str(lease.device),
        format_bytes(lease.quota.memory_bytes),
        format_bytes(lease.used_memory_bytes),
        format_share(lease.quota.share_request_ppm),
        format_share(lease.quota.share_limit_ppm),
        _policy_word(lease),
        str(lease.quota.priority),
        str(lease.quota.weight),
        str(len(lease.session_ids)),
        _state(lease),
    )


def _state(lease: lease_pb2.Lease) -> str:
    from rgpu_common.v1 import lease_pb2

    words = [_word(lease_pb2.LeaseState, lease.state)]
    for name, borrowed in (("share", lease.borrowed_share), ("memory", lease.borrowed_memory)):
        if borrowed:
            words.append(f"{name} borrowed")
    asked = lease.asked_share_request_ppm
    if lease.quota.share_request_ppm < asked:
        words.append(f"share of {format_share(asked)} given back to its owner")
    if lease.HasField("reclaim_seconds"):
        words.append(f"ends in {format_seconds(lease.reclaim_seconds)}")
    return ", ".join(words)


def _policy_word(lease: lease_pb2.Lease) -> str:
    from rgpu_common.v1 import lease_pb2

    return _word(lease_pb2.SharePolicy, lease.quota.policy)


def _word(kind: Any, number: int) -> str:
    """Returns an enumeration's value as a word: "best-effort"."""
    value = kind.DESCRIPTOR.values_by_number.get(number)
    if value is None:  # a later release added it
        return "-"
    # Each name begins with that of its enumeration and one more line.
    prefix = kind.DESCRIPTOR.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return str(value.name.removeprefix(prefix).lower().replace("_", "-"))


def _words(lease: lease_pb2.Lease) -> str:
    return (
        f"{format_bytes(lease.quota.memory_bytes)} of device {lease.device}, share "
        f"{format_share(lease.quota.share_request_ppm)}, limit "
        f"{format_share(lease.quota.share_limit_ppm)}"
    )


def _grant_request(arguments: argparse.Namespace) -> LeaseRequest:
    from rgpu_client.control import LeaseRequest

    change = _change(arguments, kill=False)
    if arguments.share is not None:
        parse_guarantee(arguments.share)
    if arguments.ttl == 0:
        raise UsageError("ttl 0 makes no sense: leave it out for the server's default")
    return LeaseRequest(
        tenant=arguments.tenant,
        key=arguments.key,
        device=arguments.device,
        memory_bytes=change.memory_bytes or 0,
        share_request_ppm=change.share_request_ppm or 0,
        share_limit_ppm=change.share_limit_ppm or 0,
        ttl_seconds=arguments.ttl or 0.0,
        memory_ppm=change.memory_ppm or 0,
        policy=change.policy,
        priority=change.priority,
        weight=change.weight,
        name=check_run_name(arguments.name) if arguments.name else "",
    )


def _change(arguments: argparse.Namespace, kill: bool) -> ResizeRequest:
    from rgpu_client.control import ResizeRequest

    memory = None if arguments.memory is None else parse_memory(arguments.memory)
    limit = None if arguments.limit is None else parse_share(arguments.limit)
    if limit == 0:
        raise UsageError("limit 0 makes no sense: to stop a lease's work use `rgpu lease pause`")
    return ResizeRequest(
        memory_bytes=memory.bytes if memory is not None and not memory.ppm else None,
        memory_ppm=memory.ppm if memory is not None and memory.ppm else None,
        share_request_ppm=None if arguments.share is None else parse_share(arguments.share),
        share_limit_ppm=limit,
        policy=None if arguments.policy is None else parse_policy(arguments.policy),
        priority=arguments.priority,
        weight=arguments.weight,
        kill=kill,
    )


def _check_verb(arguments: argparse.Namespace) -> None:
    """UsageError for sizes that say nothing, or that no lease has."""
    from rgpu_client.control import ResizeRequest

    if arguments.verb != "resize":
        return
    if _change(arguments, arguments.kill) == ResizeRequest(kill=arguments.kill):
        raise UsageError(
            "say what to change: --memory, --share, --limit, --policy, --priority or --weight"
        )


def _resize(client: ControlClient, found: Named, arguments: argparse.Namespace) -> str:
    answer = client.resize(found.lease.lease_id, _change(arguments, arguments.kill))
    lease = answer.lease
    text = f"{found}: {_words(lease)}"
    if answer.ended_sessions:
        return text + f"; {counted(answer.ended_sessions, 'session')} ended"
    if lease.used_memory_bytes > lease.quota.memory_bytes:
        text += (
            f"; its programs hold {format_bytes(lease.used_memory_bytes)} and get no more memory "
            "until they are under the limit (--kill ends the largest)"
        )
    return text


def _pause(client: ControlClient, found: Named, arguments: argparse.Namespace) -> str:
    was = "was paused already" if client.pause(found.lease.lease_id).unchanged else "is paused"
    return f"{found} {was}: `rgpu lease resume {found}` resumes its work"


def _resume(client: ControlClient, found: Named, arguments: argparse.Namespace) -> str:
    unchanged = client.resume(found.lease.lease_id).unchanged
    return f"{found} was not paused" if unchanged else f"{found} goes on"


def _revoke(client: ControlClient, found: Named, arguments: argparse.Namespace) -> str:
    ended = client.revoke(found.lease.lease_id)
    return f"{found} was revoked, and {counted(ended, 'session')} with it"


_VERBS = {"resize": _resize, "pause": _pause, "resume": _resume, "revoke": _revoke}


# rgpu drain, rgpu undrain


def _configure_drain(parser: argparse.ArgumentParser) -> None:
    add_servers(parser, by_name=True)
    parser.add_argument(
        "--end-after",
        type=_seconds_of("--end-after"),
        metavar="SECONDS",
        help="end leases that still run then (default: they go on)",
    )


def _configure_undrain(parser: argparse.ArgumentParser) -> None:
    add_servers(parser, by_name=True)


def _drain(arguments: argparse.Namespace) -> int:
    server = only_server(servers_of(arguments), "drain")
    with server.asking() as client:
        print(_node_words(server, client.drain(arguments.end_after)))
    return OK


def _undrain(arguments: argparse.Namespace) -> int:
    server = only_server(servers_of(arguments), "undrain")
    with server.asking() as client:
        print(_node_words(server, client.undrain()))
    return OK


def _node_words(
    server: Server, answer: node_pb2.DrainNodeResponse | node_pb2.UndrainNodeResponse
) -> str:
    name = f"node {server.node}" if server.node else "the server"
    node = answer.node
    there = f"{counted(node.leases, 'lease')} and {counted(node.sessions, 'session')}"
    if answer.unchanged:
        name += " was drained already: it" if node.draining else " was not drained: it"
    if not node.draining:
        return f"{name} takes new leases and sessions; it has {there}"
    if node.HasField("end_after_seconds"):
        left = format_seconds(node.end_after_seconds)
        return f"{name} takes nothing new; {there} end in {left} at the latest"
    return f"{name} takes nothing new; {there} go on until they end by themselves"


# rgpu tenants

# Each has a column for shares and one for memory. Those that no row has are left out.
_AMOUNTS = ("owns", "ceiling", "holds", "borrows", "idle")
_OF_SOME = ("ceiling", "idle")
_TENANT_DROPPED = (
    "idle share", "idle memory", "ceiling share", "ceiling memory", "model", "borrows share",
    "borrows memory",
)  # fmt: skip


def _configure_tenants(parser: argparse.ArgumentParser) -> None:
    add_servers(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _tenants(arguments: argparse.Namespace) -> int:
    servers = servers_of(arguments)
    answers = servers.ask(lambda client: client.tenants())
    if arguments.json:
        print(json.dumps(answers.plain(lambda found: plain_groups({"tenants": found})), indent=2))
        return answers.complain()
    quotas = [(server, one, _amounts(one)) for server, found in answers for one in found]
    some = {name for _, _, amounts in quotas for name in _OF_SOME if any(amounts[name])}
    shown = [name for name in _AMOUNTS if name in some or name not in _OF_SOME]
    titles = [f"{name} {what}>" for name in shown for what in ("share", "memory")]
    rows = [
        servers.cells(
            server,
            (
                *(one.tenant, one.model),
                *(cell or "none" for name in shown for cell in amounts[name]),
                str(one.leases),
            ),
        )
        for server, one, amounts in quotas
    ]
    titles = ["tenant", "model", *titles, "leases>"]
    print(fitting(servers.titles(titles), rows, _TENANT_DROPPED, terminal_width()))
    return answers.complain()


def _amounts(quota: node_pb2.TenantQuota) -> dict[str, tuple[str, str]]:
    """Returns the share and the memory of each of `_AMOUNTS`; "": it has none."""
    owns = quota.HasField("owned")
    return {
        "owns": _amount(quota.owned) if owns else ("", ""),
        "ceiling": (
            format_share(quota.ceiling_share_ppm) if quota.HasField("ceiling_share_ppm") else "",
            format_bytes(quota.ceiling_memory_bytes)
            if quota.HasField("ceiling_memory_bytes")
            else "",
        ),
        "holds": _amount(quota.held),
        "borrows": _amount(quota.borrowed),
        "idle": _amount(quota.idle) if owns else ("", ""),
    }


def _amount(amount: node_pb2.Amount) -> tuple[str, str]:
    return format_share(amount.share_ppm), format_bytes(amount.memory_bytes)


lease = Command("lease", "list, grant, resize, pause, resume or revoke", _configure_lease, _lease)
drain = Command("drain", "stop new leases and sessions on a server", _configure_drain, _drain)
undrain = Command("undrain", "allow new leases and sessions again", _configure_undrain, _undrain)
tenants = Command(
    "tenants", "list what tenants own, hold, borrow and lend", _configure_tenants, _tenants
)
