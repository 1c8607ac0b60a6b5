"""`rgpu devices` and `rgpu ps`: lists a server's devices, leases and sessions."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from rgpu_client.cluster.servers import add_servers, servers_of
from rgpu_client.cluster.show import waiting_lines
from rgpu_common.command import Command
from rgpu_common.tables import fitting, plain_groups, plain_message, terminal_width
from rgpu_common.texts import one_line
from rgpu_common.units import (
    counted,
    format_bytes,
    format_duration,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_client.control import ControlClient
    from rgpu_common.v1.device_pb2 import Device, ListDevicesResponse
    from rgpu_common.v1.log_pb2 import LogEntry
    from rgpu_common.v1.session_pb2 import (
        LeaseUsage,
        ListSessionsResponse,
        Session,
        WaitingClaim,
    )

_DEVICE_TITLES = (
    "device>", "name", "pool", "memory>", "free>", "used>", "shares>", "leases>", "sessions>",
)  # fmt: skip
_LEASE_TITLES = (
    "lease", "name", "tenant", "key", "device>", "memory>", "used>", "peak>", "refused>", "share>",
    "limit>",
)  # fmt: skip
_WAITING_TITLES = (
    "in line", "name", "tenant", "key", "from", "device", "memory>", "share>", "waits>", "because",
)  # fmt: skip
_SESSION_TITLES = (
    "session>", "lease", "pid>", "from", "over", "used>", "peak>", "launches>", "copied>", "age>",
    "state", "seam", "program",
)  # fmt: skip
_ENDED_TITLES = ("ended lease", "name", "tenant", "ago>", "what it had")
_ENDED_DROPPED = ("tenant", "what it had")
# Columns that a narrow terminal does not show, the first of them first.
_DEVICE_DROPPED = ("pool", "used", "sessions", "name")
_LEASE_DROPPED = ("key", "refused", "peak", "tenant", "device", "limit")
_WAITING_DROPPED = ("key", "device", "tenant", "from", "share")
_SESSION_DROPPED = ("copied", "launches", "peak", "over", "from", "age", "seam", "pid", "state")


def _configure(parser: argparse.ArgumentParser) -> None:
    add_servers(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _devices(arguments: argparse.Namespace) -> int:
    servers = servers_of(arguments)
    answers = servers.ask(lambda client: client.devices())
    if arguments.json:
        print(json.dumps(answers.plain(), indent=2))
        return answers.complain()
    lines = [line for server, answer in answers for line in drained_words(answer, server)]
    rows = [
        servers.cells(server, _device_row(device))
        for server, answer in answers
        for device in answer.devices
    ]
    table_ = fitting(servers.titles(_DEVICE_TITLES), rows, _DEVICE_DROPPED, terminal_width())
    print("\n".join([*lines, table_]))
    return answers.complain()


def _device_row(device: Device) -> tuple[str, ...]:
    return (
        str(device.ordinal),
        device.name,
        device.pool,
        format_bytes(device.memory_bytes),
        format_bytes(device.memory_bytes - device.leased_memory_bytes),
        format_bytes(device.used_memory_bytes),
        format_share(device.leased_share_ppm),
        str(device.leases),
        str(device.sessions),
    )


class _Running(NamedTuple):
    """What runs on one server."""

    sessions: ListSessionsResponse
    usages: Sequence[LeaseUsage]
    server: ListDevicesResponse
    ended: Sequence[LogEntry] = ()

    def plain(self) -> dict[str, Any]:
        return plain_groups(
            {
                "sessions": self.sessions.sessions,
                "leases": self.usages,
                "waiting": self.sessions.waiting,
            },
            others_waiting=self.sessions.others_waiting,
        )


def _running(client: ControlClient) -> _Running:
    return _Running(client.running(), client.usage(), client.devices())


def _running_and_ended(client: ControlClient) -> _Running:
    return _running(client)._replace(ended=_ended(client))


def _configure_ps(parser: argparse.ArgumentParser) -> None:
    _configure(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also what has ended in the last hour, and runs in the background of this machine",
    )


def _ps(arguments: argparse.Namespace) -> int:
    from rgpu_client.background.list import background_lines, background_rows

    servers = servers_of(arguments)
    answers = servers.ask(_running_and_ended if arguments.all else _running)
    if arguments.json:
        plain = answers.plain(_Running.plain)
        if servers.whole and servers.pool is not None:
            plain["waiting"] = [plain_message(one) for one in servers.pool.waiting]
            plain["others_waiting"] = servers.pool.others_waiting
        if arguments.all:
            plain["ended"] = [plain_message(entry) for _, one in answers for entry in one.ended]
            plain["background"] = background_rows()
        print(json.dumps(plain, indent=2))
        return answers.complain()
    width = terminal_width()
    lines = _ps_lines(servers, list(answers), width)
    if arguments.all:
        rows = [(server, entry) for server, one in answers for entry in one.ended]
        lines += _ended_lines(servers, rows, width) + background_lines(width)
    print("\n".join(lines))
    return answers.complain()


def _ended(client: ControlClient) -> list[LogEntry]:
    """Returns the last words about each lease that has ended lately."""
    from rgpu_client.background.store import SHOWN_SECONDS

    since = time.time() - SHOWN_SECONDS
    return [
        entry
        for entry in client.log().entries
        if entry.event == "lease_ended" and entry.time_seconds >= since
    ]


def _ended_lines(
    servers: Servers, found: Sequence[tuple[Server, LogEntry]], width: int | None
) -> list[str]:
    """Returns the table of leases that have ended, the newest last; no lines if there is none."""
    if not found:
        return []
    now = time.time()
    rows = [
        servers.cells(
            server,
            (
                entry.lease_id,
                entry.lease_name,
                entry.tenant,
                format_seconds(max(now - entry.time_seconds, 0.0)),
                entry.sentence.removeprefix("ended: "),
            ),
        )
        for server, entry in sorted(found, key=lambda one: one[1].time_seconds)
    ]
    return ["", fitting(servers.titles(_ENDED_TITLES), rows, _ENDED_DROPPED, width)]


def _ps_lines(
    servers: Servers, found: Sequence[tuple[Server, _Running]], width: int | None
) -> list[str]:
    lines = [line for server, one in found for line in drained_words(one.server, server)]
    leases = [(server, lease) for server, one in found for lease in one.usages]
    sessions = [(server, session) for server, one in found for session in one.sessions.sessions]
    if leases or sessions:
        rows = [servers.cells(server, _session_row(one)) for server, one in sessions]
        lines += [
            _leases(servers, leases, width),
            "",
            fitting(servers.titles(_SESSION_TITLES), rows, _SESSION_DROPPED, width),
        ]
    else:
        lines.append("no leases and no sessions: `rgpu run -- PROGRAM` makes one of each")
    waiting = [(server, claim) for server, one in found for claim in one.sessions.waiting]
    lines += _line(servers, waiting, sum(one.sessions.others_waiting for _, one in found), width)
    if servers.whole and servers.pool is not None:
        lines += waiting_lines(servers.pool, width)
    return lines


def _leases(servers: Servers, found: Sequence[tuple[Server, LeaseUsage]], width: int | None) -> str:
    """Returns the table of leases. Their ends are a column if one of them has an end, and their
    states if one of them is paused.
    """
    more = {
        "ends in>": [
            format_duration(one.ends_seconds) if one.HasField("ends_seconds") else ""
            for _, one in found
        ],
        "state": ["paused" if one.paused else "" for _, one in found],
    }
    columns = {title: cells for title, cells in more.items() if any(cells)}
    rows = [
        servers.cells(server, (*_lease_row(one), *further))
        for (server, one), *further in zip(found, *columns.values(), strict=True)
    ]
    return fitting(servers.titles((*_LEASE_TITLES, *columns)), rows, _LEASE_DROPPED, width)


def _line(
    servers: Servers, found: Sequence[tuple[Server, WaitingClaim]], others: int, width: int | None
) -> list[str]:
    """Returns lines about the claims that wait for room at servers; no lines if none waits."""
    lines = []
    if found:
        rows = [servers.cells(server, _waiting_row(claim)) for server, claim in found]
        lines += ["", fitting(servers.titles(_WAITING_TITLES), rows, _WAITING_DROPPED, width)]
    if others:
        lines += ["", f"in line for room: {counted(others, 'claim')} of other tenants"]
    return lines


def _waiting_row(claim: WaitingClaim) -> tuple[str, ...]:
    return (
        f"{claim.place} of {claim.waiting}",
        claim.name,
        claim.tenant,
        claim.lease_key,
        claim.origin,
        ", ".join(map(str, claim.devices)),
        format_bytes(claim.memory_bytes),
        format_share(claim.share_request_ppm),
        format_seconds(claim.waited_seconds),
        claim.reason,
    )


def drained_words(answer: ListDevicesResponse, server: Server) -> list[str]:
    """Returns lines that say that a server is drained; no lines if it is not."""
    if not answer.draining:
        return []
    name = f"node {server.node}" if server.node else "this server"
    undrain = f"rgpu undrain {server.node}".strip()
    ends = "continue"
    if answer.HasField("end_after_seconds"):
        ends = f"end in {format_seconds(answer.end_after_seconds)}"
    return [
        f"{name} is drained: it takes no new lease and no new session, and running ones {ends} "
        f"(`{undrain}` ends the drain)",
        "",
    ]


def _lease_row(lease: LeaseUsage) -> tuple[str, ...]:
    return (
        lease.lease_id,
        lease.name,
        lease.tenant,
        lease.lease_key,
        str(lease.device),
        format_bytes(lease.memory_limit_bytes),
        format_bytes(lease.usage.memory_used_bytes),
        format_bytes(lease.usage.memory_peak_bytes),
        str(lease.usage.refused_allocations),
        format_share(lease.share_request_ppm),
        format_share(lease.share_limit_ppm),
    )


def _session_row(session: Session) -> tuple[str, ...]:
    return (
        str(session.session_id),
        session.lease_id,
        str(session.client_pid),
        session.peer,
        session.transport,
        format_bytes(session.usage.memory_used_bytes),
        format_bytes(session.usage.memory_peak_bytes),
        str(session.usage.launches),
        format_bytes(session.usage.copied_bytes),
        format_seconds(session.age_seconds),
        _state(session),
        one_line(session.seam, 16) or "driver",
        session.program,
    )


def _state(session: Session) -> str:
    """Returns the session's state in one word: opening, open, compiling, ending."""
    from rgpu_common.v1.session_pb2 import SESSION_STATE_OPEN, SessionState

    if session.compiling and session.state == SESSION_STATE_OPEN:
        return "compiling"
    try:
        return SessionState.Name(session.state).removeprefix("SESSION_STATE_").lower()
    except ValueError:  # a later release added this state
        return "-"


devices = Command("devices", "list what a server or a cluster offers", _configure, _devices)
ps = Command("ps", "list leases and sessions, and what they use", _configure_ps, _ps)
