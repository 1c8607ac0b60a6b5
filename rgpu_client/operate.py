"""`rgpu lease`, `drain`, `undrain` and `tenants`: commands of an operator for a running server."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rgpu_client.settings import API_SERVER_HELP, configured_server
from rgpu_client.sizes import parse_guarantee
from rgpu_common.command import OK, Command
from rgpu_common.errors import ServerError, UsageError
from rgpu_common.sharing import POLICIES, parse_policy
from rgpu_common.tables import as_json, fitting, table, terminal_width
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

    from rgpu_client.control import ControlClient, LeaseRequest, ResizeRequest
    from rgpu_common.v1 import lease_pb2, node_pb2


def _server_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)


def _client(arguments: argparse.Namespace) -> ControlClient:
    from rgpu_client.control import ControlClient

    return ControlClient(configured_server(arguments.server, os.environ))


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
        _server_option(verb)


def _add_sizes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--memory", metavar="SIZE", help="2GiB, 25%%, or 8vmem (of 256 MiB)")
    parser.add_argument("--share", metavar="PART", help="guaranteed: 0.4, 40%% or 40vcore")
    parser.add_argument("--limit", metavar="PART", help="cap: 0.7")
    parser.add_argument("--policy", choices=POLICIES, help="how the limit follows from the share")
    parser.add_argument("--priority", type=int, metavar="N", help="0 to 100")
    parser.add_argument("--weight", type=int, metavar="N", help="1 to 1000")


def _lease(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        if arguments.verb == "list":
            return _list(client, arguments)
        if arguments.verb == "grant":
            lease = client.grant(_grant_request(arguments))
            print(f"{one_line(lease.lease_id)}: {_words(lease)}")
            return OK
        found = _find(client, arguments.lease)
        try:
            print(one_line(_VERBS[arguments.verb](client, found or arguments.lease, arguments)))
        except ServerError as error:
            if found:
                raise
            raise ServerError(_unknown(arguments.lease)) from error
    return OK


def _unknown(lease: str) -> str:
    return f"there is no lease {lease!r}; `rgpu lease list` shows which there are"


# Columns that a narrow terminal does not show, the first of them first.
_DROPPED = ("weight", "priority", "policy", "tenant", "device", "sessions", "limit")


def _list(client: ControlClient, arguments: argparse.Namespace) -> int:
    leases = client.leases(arguments.tenant)
    if arguments.json:
        print(as_json({"leases": leases}))
        return OK
    rows = [
        (
            lease.lease_id,
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
        for lease in leases
    ]
    titles = ("lease", "tenant", "key", "device>", "memory>", "used>", "share>", "limit>")
    more = ("policy", "priority>", "weight>", "sessions>", "state")
    print(fitting((*titles, *more), rows, _DROPPED, terminal_width()))
    return OK


def _state(lease: lease_pb2.Lease) -> str:
    from rgpu_common.v1 import lease_pb2

    words = [lease_pb2.LeaseState.Name(lease.state).removeprefix("LEASE_STATE_").lower()]
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

    name = lease_pb2.SharePolicy.Name(lease.quota.policy)
    return name.removeprefix("SHARE_POLICY_").lower().replace("_", "-")


def _words(lease: lease_pb2.Lease) -> str:
    return (
        f"{format_bytes(lease.quota.memory_bytes)} of device {lease.device}, share "
        f"{format_share(lease.quota.share_request_ppm)}, limit "
        f"{format_share(lease.quota.share_limit_ppm)}"
    )


def _find(client: ControlClient, text: str) -> str:
    """Returns the id of the lease that has this id, or of the only lease that has this key.

    Returns "" if there is none.
    """
    leases = client.leases()
    found = [lease.lease_id for lease in leases if lease.lease_id == text]
    found = found or [lease.lease_id for lease in leases if lease.key == text]
    if len(found) > 1:
        raise UsageError(f"{text!r} is the key of {', '.join(found)}: name one of them")
    return found[0] if found else ""


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


def _resize(client: ControlClient, lease_id: str, arguments: argparse.Namespace) -> str:
    from rgpu_client.control import ResizeRequest

    change = _change(arguments, arguments.kill)
    if change == ResizeRequest(kill=arguments.kill):
        raise UsageError(
            "say what to change: --memory, --share, --limit, --policy, --priority or --weight"
        )
    answer = client.resize(lease_id, change)
    lease = answer.lease
    text = f"{lease_id}: {_words(lease)}"
    if answer.ended_sessions:
        return text + f"; {counted(answer.ended_sessions, 'session')} ended"
    if lease.used_memory_bytes > lease.quota.memory_bytes:
        text += (
            f"; its programs hold {format_bytes(lease.used_memory_bytes)} and get no more memory "
            "until they are under the limit (--kill ends the largest)"
        )
    return text


def _pause(client: ControlClient, lease_id: str, arguments: argparse.Namespace) -> str:
    client.pause(lease_id)
    return f"{lease_id} is paused: `rgpu lease resume {lease_id}` resumes its work"


def _resume(client: ControlClient, lease_id: str, arguments: argparse.Namespace) -> str:
    client.resume(lease_id)
    return f"{lease_id} goes on"


def _revoke(client: ControlClient, lease_id: str, arguments: argparse.Namespace) -> str:
    return f"{lease_id} was revoked, and {counted(client.revoke(lease_id), 'session')} with it"


_VERBS = {"resize": _resize, "pause": _pause, "resume": _resume, "revoke": _revoke}


# rgpu drain, rgpu undrain


def _configure_drain(parser: argparse.ArgumentParser) -> None:
    _server_option(parser)
    parser.add_argument(
        "--end-after",
        type=_seconds_of("--end-after"),
        metavar="SECONDS",
        help="end leases that still run then (default: they go on)",
    )


def _drain(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        print(_node_words(client.drain(arguments.end_after)))
    return OK


def _undrain(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        print(_node_words(client.undrain()))
    return OK


def _node_words(node: node_pb2.Node) -> str:
    there = f"{counted(node.leases, 'lease')} and {counted(node.sessions, 'session')}"
    if not node.draining:
        return f"the server takes new leases and sessions; it has {there}"
    if node.HasField("end_after_seconds"):
        left = format_seconds(node.end_after_seconds)
        return f"the server takes nothing new; {there} end in {left} at the latest"
    return f"the server takes nothing new; {there} go on until they end by themselves"


# rgpu tenants


def _configure_tenants(parser: argparse.ArgumentParser) -> None:
    _server_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _tenants(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        quotas = client.tenants()
    if arguments.json:
        print(as_json({"tenants": quotas}))
        return OK
    rows = [
        (
            quota.tenant,
            quota.model,
            _amount(quota.owned) if quota.HasField("owned") else "no ceiling",
            _amount(quota.held),
            _amount(quota.borrowed),
            _amount(quota.idle) if quota.HasField("owned") else "",
            str(quota.leases),
        )
        for quota in quotas
    ]
    print(table(("tenant", "model", "owns>", "holds>", "borrows>", "idle>", "leases>"), rows))
    return OK


def _amount(amount: node_pb2.Amount) -> str:
    return f"{format_share(amount.share_ppm)} {format_bytes(amount.memory_bytes)}"


lease = Command("lease", "list, grant, resize, pause, resume or revoke", _configure_lease, _lease)
drain = Command("drain", "stop new leases and sessions on a server", _configure_drain, _drain)
undrain = Command("undrain", "allow new leases and sessions again", _server_option, _undrain)
tenants = Command(
    "tenants", "list what tenants own, hold, borrow and lend", _configure_tenants, _tenants
)
