"""`rgpu cancel`: ends a run, a gang, a reservation, or the wait of one, by what people call it."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.background.store import Store
from rgpu_client.cluster.servers import add_servers, servers_of
from rgpu_common.clusters import begins_id, is_given_id, manager_endpoint
from rgpu_common.command import FAILED, OK, Command
from rgpu_common.errors import RgpuError, ServerError, UsageError
from rgpu_common.texts import may_be, one_line
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from rgpu_client.background.store import Run
    from rgpu_client.cluster.servers import Server, Servers

# What is in no gang.
_ALONE = ("", "")


class Target(NamedTuple):
    """What can be cancelled.

    id: what tells it from all others, as `given` in that nobody can choose it; else its owner has.
    names: further words that people have for it. group: the tenant and the gang, all of which is
    meant by its word. shown: what it is, for a sentence. key: that of its lease. run: it is this
    run in the background of this machine. end: ends it and returns what has happened.
    """

    id: str
    names: tuple[str, ...]
    group: tuple[str, str]
    shown: str
    end: Callable[[], str]
    given: bool = True
    key: str = ""
    run: Run | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Returns all that people may call it."""
        return (self.id, *filter(None, (*self.names, self.group[1])))

    def is_called(self, name: str) -> bool:
        """Returns whether it, or a lease that ends with it, is called just so."""
        return name in self.words or (self.run is not None and self.run.has_lease(name))

    def has(self, other: Target) -> bool:
        """Returns whether the other is a lease of this run, or the wait for one."""
        return self.run is not None and self.run.has_lease(other.key)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="+",
        help="a run's name, id or lease, a gang, a reservation; or how an id begins",
    )
    add_servers(parser)


def _cancel(arguments: argparse.Namespace) -> int:
    here = list(_here())
    targets = here
    if any(not _exactly(here, name) for name in arguments.name):
        targets = [*here, *_elsewhere(arguments, here)]
    # All names are looked up before anything ends.
    found = [
        one
        for name in arguments.name
        for one in _exactly(here, name) or _meant(targets, here, name)
    ]
    done = [_ended(one) for one in dict.fromkeys(found)]
    return OK if all(done) else FAILED


def _elsewhere(arguments: argparse.Namespace, here: Sequence[Target]) -> list[Target]:
    """Returns what the servers have; ServerError: none answers, and nothing runs here."""
    try:
        return list(_targets(servers_of(arguments)))
    except ServerError as error:
        if not here:
            raise
        print(one_line(f"rgpu: {error}"), file=sys.stderr)
        return []


def _ended(target: Target) -> bool:
    """Ends it and says so; False: it could not be ended."""
    try:
        print(one_line(target.end()))
    except RgpuError as error:
        print(one_line(f"rgpu: {target.shown}: {error}"), file=sys.stderr)
        return False
    return True


def _exactly(here: Sequence[Target], name: str) -> list[Target]:
    """Returns the run in the background that is called just so; UsageError: there are several."""
    return _one(name, here, [one for one in here if one.is_called(name)])


def _meant(targets: Sequence[Target], here: Sequence[Target], name: str) -> list[Target]:
    """Returns what a name means; UsageError: it may mean several, ServerError: nothing.

    Most words are what their owners like, and these may have wanted what others call theirs.
    """
    rules: list[Callable[[Target], bool]] = [
        lambda one: one.given and name in (one.id, one.id.rpartition("/")[2])
    ]
    if not is_given_id(name):
        rules.append(lambda one: name in one.words)
        rules.append(lambda one: any(begins_id(word, name) for word in one.words))
    for rule in rules:
        found = _one(name, here, [one for one in targets if name and rule(one)])
        if found:
            return found
    raise ServerError(
        f"nothing that runs, waits or is reserved is called {name!r}; `rgpu ps` shows what there is"
    )


def _one(name: str, here: Sequence[Target], leases: Sequence[Target]) -> list[Target]:
    """Returns what was found, if it is one thing; UsageError. A run in the background stands for
    its leases: they end with its program, which is asked first.
    """
    found = dict.fromkeys(next((run for run in here if run.has(one)), one) for one in leases)
    if len({one.group if one.group[1] == name else one.id for one in found}) > 1:
        raise UsageError(may_be(name, [one.id for one in found]))
    return list(found)


