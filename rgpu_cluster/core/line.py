"""Requests that wait, and the order in which they are tried.

By priority, highest first; then by the dominant share of their tenants, smallest first (Dominant
Resource Fairness, NSDI'11); then by age. A request that does not fit now does not keep a later one
from a card that it cannot use itself.

Requests of one tenant that differ in nothing but their age form a group: if the oldest of them does
not fit, none of them does.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from rgpu_common.crowds import Crowds
from rgpu_common.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_cluster.core.decision import Refusal
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.request import Request


CROWDED_OUT = (
    "the line is full, and its tenant has most of the requests in it: the newest made room for "
    "another tenant's; ask again when some of them are placed"
)


@lru_cache(maxsize=4096)
def shape_of(request: Request) -> Request:
    """Returns what is equal for requests that fit in the same places.

    A line is tried again after each change, and asks this of the same requests. Making one, which
    checks it, takes longer than finding it.
    """
    return replace(request, id="-", tenant="-", name="")


class Key(NamedTuple):
    """What the requests of a group have in common. shapes: those of all alternatives."""

    tenant: str
    shapes: tuple[Request, ...]
    wait: bool
    gang: str
    passing: frozenset[str]


class Group(Struct, eq=False):
    """Requests that only age tells apart.

    order: since_ns, number and id of each, the oldest first. tried: the state in which they did not
    fit; refusal: why.
    """

    key: Key
    order: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    tried: tuple[int, ...] = ()
    refusal: Refusal | None = None


@dataclass(slots=True)
class Entry:
    """One request in line.

    since_ns: since when it waits. told: the place in line of which its client knows. attempt: how
    often it was placed. refused: what a daemon said when it refused the request last; refusals: how
    often that was in a row; not_before_ns: when it is tried again, 0: at any time; hopeless: it is
    not tried again. passing: the barred nodes that may allow it later. group: None while it rests,
    or is not in line; last: why it was not placed before. hint: what is under way for it. choices:
    its alternatives, the best first. request: the one that it asks for now, choices[chosen]; the
    first, except while it is tried or has cards. pressed: the one for which leases end soon. lent:
    what waiting would get back for it, for its refusal.
    """

    request: Request
    since_ns: int
    number: int
    wait: bool
    gang: str = ""
    gang_size: int = 1
    told: int = 0
    attempt: int = 0
    refused: str = ""
    refusals: int = 0
    not_before_ns: int = 0
    hopeless: bool = False
    passing: set[str] = field(default_factory=set)
    group: Group | None = None
    last: Refusal | None = None
    hint: str = ""
    choices: list[Request] = field(init=False)
    chosen: int = 0
    pressed: int = 0
    lent: str = ""

    def __post_init__(self) -> None:
        self.choices = [self.request]

    def at(self, number: int) -> Request:
        """Returns one of its alternatives, or the last if it has fewer."""
        return self.choices[min(number, len(self.choices) - 1)]

    def choose(self, number: int) -> None:
        """Has it ask for the alternative that `at` returns."""
        self.chosen = min(number, len(self.choices) - 1)
        self.request = self.choices[self.chosen]

    @property
    def refusal(self) -> Refusal | None:
        """Why it was not placed when it, or its like, was last tried."""
        return (self.group.refusal if self.group is not None else None) or self.last

    @property
    def age(self) -> tuple[int, int, str]:
        """Its place in its group."""
        return self.since_ns, self.number, self.request.id

    def bar(self, node: str, *, passing: bool) -> None:
        """Keeps what it asks for now off a node; `passing`: until all others were tried."""
        self.request = replace(self.request, barred=self.request.barred | {node})
        self.choices[self.chosen] = self.request
        if passing:
            self.passing.add(node)

    def unbar(self) -> None:
        """Lets it try again the nodes that may allow it now. It must not be in line."""
        self.choices = [replace(one, barred=one.barred - self.passing) for one in self.choices]
        self.choose(self.chosen)
        self.passing.clear()

    def rest(self, now_ns: int, limits: Limits) -> None:
        """Has it tried again later, the later the more often it was refused."""
        later = min(limits.retry_ns << min(self.refusals, 32), limits.longest_retry_ns)
        self.not_before_ns = now_ns + later


class Line:
    """The requests in line, by id. Adding and removing one costs the same however many there are,
    up to a search in a sorted list.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._groups: dict[Key, Group] = {}
        self._gangs: dict[str, dict[str, Entry]] = {}
        self._tenants: Crowds[str] = Crowds()
        # Priority and tenant -> the ages of its requests, the oldest first.
        self._queues: dict[tuple[int, str], list[tuple[int, int, str]]] = {}
        self._resting: list[tuple[int, str]] = []
        self._fresh: list[str] = []
        # Counts the requests that have left.
        self.departures = 0
        # Counts the requests that have come or left.
        self.changes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, request: str) -> bool:
        return request in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def get(self, request: str) -> Entry | None:
        """Returns the entry of a request, or None."""
        return self._entries.get(request)

    def of_tenant(self, tenant: str) -> int:
        """Returns how many requests of a tenant are in line."""
        return self._tenants.count(tenant)

    def gives_way(self, tenant: str) -> str | None:
        """Returns the request that leaves a full line for one of a tenant that has fewer: the
        newest of the tenant with the most; None: this tenant has about as many. A request that is
        in line again, because its place was lost, is as old as it was.
        """
        largest = self._tenants.yields(tenant)
        if largest is None:
            return None
        return max(ages[-1] for (_, of), ages in self._queues.items() if of == largest)[-1]

    def add(self, entry: Entry) -> None:
        """Adds a request. It asks for its best alternative again."""
        self.changes += 1
        entry.choose(0)
        request = entry.request
        self._entries[request.id] = entry
        self._tenants.come(request.id, request.tenant)
        insort(self._queues.setdefault(_queue_of(entry), []), entry.age)
        if entry.gang:
            self._gangs.setdefault(entry.gang, {})[request.id] = entry
        if entry.not_before_ns:
            heapq.heappush(self._resting, (entry.not_before_ns, request.id))
        else:
            self._join_group(entry)

    def remove(self, request: str) -> bool:
        """Removes a request. Returns False if it is not in line."""
        entry = self._entries.pop(request, None)
        if entry is None:
            return False
        self.changes += 1
        self.departures += 1
        self._tenants.go(request)
        queue = self._queues[_queue_of(entry)]
        _drop(queue, entry.age)
        if not queue:
            del self._queues[_queue_of(entry)]
        if entry.gang:
            self._gangs[entry.gang].pop(request)
            if not self._gangs[entry.gang]:
                del self._gangs[entry.gang]
        self._leave_group(entry)
        return True

    def rest(self, entry: Entry, now_ns: int, limits: Limits) -> None:
        """Has a request in line tried again later, on all nodes that may allow it."""
        self._leave_group(entry)
        entry.unbar()
        entry.rest(now_ns, limits)
        heapq.heappush(self._resting, (entry.not_before_ns, entry.request.id))

    def take_fresh(self, now_ns: int) -> list[Entry]:
        """Returns the requests that have come, or have rested, since the last call."""
        while self._resting and self._resting[0][0] <= now_ns:
            due_ns, request = heapq.heappop(self._resting)
            entry = self._entries.get(request)
            if entry is not None and entry.not_before_ns == due_ns and entry.group is None:
                entry.not_before_ns = 0
                self._join_group(entry)
        fresh, self._fresh = self._fresh, []
        there = {request: self._entries[request] for request in fresh if request in self._entries}
        return [entry for entry in there.values() if entry.group is not None]

    def gang(self, name: str) -> list[Entry]:
        """Returns the requests of a gang that are in line."""
        return list(self._gangs.get(name, {}).values())

    def groups(self) -> list[Group]:
        """Returns the groups of all that do not rest."""
        return list(self._groups.values())

    def order(self, share_of: Callable[[str], int]) -> list[Entry]:
        """Returns the requests in the order in which they are tried.

        share_of: the dominant share of a tenant.
        """
        shares = {tenant: share_of(tenant) for tenant in self._tenants.origins()}
        return sorted(
            self._entries.values(),
            key=lambda e: (-e.request.priority, shares[e.request.tenant], e.since_ns, e.number),
        )

    def place_of(self, entry: Entry, share_of: Callable[[str], int]) -> int:
        """Returns the place of a request in that order, from 1. Costs a step for each tenant and
        priority in line.
        """
        mine = -entry.request.priority, share_of(entry.request.tenant)
        before = 0
        for (priority, tenant), queue in self._queues.items():
            theirs = -priority, share_of(tenant)
            if theirs < mine:
                before += len(queue)
            elif theirs == mine:
                before += bisect_left(queue, entry.age)
        return before + 1

    def _join_group(self, entry: Entry) -> None:
        key = Key(
            entry.request.tenant,
            tuple(map(shape_of, entry.choices)),
            entry.wait,
            entry.gang,
            frozenset(entry.passing),
        )
        entry.group = self._groups.setdefault(key, Group(key))
        insort(entry.group.order, entry.age)
        self._fresh.append(entry.request.id)

    def _leave_group(self, entry: Entry) -> None:
        group = entry.group
        if group is None:
            return
        entry.last, entry.group = entry.refusal, None
        _drop(group.order, entry.age)
        if not group.order:
            del self._groups[group.key]


