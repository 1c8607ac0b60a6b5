"""The part of the control-plane API that shows what happened to leases."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import grpc

from rgpu_common.texts import may_be
from rgpu_common.v1 import log_pb2, log_pb2_grpc
from rgpu_server.identity.guard import known
from rgpu_server.observe.lease_log import PRINTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpc.aio import ServicerContext as Context

    from rgpu_server.observe.lease_log import Entry, LeaseLog, Log

# The most entries of an answer. A client that follows asks for the rest.
MOST_ENTRIES = 1000
_MOST_SHOWN = 80


class LogService(log_pb2_grpc.LogServiceServicer):
    def __init__(self, log: LeaseLog) -> None:
        self._log = log

    async def GetLog(
        self, request: log_pb2.GetLogRequest, context: Context
    ) -> log_pb2.GetLogResponse:
        sees = known().identity.sees
        if not request.lease:
            logs = list(self._log.all(sees))
            return log_pb2.GetLogResponse(entries=_entries(logs, request.after))
        found = self._log.find(request.lease, sees)
        shown = request.lease[:_MOST_SHOWN]
        if not found:
            await context.abort(
                grpc.StatusCode.NOT_FOUND,
                f"there is no log of a lease {shown!r}; `rgpu lease list` shows which leases there "
                "are, and `rgpu logs` what happened to all of yours",
            )
        if len(found) > 1:
            names = [log.entries[0].lease for log in found if log.entries]
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, may_be(shown, names))
        (log,) = found
        return log_pb2.GetLogResponse(entries=_entries([log], request.after), ended=log.ended)


def _entries(logs: Iterable[Log], after: int) -> list[log_pb2.LogEntry]:
    operator = known().identity.operator
    found: list[tuple[Entry, Log]] = [
        (entry, log)
        for log in logs
        for entry in log.entries
        if entry.number > after and (operator or entry.event != PRINTED)
    ]
    found.sort(key=lambda one: one[0].number)
    # Of all that is kept the newest; of what came since the last call the next.
    start = max(len(found) - MOST_ENTRIES, 0) if not after else 0
    return [_message(*one) for one in islice(found, start, start + MOST_ENTRIES)]


def _message(entry: Entry, log: Log) -> log_pb2.LogEntry:
    return log_pb2.LogEntry(
        number=entry.number,
        time_seconds=entry.at,
        lease_id=entry.lease,
        tenant=log.key.tenant,
        event=entry.event,
        sentence=entry.sentence,
        session=entry.session,
        lease_name=log.name,
    )
