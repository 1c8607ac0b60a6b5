"""`rgpu logs`: shows what happened to a lease."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

from rgpu_client.settings import API_SERVER_HELP, configured_server
from rgpu_common.command import OK, Command
from rgpu_common.tables import message_json
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    import argparse

    from rgpu_client.control import ControlClient
    from rgpu_common.v1.log_pb2 import GetLogResponse, LogEntry

_PERIOD_SECONDS = 1.0


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "lease", metavar="LEASE", nargs="?", default="",
        help="its id or its key (default: all leases that you may see)",
    )  # fmt: skip
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the lease ends, or for ever"
    )
    parser.add_argument(
        "--json", action="store_true", help="print JSON; with --follow one object for each line"
    )
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)


def _logs(arguments: argparse.Namespace) -> int:
    from rgpu_client.control import ControlClient

    with ControlClient(configured_server(arguments.server, os.environ)) as client:
        answer = client.log(arguments.lease)
        if arguments.follow:
            return _follow(client, answer, arguments)
    if arguments.json:
        print(message_json(answer))
        return OK
    for entry in answer.entries:
        print(_line(entry))
    if not answer.entries:
        print("no lease has been granted since the server started", file=sys.stderr)
    return OK


def _follow(client: ControlClient, answer: GetLogResponse, arguments: argparse.Namespace) -> int:
    after = 0
    # A key may be given to a later lease, and that one is not meant.
    lease = arguments.lease and answer.entries[-1].lease_id if answer.entries else arguments.lease
    while True:
        for entry in answer.entries:
            print(_as_json(entry) if arguments.json else _line(entry), flush=True)
            after = max(after, entry.number)
        if answer.ended:
            return OK
        if not answer.entries:
            time.sleep(_PERIOD_SECONDS)
        answer = client.log(lease, after)


def _as_json(entry: LogEntry) -> str:
    return json.dumps(json.loads(message_json(entry)))


def _line(entry: LogEntry) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time_seconds))
    return one_line(f"{at}  {entry.lease_id}  {entry.sentence}")


logs = Command("logs", "show what happened to a lease", _configure, _logs)