def _queue_of(entry: Entry) -> tuple[int, str]:
    return entry.request.priority, entry.request.tenant


def _drop(ages: list[tuple[int, int, str]], age: tuple[int, int, str]) -> None:
    place = bisect_left(ages, age)
    assert ages[place] == age, "a request in line is in its queue"
    del ages[place]


def crowded(request: Request, line: Line, limits: Limits) -> str:
    """Returns why no more requests can wait, or none of this tenant, else "". In a full line there
    is room if another request gives way.
    """
    if len(line) >= limits.line and line.gives_way(request.tenant) is None:
        return "too many requests are in line; try again later"
    mine = line.of_tenant(request.tenant)
    if mine >= limits.line_per_tenant:
        return f"tenant {request.tenant} has {mine} requests in line; wait for some of them"
    return ""


def gang_key(tenant: str, word: str) -> str:
    """Returns the key of a tenant's gang; "" for no gang. Each tenant has gangs of its own.

    Both parts are printable, so the line break between them keeps `a/b` of tenant `t` apart from
    `b` of tenant `t/a`.
    """
    return f"{tenant}\n{word}" if word else ""


def gang_word(key: str) -> str:
    """Returns the word by which the tenant calls a gang."""
    return key.partition("\n")[2]


def gang_differs(entry: Entry, line: Line) -> str:
    """Returns why a request cannot join the gang of its name that is in line, else ""."""
    sizes = {one.gang_size for one in line.gang(entry.gang)} - {entry.gang_size}
    if not entry.gang or not sizes:
        return ""
    return (
        f"gang {gang_word(entry.gang)!r} is in line with runs that say "
        f"{counted(min(sizes), 'run')} in all, and this one says {entry.gang_size}: give all of "
        "them the same number, or this one another word"
    )


def members(entry: Entry, line: Line, placed: int = 0) -> list[Entry] | None:
    """Returns the requests that are placed together with this one; None: some are not here yet.

    placed: how many members of its gang have cards already.
    """
    if not entry.gang:
        return [entry]
    gang = line.gang(entry.gang)
    return gang if len(gang) + placed >= entry.gang_size else None