def _targets(servers: Servers) -> Iterator[Target]:
    """Yields all that the caller can cancel."""
    answers = servers.ask(lambda client: (client.leases(), client.running().waiting))
    answers.complain()
    booked = {target.id: target for target in _of_manager(servers)}
    yield from booked.values()
    for server, (leases, waiting) in answers:
        for lease in leases:
            # The lease of a request's second card is called REQUEST.1.
            request = booked.get(lease.key) or booked.get(lease.key.rpartition(".")[0])
            if request is None:
                names = (lease.key, lease.name)
                yield _lease(server, lease.lease_id, names)
            else:
                # By its id alone: what else it is called its request is called.
                yield request._replace(
                    id=_shown(server, lease.lease_id), names=(), group=_ALONE, given=True
                )
        for claim in waiting:
            names = (claim.lease_key, claim.name)
            yield _claim(server, claim.claim, names)


def _here() -> Iterator[Target]:
    """Yields the runs in the background of this machine. Their leases end with their programs."""
    from rgpu_client.background.starting import end

    store = Store(os.environ)
    for run in store.all():
        if not run.over:
            shown = f"{run.name} ({run.id})"
            yield Target(run.id, (run.name,), _ALONE, shown, partial(end, store, run), run=run)


def _lease(server: Server, lease: str, names: tuple[str, ...]) -> Target:
    def end() -> str:
        with server.client() as client:
            ended = client.revoke(lease)
        return f"{shown} was ended, and {counted(ended, 'session')} with it"

    shown = _shown(server, lease)
    return Target(shown, _named(names), _ALONE, shown, end, key=names[0])


def _shown(server: Server, lease: str) -> str:
    return f"{server.node}/{lease}" if server.node else lease


def _claim(server: Server, claim: int, names: tuple[str, ...]) -> Target:
    def end() -> str:
        with server.client() as client:
            client.cancel(claim)
        return f"{shown} does not wait any more"

    words = _named(names)
    number = f"{server.node}/claim-{claim}" if server.node else f"claim-{claim}"
    shown = words[-1] if words else number
    return Target(number, words, _ALONE, shown, end, key=names[0])


def _of_manager(servers: Servers) -> Iterator[Target]:
    """Yields the requests and the reservations that the manager knows."""
    if servers.pool is None or not servers.manager:
        return
    manager, pool = servers.manager, servers.pool
    for waiting in pool.waiting:
        group = (waiting.tenant, waiting.gang) if waiting.gang else _ALONE
        yield _request(manager, waiting.request_id, waiting.name, group, "waits")
    reserved = {one.request_id for one in pool.reservations}
    for one in sorted(reserved):
        yield _reservation(manager, one)
    there = {
        lease.request_id: lease.name
        for node in pool.nodes
        for card in node.cards
        for lease in card.leases
        # A lease that a server granted by itself is called NODE/LEASE.
        if "/" not in lease.request_id and lease.request_id not in reserved
    }
    for request, name in there.items():
        yield _request(manager, request, name, _ALONE, "runs")


def _request(manager: str, request: str, name: str, group: tuple[str, str], state: str) -> Target:
    def end() -> str:
        from rgpu_client.cluster.asking import ManagerClient

        with ManagerClient(manager_endpoint(manager)) as client:
            client.cancel(request)
        return f"{shown} {'does not wait any more' if state == 'waits' else 'was ended'}"

    shown = f"{name} ({request})" if name else request
    return Target(request, _named((name,)), group, shown, end, given=False, key=request)


def _reservation(manager: str, reservation: str) -> Target:
    def end() -> str:
        from rgpu_client.cluster.asking import ManagerClient

        with ManagerClient(manager_endpoint(manager)) as client:
            client.release(reservation, "")
        return f"reservation {reservation} was released"

    # Its id has a random part behind its name.
    name = reservation.rpartition("-")[0]
    return Target(
        reservation, _named((name,)), _ALONE, f"reservation {reservation}", end, given=False
    )


def _named(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, words))


cancel = Command(
    "cancel", "end a run, a gang or a reservation, also one that waits", _configure, _cancel
)
