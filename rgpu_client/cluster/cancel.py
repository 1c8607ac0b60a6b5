"""`rgpu cancel`: ends a run, a gang, a reservation, or the wait of one, by what people call it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from rgpu_client.background.store import Store
from rgpu_client.cluster.servers import add_servers, servers_of
from rgpu_common.clusters import manager_endpoint
from rgpu_common.command import FAILED, OK, Command
from rgpu_common.errors import RgpuError, ServerError, UsageError
from rgpu_common.texts import one_line
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from rgpu_client.cluster.servers import Server, Servers

_MOST_NAMED = 8


class Target(NamedTuple):
    """What can be cancelled.

    id: what tells it from all others. names: further words that people have for it; group: the
    gang, all of which is meant by its word. shown: what it is, for a sentence. end: ends it and
    returns what has happened.
    """

    id: str
    names: tuple[str, ...]
    group: str
    shown: str
    end: Callable[[], str]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="+",
        help="a run's name, id or lease, a gang, a reservation; or how one of them begins",
    )
    add_servers(parser)


def _cancel(arguments: argparse.Namespace) -> int:
    here = {name: run for name in arguments.name if (run := _here(name)) is not None}
    targets: list[Target] = []
    if len(here) < len(set(arguments.name)):
        targets = list(_targets(servers_of(arguments)))
    # All names are looked up before anything ends.
    found = [
        one
        for name in arguments.name
        for one in ([here[name]] if name in here else _meant(targets, name))
    ]
    done = [_ended(one) for one in dict.fromkeys(found)]
    return OK if all(done) else FAILED


def _ended(target: Target) -> bool:
    """Ends it and says so; False: it could not be ended."""
    try:
        print(one_line(target.end()))
    except RgpuError as error:
        print(one_line(f"rgpu: {target.shown}: {error}"), file=sys.stderr)
        return False
    return True


def _meant(targets: Sequence[Target], name: str) -> list[Target]:
    """Returns what a name means; UsageError: it may mean several, ServerError: nothing."""
    gang = [one for one in targets if name and one.group == name]
    if gang:
        return gang
    rules: tuple[Callable[[Target], bool], ...] = (
        lambda one: one.id == name,
        lambda one: name in one.names,
        lambda one: one.id.startswith(name),
        lambda one: any(word.startswith(name) for word in one.names),
    )
    for rule in rules:
        found = [one for one in targets if name and rule(one)]
        if len(found) == 1:
            return found
        if found:
            shown = ", ".join(one.id for one in found[:_MOST_NAMED])
            more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
            raise UsageError(f"{name!r} may be {shown}{more}: name one of them")
    raise ServerError(
        f"nothing that runs, waits or is reserved is called {name!r}; `rgpu ps` shows what there is"
    )


def _targets(servers: Servers) -> Iterator[Target]:
    """Yields all that the caller can cancel."""
    answers = servers.ask(lambda client: (client.leases(), client.running().waiting))
    answers.complain()
    booked = set()
    for target in _of_manager(servers):
        booked.add(target.id)
        yield target
    for server, (leases, waiting) in answers:
        for lease in leases:
            if lease.key not in booked:
                names = (lease.key, lease.name)
                yield _lease(server, lease.lease_id, names)
        for claim in waiting:
            names = (claim.lease_key, claim.name)
            yield _claim(server, claim.claim, names)


def _here(name: str) -> Target | None:
    """Returns a run in the background of this machine, whose lease ends with its program."""
    store = Store(os.environ)
    run = store.find(name)
    if run is None or run.ended or run.lost:
        return None

    def stop() -> str:
        from rgpu_client.background.starting import end

        return end(store, run)

    return Target(run.id, (run.name,), "", f"{run.name} ({run.id})", stop)


def _lease(server: Server, lease: str, names: tuple[str, ...]) -> Target:
    def end() -> str:
        with server.client() as client:
            ended = client.revoke(lease)
        return f"{shown} was ended, and {counted(ended, 'session')} with it"

    shown = f"{server.node}/{lease}" if server.node else lease
    return Target(shown, (*_named(names), lease), "", shown, end)


def _claim(server: Server, claim: int, names: tuple[str, ...]) -> Target:
    def end() -> str:
        with server.client() as client:
            client.cancel(claim)
        return f"{shown} does not wait any more"

    words = _named(names)
    shown = words[-1] if words else f"claim {claim}"
    return Target(words[0] if words else f"claim-{claim}", words, "", shown, end)


def _of_manager(servers: Servers) -> Iterator[Target]:
    """Yields the requests and the reservations that the manager knows."""
    if servers.pool is None or not servers.manager:
        return
    manager, pool = servers.manager, servers.pool
    for waiting in pool.waiting:
        yield _request(manager, waiting.request_id, waiting.name, waiting.gang, "waits")
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
        yield _request(manager, request, name, "", "runs")


def _request(manager: str, request: str, name: str, gang: str, state: str) -> Target:
    def end() -> str:
        from rgpu_client.cluster.asking import ManagerClient

        with ManagerClient(manager_endpoint(manager)) as client:
            client.cancel(request)
        return f"{shown} {'does not wait any more' if state == 'waits' else 'was ended'}"

    shown = f"{name} ({request})" if name else request
    return Target(request, _named((name,)), gang, shown, end)


def _reservation(manager: str, reservation: str) -> Target:
    def end() -> str:
        from rgpu_client.cluster.asking import ManagerClient

        with ManagerClient(manager_endpoint(manager)) as client:
            client.release(reservation, "")
        return f"reservation {reservation} was released"

    return Target(reservation, (), "", f"reservation {reservation}", end)


def _named(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(filter(None, words))


cancel = Command(
    "cancel", "end a run, a gang or a reservation, also one that waits", _configure, _cancel
)
