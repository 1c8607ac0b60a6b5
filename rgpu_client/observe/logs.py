"""`rgpu logs`: shows what happened to a lease, and what a run in the background has printed."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rgpu_client.cluster.servers import add_servers, servers_of
from rgpu_common.command import OK, Command
from rgpu_common.errors import NotThereError, ServerError, UsageError
from rgpu_common.tables import format_time, plain_message
from rgpu_common.texts import may_be, one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from rgpu_client.cluster.servers import Server, Servers
    from rgpu_client.control import ControlClient
    from rgpu_common.v1.log_pb2 import GetLogResponse, LogEntry

_PERIOD_SECONDS = 1.0


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lease", metavar="LEASE", nargs="?", default="",
        help="its name, id or key (default: all leases that you may see)",
    )  # fmt: skip
    parser.add_argument(
        "--events",
        action="store_true",
        help="what happened to the lease, also of a run in the background of this machine",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the lease ends, or for ever"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --follow one object for each line"
    )
    add_servers(parser)


class _Log(NamedTuple):
    """What one server tells. lease: what it is asked for; "" for all leases. after: the number of
    the newest entry that it told before.
    """

    server: Server
    lease: str
    answer: GetLogResponse
    after: int = 0


def _logs(arguments: argparse.Namespace) -> int:
    elsewhere = arguments.events or arguments.json or arguments.server or arguments.node
    if arguments.lease and not elsewhere:
        from rgpu_client.background.commands import show, sought_run
        from rgpu_client.background.store import Store

        store = Store(os.environ)
        run = sought_run(store, arguments.lease)
        if run is not None:
            return show(store, run, follow=arguments.follow)
    servers, lease = _where(servers_of(arguments), arguments.lease)
    answers = servers.ask(lambda client: _asked(client, lease))
    logs = [_Log(server, lease, answer) for server, answer in answers]
    code = answers.complain()
    if lease and not logs:
        raise ServerError(
            f"there is no log of a lease {lease!r}: `rgpu ps --all` shows runs, `rgpu lease "
            "list` leases, and `rgpu logs` what happened to all of yours"
        )
    _check_one(logs, lease)
    if arguments.follow:
        return _follow(servers, logs, in_json=arguments.json)
    if arguments.json:
        print(json.dumps(answers.plain(), indent=2))
        return code
    entries = [(one.server, entry) for one in logs for entry in one.answer.entries]
    for server, entry in sorted(entries, key=lambda one: one[1].time_seconds):
        print(_line(servers, server, entry))
    if not entries:
        print("no lease has been granted since the server started", file=sys.stderr)
    return code


def _where(servers: Servers, lease: str) -> tuple[Servers, str]:
    """Returns the servers to ask for a lease, and how they know it: NODE/LEASE names both."""
    node, slash, rest = lease.partition("/")
    named = tuple(one for one in servers.asked if slash and servers.whole and one.node == node)
    return (replace(servers, asked=named, absent=()), rest) if named else (servers, lease)


def _asked(client: ControlClient, lease: str) -> GetLogResponse | None:
    try:
        return client.log(lease)
    except NotThereError:
        if not lease:
            raise
        return None


def _check_one(logs: Sequence[_Log], lease: str) -> None:
    """UsageError: servers have different leases of this id. One key on several is one request."""
    same = [one for one in logs if any(entry.lease_id == lease for entry in one.answer.entries)]
    if len(same) > 1:
        raise UsageError(may_be(lease, [f"{one.server.node}/{lease}" for one in same]))


def _follow(servers: Servers, logs: Sequence[_Log], *, in_json: bool) -> int:
    """Prints what happens until each of the leases has ended."""
    with contextlib.ExitStack() as stack:
        clients = {one.server: stack.enter_context(one.server.client()) for one in logs}
        while True:
            for one in logs:
                for entry in one.answer.entries:
                    said = _as_json(entry) if in_json else _line(servers, one.server, entry)
                    print(said, flush=True)
            quiet = not any(one.answer.entries for one in logs)
            logs = [one for one in logs if not one.answer.ended]
            if not logs:
                return OK
            if quiet:
                time.sleep(_PERIOD_SECONDS)
            logs = [_later(one, clients[one.server]) for one in logs]


def _later(log: _Log, client: ControlClient) -> _Log:
    """Returns what has happened since."""
    lease, after = log.lease, log.after
    if log.answer.entries:
        newest = log.answer.entries[-1]
        after = newest.number
        # A key may be given to a later lease, and that one is not meant.
        lease = newest.lease_id if lease else ""
    return log._replace(lease=lease, after=after, answer=client.log(lease, after))


def _as_json(entry: LogEntry) -> str:
    return json.dumps(plain_message(entry))


def _line(servers: Servers, server: Server, entry: LogEntry) -> str:
    at = format_time(entry.time_seconds, "%Y-%m-%d %H:%M:%S")
    lease = f"{server.node}/{entry.lease_id}" if servers.whole else entry.lease_id
    named = f"{lease} ({entry.lease_name})" if entry.lease_name else lease
    return one_line(f"{at}  {named}  {entry.sentence}")


logs = Command(
    "logs",
    "show what a run in the background prints, or what happened to a lease",
    _configure,
    _logs,
)
