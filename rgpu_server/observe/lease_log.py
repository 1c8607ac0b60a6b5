"""What happened to each lease, in memory: the newest entries, for `rgpu logs`."""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from rgpu_common.clusters import begins_id
from rgpu_common.crowds import FairStore
from rgpu_server.observe.lease_words import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rgpu_server.core.model import LeaseKey

    Fields = Mapping[str, str | float | None]

# The most entries of a lease; of these older ones make room. The most leases that have ended and
# whose log is kept: of one tenant, so that it does not take the room of others, and of all.
MOST_ENTRIES = 256
MOST_ENDED_OF_TENANT = 64
MOST_ENDED = 1024
_MOST_CHARACTERS = 500
# Lines that a worker prints are about the server, so operators alone see them.
PRINTED = "worker_printed"


class Entry(NamedTuple):
    """number: increases from entry to entry. at: seconds since 1970. session: 0 for none."""

    number: int
    at: float
    lease: str
    event: str
    sentence: str
    session: int


class Log(Struct):
    """The log of a lease. name: what people call it."""

    key: LeaseKey
    name: str = ""
    entries: deque[Entry] = field(default_factory=lambda: deque(maxlen=MOST_ENTRIES))
    ended: bool = False


class LeaseLog:
    """Hears the events of the audit log and keeps those about leases.

    key_of, name_of: return the key and the name of a lease that is there. They are asked about
    leases that an earlier daemon granted.
    """

    def __init__(
        self,
        key_of: Callable[[str], LeaseKey | None],
        clock: Callable[[], float] = time.time,
        name_of: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._key_of = key_of
        self._name_of = name_of
        self._clock = clock
        self._numbers = itertools.count(1)
        # In the order in which the leases were first heard of.
        self._logs: dict[str, Log] = {}
        self._sessions: dict[int, str] = {}
        self._ended: FairStore[str, str] = FairStore(MOST_ENDED)

    def happened(self, event: str, fields: Fields) -> None:
        """Hears an event (audit.Listener)."""
        session = int(fields.get("session") or 0)
        lease = str(fields.get("lease") or self._sessions.get(session, ""))
        if event == "session_assigned":
            self._sessions[session] = lease
        elif event in ("session_ended", "session_refused"):
            self._sessions.pop(session, None)
        sentence = words_of(event, fields)
        log = self._log(lease)
        if log is None or not sentence:
            return
        number, text = next(self._numbers), sentence[:_MOST_CHARACTERS]
        log.entries.append(Entry(number, self._clock(), lease, event, text, session))
        if event == "lease_ended":
            self._end(lease, log)

    def find(self, lease: str, sees: Callable[[str], bool]) -> list[Log]:
        """Returns the log of the lease with this id, else those of the leases with this key or
        name: of all that are there, else of the newest that has ended; else those of all leases
        whose drawn key begins so. sees: tells whether the caller sees a tenant.
        """
        log = self._logs.get(lease)
        if log is not None and sees(log.key.tenant):
            return [log]
        seen = {one: log for one, log in self._logs.items() if sees(log.key.tenant)}
        named = [log for log in seen.values() if lease in (log.key.name, log.name)]
        if named:
            return [log for log in named if not log.ended] or named[-1:]
        return [log for log in seen.values() if begins_id(log.key.name, lease)]

    def all(self, sees: Callable[[str], bool]) -> Iterable[Log]:
        """Returns the logs of all leases that the caller sees."""
        return [log for log in self._logs.values() if sees(log.key.tenant)]

    def _log(self, lease: str) -> Log | None:
        log = self._logs.get(lease)
        if log is None:
            key = self._key_of(lease) if lease else None
            if key is None:
                return None
            log = self._logs[lease] = Log(key, self._name_of(lease))
        return log

    def _end(self, lease: str, log: Log) -> None:
        log.ended = True
        forgotten = self._ended.put(lease, log.key.tenant, lease, MOST_ENDED_OF_TENANT)
        if forgotten is not None:
            del self._logs[forgotten]
