"""`rgpu devices` and `rgpu ps`: lists a server's devices, leases and sessions."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rgpu_client.settings import API_SERVER_HELP, configured_server
from rgpu_common.command import OK, Command
from rgpu_common.tables import as_json, fitting, message_json, table, terminal_width
from rgpu_common.texts import one_line
from rgpu_common.units import format_bytes, format_duration, format_seconds, format_share

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rgpu_client.control import ControlClient
    from rgpu_common.v1.device_pb2 import ListDevicesResponse
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
    "lease", "tenant", "key", "device>", "memory>", "used>", "peak>", "refused>", "share>",
    "limit>", "ends in>",
)  # fmt: skip
_WAITING_TITLES = (
    "in line", "tenant", "key", "from", "device", "memory>", "share>", "waits>", "because",
)  # fmt: skip
_SESSION_TITLES = (
    "session>", "lease", "pid>", "from", "over", "used>", "peak>", "launches>", "copied>", "age>",
    "state", "seam", "program",
)  # fmt: skip
# Columns that a narrow terminal does not show, the first of them first.
_LEASE_DROPPED = ("refused", "peak", "tenant", "device", "limit")
_WAITING_DROPPED = ("device", "tenant", "from", "share", "key")
_SESSION_DROPPED = ("copied", "launches", "peak", "over", "from", "age", "seam", "pid", "state")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _client(arguments: argparse.Namespace) -> ControlClient:
    from rgpu_client.control import ControlClient

    return ControlClient(configured_server(arguments.server, os.environ))


def _devices(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        answer = client.devices()
    if arguments.json:
        print(message_json(answer))
        return OK
    rows = [
        (
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
        for device in answer.devices
    ]
    print("\n".join([*drained_words(answer), table(_DEVICE_TITLES, rows)]))
    return OK


def _ps(arguments: argparse.Namespace) -> int:
    with _client(arguments) as client:
        answer, usages, server = client.running(), client.usage(), client.devices()
    sessions, waiting = list(answer.sessions), list(answer.waiting)
    if arguments.json:
        print(
            as_json(
                {"sessions": sessions, "leases": usages, "waiting": waiting},
                others_waiting=answer.others_waiting,
            )
        )
        return OK
    width = terminal_width()
    tables = ["no leases and no sessions: `rgpu run -- PROGRAM` makes one of each"]
    if usages or sessions:
        tables = [
            _leases(usages, width),
            "",
            fitting(
                _SESSION_TITLES, [_session_row(one) for one in sessions], _SESSION_DROPPED, width
            ),
        ]
    print("\n".join([*drained_words(server), *tables, *_line(answer, width)]))
    return OK


def _leases(usages: Sequence[LeaseUsage], width: int | None) -> str:
    """Returns the table of leases. Their ends are a column if one of them has an end."""
    shown = len(_LEASE_TITLES) - (not any(one.HasField("ends_seconds") for one in usages))
    rows = [_lease_row(one)[:shown] for one in usages]
    return fitting(_LEASE_TITLES[:shown], rows, _LEASE_DROPPED, width)


def _line(answer: ListSessionsResponse, width: int | None) -> list[str]:
    """Returns lines about the claims that wait for room; no lines if none waits."""
    lines = []
    if answer.waiting:
        rows = [_waiting_row(claim) for claim in answer.waiting]
        lines += ["", fitting(_WAITING_TITLES, rows, _WAITING_DROPPED, width)]
    if answer.others_waiting:
        lines += ["", f"in line for room: {answer.others_waiting} claims of other tenants"]
    return lines


def _waiting_row(claim: WaitingClaim) -> tuple[str, ...]:
    return (
        f"{claim.place} of {claim.waiting}",
        claim.tenant,
        claim.lease_key,
        claim.origin,
        ", ".join(map(str, claim.devices)),
        format_bytes(claim.memory_bytes),
        format_share(claim.share_request_ppm),
        format_seconds(claim.waited_seconds),
        claim.reason,
    )


def drained_words(answer: ListDevicesResponse) -> list[str]:
    """Returns lines that say that the server is drained; no lines if it is not."""
    if not answer.draining:
        return []
    ends = "continue"
    if answer.HasField("end_after_seconds"):
        ends = f"end in {format_seconds(answer.end_after_seconds)}"
    return [
        "this server is drained: it takes no new lease and no new session, and running ones "
        f"{ends} (`rgpu undrain` ends the drain)",
        "",
    ]


def _lease_row(lease: LeaseUsage) -> tuple[str, ...]:
    return (
        lease.lease_id,
        lease.tenant,
        lease.lease_key,
        str(lease.device),
        format_bytes(lease.memory_limit_bytes),
        format_bytes(lease.usage.memory_used_bytes),
        format_bytes(lease.usage.memory_peak_bytes),
        str(lease.usage.refused_allocations),
        format_share(lease.share_request_ppm),
        format_share(lease.share_limit_ppm),
        format_duration(lease.ends_seconds) if lease.HasField("ends_seconds") else "",
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


devices = Command("devices", "list what a server offers", _configure, _devices)
ps = Command("ps", "list a server's leases and sessions, and what they use", _configure, _ps)
