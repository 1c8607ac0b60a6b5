"""The last events of the audit log, in memory, for people who look at the server now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.crowds import FairStore
from rgpu_common.texts import one_line
from rgpu_common.units import PPM, format_bytes, format_share
from rgpu_server.observe.lease_log import PRINTED
from rgpu_server.observe.lease_words import words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Fields = Mapping[str, str | float | None]

# The most entries, and the most of one tenant: its events do not take the room of others'. Where
# several tenants have filled it, the one with the most loses its oldest entry.
MOST_ENTRIES = 1024
MOST_OF_TENANT = 256
_MOST_CHARACTERS = 500
# Leases and sessions whose tenant is remembered for later events that do not name it.
_MOST_OWNERS = 8192
# What a column of its own shows, or what is of no use to people.
_APART = frozenset({"event", "tenant", "lease", "session", "sentence", "reason"})
_REFUSALS = ("_refused", "_fenced")


class Entry(Struct, frozen=True):
    """One event. at: seconds since 1970. tenant: whose lease or session it is about; "": of no
    tenant, for operators alone. session: 0 for none.
    """

    number: int
    at: float
    event: str
    tenant: str
    lease: str
    session: int
    sentence: str

    @property
    def refusal(self) -> bool:
        """True if something was refused or stopped."""
        return self.event.endswith(_REFUSALS)


class Journal:
    """Keeps the newest events of the audit log."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._number = 0
        # By number.
        self._entries: FairStore[int, Entry] = FairStore(MOST_ENTRIES)
        # Tenant and lease of each lease and session that an event has named.
        self._owners: FairStore[tuple[str, str], tuple[str, str]] = FairStore(_MOST_OWNERS)

    def happened(self, event: str, fields: Fields) -> None:
        """Hears an event (audit.Listener)."""
        if event == PRINTED:
            return  # A line of a program, and no event of the audit log.
        tenant, lease = str(fields.get("tenant") or ""), str(fields.get("lease") or "")
        session = int(fields.get("session") or 0)
        for key in (("lease", lease), ("session", str(session))):
            if key[1] not in ("", "0"):
                known = self._owners.get(key) or ("", "")
                tenant, lease = tenant or known[0], lease or known[1]
        self._remember(tenant, lease, session)
        self._number += 1
        sentence = (words_of(event, fields) or _sentence(fields))[:_MOST_CHARACTERS]
        self._keep(Entry(self._number, self._wall(), event, tenant, lease, session, sentence))

    def entries(self, sees: Callable[[str], bool], everything: bool) -> Iterator[Entry]:
        """Yields what a caller may see, the oldest first. everything: also what no tenant owns."""
        for entry in self._entries.values():
            if sees(entry.tenant) if entry.tenant else everything:
                yield entry

    def _keep(self, entry: Entry) -> None:
        most = MOST_OF_TENANT if entry.tenant else None
        self._entries.put(entry.number, entry.tenant, entry, most)

    def _remember(self, tenant: str, lease: str, session: int) -> None:
        if not tenant:
            return
        for key in (("lease", lease), ("session", str(session) if session else "")):
            if key[1]:
                # The first event of a lease names its owner; a later one may be about another.
                owner, of = self._owners.get(key) or (tenant, lease)
                self._owners.put(key, owner, (owner, of or lease))


def _sentence(fields: Fields) -> str:
    """Returns what an event says beside its tenant, lease and session."""
    said = [str(fields[name]) for name in ("sentence", "reason") if fields.get(name)]
    for name, value in fields.items():
        if name in _APART or value is None or value == "":
            continue
        said.append(f"{_words(name)} {_value(name, value)}")
    return one_line(", ".join(said))


def _words(name: str) -> str:
    for unit in ("_bytes", "_ppm"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _value(name: str, value: str | float | None) -> str:
    if name.endswith("_bytes") and isinstance(value, int):
        return format_bytes(value)
    if name.endswith("_ppm") and isinstance(value, int):
        return format_share(min(value, PPM))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
