"""`rgpu pool`, and what `rgpu explain` prints: what a manager knows, and how it decided."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rgpu_client.cluster.placing import manager_of
from rgpu_common.command import OK, Command
from rgpu_common.errors import UsageError
from rgpu_common.mig import full_name
from rgpu_common.tables import as_json, fitting, format_time, message_json, table, terminal_width
from rgpu_common.texts import one_line
from rgpu_common.units import (
    PPM,
    counted,
    format_bytes,
    format_duration,
    format_seconds,
    format_share,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable, Iterator

    from rgpu_client.cluster.asking import ManagerClient
    from rgpu_common.v1 import cluster_pb2

_CARD_TITLES = (
    "node", "card>", "model", "rack", "free>", "of>", "guaranteed>", "leases>", "who", "state",
)  # fmt: skip
_CARD_DROPPED = ("rack", "of", "model", "who")
_LEASE_TITLES = ("run", "name", "tenant", "card", "address", "share>", "memory>", "state")
_LEASE_DROPPED = ("address", "tenant", "memory", "share")
_SMALLER_TITLES = (
    "lease", "name", "tenant", "card", "share>", "asked for>", "memory>", "asked for>", "ends in>",
)  # fmt: skip
_SMALLER_DROPPED = ("tenant", "card", "lease")
_RESERVED_TITLES = (
    "reservation", "tenant", "node", "cards>", "share>", "memory>", "ends in>", "state",
)  # fmt: skip
_RESERVED_DROPPED = ("state", "cards", "tenant")
_LEFT_TITLES = (
    "was on a node", "name", "tenant", "card", "address", "share>", "memory>", "state",
)  # fmt: skip
_LEFT_DROPPED = ("memory", "share", "address", "tenant")
_WAITING_TITLES = ("in line", "name", "tenant", "asks for", "waits>", "because")
_WAITING_DROPPED = ("tenant", "because")
_PATH_TITLES = ("from rack", "interface", "to rack", "interface", "round trip>", "up>", "down>",
                "over", "age>")  # fmt: skip
_EVENT_TITLES = ("number>", "at", "what", "node", "request", "name", "")
_PLACE_TITLES = ("place", "score>", "network>", "fragments>", "idle time>", "crowding>", "mode>",
                 "slower>", "equal>")  # fmt: skip
_ID_CHARACTERS = 12
_REACH = {1: "whole", 2: "local", 3: "near", 4: "any"}


def manager_client(arguments: argparse.Namespace) -> ManagerClient:
    """Returns the client of the manager that is named; UsageError: none is."""
    from rgpu_client.cluster.asking import ManagerClient

    manager = manager_of(arguments.manager, os.environ)
    if manager is None:
        raise UsageError("name the manager: --manager HOST:PORT, or RGPU_MANAGER")
    return ManagerClient(manager)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of all commands that ask a manager."""
    parser.add_argument(
        "--manager", metavar="HOST:PORT", help="the manager (default: RGPU_MANAGER)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


# rgpu pool


def _configure_pool(parser: argparse.ArgumentParser) -> None:
    configure(parser)
    parser.add_argument("--paths", action="store_true", help="show the measured paths too")
    parser.add_argument("--events", action="store_true", help="show what has happened instead")


def _pool(arguments: argparse.Namespace) -> int:
    with manager_client(arguments) as client:
        if arguments.events:
            return _print_events(client.events(), arguments.json)
        answer = client.pool()
    if arguments.json:
        print(message_json(answer))
        return OK
    width = terminal_width()
    lines = ["no node has joined: start `rgpu serve --join` on one"]
    if answer.nodes or answer.gone:
        rows = [_card_row(node, card) for node in answer.nodes for card in node.cards]
        rows += _gone_rows(answer.gone)
        lines = [fitting(_CARD_TITLES, rows, _CARD_DROPPED, width)]
    reserved = {one.request_id for one in answer.reservations}
    running = list(_lease_rows(answer.nodes, reserved))
    if running:
        lines += ["", fitting(_LEASE_TITLES, running, _LEASE_DROPPED, width)]
    smaller = list(_smaller_rows(answer.nodes))
    if smaller:
        lines += ["", fitting(_SMALLER_TITLES, smaller, _SMALLER_DROPPED, width)]
    if answer.reservations:
        rows = [_reservation_row(one) for one in answer.reservations]
        lines += ["", fitting(_RESERVED_TITLES, rows, _RESERVED_DROPPED, width)]
    lines += _left_lines(answer.gone, width)
    lines += waiting_lines(answer, width)
    lines += release_lines(answer)
    if arguments.paths:
        lines += ["", table(_PATH_TITLES, [_path_row(path) for path in answer.paths])]
    print("\n".join(lines))
    return OK


def waiting_lines(pool: cluster_pb2.GetPoolResponse, width: int | None) -> list[str]:
    """Returns lines about the requests that wait for cards; no lines if none waits."""
    lines = []
    if pool.waiting:
        rows = [_waiting_row(one) for one in pool.waiting]
        lines += ["", fitting(_WAITING_TITLES, rows, _WAITING_DROPPED, width)]
    if pool.others_waiting:
        lines += ["", f"in line: {counted(pool.others_waiting, 'request')} of other tenants"]
    return lines


def release_lines(pool: cluster_pb2.GetPoolResponse) -> list[str]:
    """Returns lines about releases, if not all parts have the same, as during an upgrade."""
    nodes: dict[str, list[str]] = {}
    for node in pool.nodes:
        # A node of an earlier manager does not say.
        if node.release:
            nodes.setdefault(node.release, []).append(node.name)
    if not nodes.keys() - {pool.release}:
        return []
    rows = [f"rgpu {release}: {', '.join(names)}" for release, names in sorted(nodes.items())]
    return ["", one_line(f"the manager has rgpu {pool.release}"), *map(one_line, rows)]


def _card_row(node: cluster_pb2.PoolNode, card: cluster_pb2.PoolCard) -> tuple[str, ...]:
    who = sorted({lease.tenant for lease in card.leases})
    if card.others:
        who.append(f"{card.others} of others")
    return (
        node.name,
        str(card.ordinal),
        full_name(card.model, card.mig),
        node.rack,
        format_bytes(max(card.memory_bytes - card.used_bytes, 0)),
        format_bytes(card.memory_bytes),
        format_share(min(card.used_ppm, PPM)),
        str(len(card.leases) + card.others),
        ", ".join(who),
        _standing(node),
    )


def short_id(request: str) -> str:
    """Returns the begin of a request's id: as much as nobody else's begins with, in practice. A
    command takes it for the whole id.
    """
    return request[:_ID_CHARACTERS] if request.startswith("run-") else request


def _lease_rows(
    nodes: Iterable[cluster_pb2.PoolNode], reserved: Collection[str]
) -> Iterator[tuple[str, ...]]:
    """Yields what runs where, without the reservations, which have a table of their own."""
    for node in nodes:
        for card in node.cards:
            for one in card.leases:
                if one.request_id in reserved:
                    continue
                state = "running" if node.connected else "not connected"
                yield _lease_row(node, card, one, state)


def _lease_row(
    node: cluster_pb2.PoolNode, card: cluster_pb2.PoolCard, one: cluster_pb2.PoolLease, state: str
) -> tuple[str, ...]:
    return (
        short_id(one.request_id),
        one.name,
        one.tenant,
        f"{node.name}/{card.ordinal}",
        node.address,
        "whole" if one.whole else format_share(one.share_ppm),
        format_bytes(one.memory_bytes),
        state,
    )


def _gone_rows(gone: Iterable[cluster_pb2.PoolNode]) -> Iterator[tuple[str, ...]]:
    """Yields the cards of nodes that have gone. Nothing of them is free."""
    free = _CARD_TITLES.index("free>")
    for node in gone:
        state = f"not ready for {format_duration(node.silent_seconds)}"
        for card in node.cards:
            row = _card_row(node, card)
            yield (*row[:free], "-", *row[free + 1 : -1], state)


def _left_lines(gone: Iterable[cluster_pb2.PoolNode], width: int | None) -> list[str]:
    """Returns lines about the leases that nodes had when they went; no lines if they had none."""
    rows = [
        _lease_row(node, card, one, f"not heard of for {format_duration(node.silent_seconds)}")
        for node in gone
        for card in node.cards
        for one in card.leases
    ]
    return ["", fitting(_LEFT_TITLES, rows, _LEFT_DROPPED, width)] if rows else []


def _smaller_rows(nodes: Iterable[cluster_pb2.PoolNode]) -> Iterator[tuple[str, ...]]:
    """Yields the leases that have less than they asked for, and those that end soon."""
    for node in nodes:
        for card in node.cards:
            for one in card.leases:
                ends = one.HasField("ends_seconds")
                share = max(one.wanted_ppm, one.share_ppm)
                memory = max(one.wanted_bytes, one.memory_bytes)
                if (share, memory) != (one.share_ppm, one.memory_bytes) or ends:
                    yield (
                        short_id(one.request_id),
                        one.name,
                        one.tenant,
                        f"{node.name}/{card.ordinal}",
                        format_share(one.share_ppm),
                        format_share(share),
                        format_bytes(one.memory_bytes),
                        format_bytes(memory),
                        format_duration(one.ends_seconds) if ends else "",
                    )


def _standing(node: cluster_pb2.PoolNode) -> str:
    words = {"drain": "draining", "stale": "not connected"}
    said = [words.get(taint, taint) for taint in node.taints]
    if not node.connected and "not connected" not in said:
        said.append("not connected")
    return ", ".join(said) or "ready"


def _reservation_row(one: cluster_pb2.PoolReservation) -> tuple[str, ...]:
    return (
        one.request_id,
        one.tenant,
        one.node,
        ",".join(map(str, one.ordinals)),
        "whole" if one.whole else format_share(one.share_ppm),
        format_bytes(one.memory_bytes),
        format_duration(one.left_seconds),
        "ready" if one.connected else "not connected",
    )


def _waiting_row(one: cluster_pb2.PoolWaiting) -> tuple[str, ...]:
    return (
        short_id(one.request_id),
        one.name,
        one.tenant,
        one.asked,
        format_seconds(one.waited_seconds),
        one.sentence,
    )


def _path_row(path: cluster_pb2.PoolPath) -> tuple[str, ...]:
    return (
        path.client_rack or "-",
        path.client_nic or "-",
        path.server_rack or "-",
        path.server_nic or "-",
        f"{path.round_trip_ns / 1000:.0f} us",
        _rate(path.up_rate),
        _rate(path.down_rate),
        path.transport,
        format_seconds(path.age_seconds) + (", doubted" if path.doubted else ""),
    )


def _rate(per_second: int) -> str:
    """Returns a rate that is not 0 although it is small."""
    if per_second < 10e6:
        return f"{per_second / 1e3:.0f} kB/s"
    return f"{per_second / 1e6:.0f} MB/s"


def _print_events(events: Iterable[cluster_pb2.ClusterEvent], in_json: bool) -> int:
    found = list(events)
    if in_json:
        print(as_json({"events": found}))
        return OK
    rows = [
        (
            str(event.number),
            format_time(event.at, "%H:%M:%S", utc=True),
            event.kind,
            event.node,
            short_id(event.request_id),
            event.name,
            event.sentence,
        )
        for event in found
    ]
    print(table(_EVENT_TITLES, rows))
    return OK


# rgpu explain


def explained(answer: cluster_pb2.ExplainResponse) -> str:
    """Returns an explanation as text."""
    lines = [f"request {answer.request_id}: {answer.state}"]
    if answer.asked:
        again = f", attempt {answer.attempt}" if answer.attempt > 1 else ""
        ago = format_seconds(answer.age_seconds)
        lines.append(f"asked for: {answer.asked} (decided {ago} ago{again})")
    lines.append(f"{'chosen' if answer.HasField('chosen') else 'not placed'}: {answer.sentence}")
    lines += [f"made room: {sentence}" for sentence in answer.gives]
    # Tables do the same for their cells.
    lines = [one_line(line) for line in lines]
    if answer.HasField("chosen"):
        rows = [_place_row(one) for one in (answer.chosen, *answer.others)]
        lines += ["", "places, best first (scores in percent of a card):"]
        lines.append(table(_PLACE_TITLES, rows))
    if answer.excluded:
        lines += ["", "excluded cards:"]
        rows = [(str(one.cards), f"each {one.reason}") for one in answer.excluded]
        lines.append(table(("cards>", "because"), rows))
    return "\n".join(lines)


def _place_row(one: cluster_pb2.Alternative) -> tuple[str, ...]:
    score = one.score
    terms = (
        *(score.total, score.network, score.fragmentation),
        *(score.borrowing, score.crowding, score.mode),
    )
    mark = "" if one.measured or not one.slowdown_ppm else " (estimated)"
    return (
        f"{', '.join(one.cards)} ({_REACH.get(one.reach, '?')})",
        *(f"{term * 100 / PPM:.2f}" for term in terms),
        f"{one.slowdown_ppm * 100 / PPM:.1f}%{mark}",
        str(one.equal),
    )


pool = Command("pool", "show the nodes and cards of a cluster", _configure_pool, _pool)
