"""Which servers a command asks: the one that the user named, or the nodes of a cluster."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from netprobe.candidates import is_explicit
from rgpu_client.cluster.placing import manager_of
from rgpu_client.settings import API_SERVER_HELP, SILENT_REMEDY, SILENT_SECONDS, configured_server
from rgpu_common.command import FAILED, OK
from rgpu_common.credentials import check_secured, credentials_for
from rgpu_common.endpoints import UcxEndpoint, parse_endpoint, speaks_tls
from rgpu_common.errors import NotThereError, RgpuError, ServerError, SilentError, UsageError
from rgpu_common.tables import plain_message
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from rgpu_client.control import ControlClient
    from rgpu_common.endpoints import Endpoint
    from rgpu_common.v1 import cluster_pb2

    Opened = Callable[["Server"], AbstractContextManager[ControlClient]]

T = TypeVar("T")
# How many nodes are asked at the same time: each takes a thread and a descriptor.
_AT_ONCE = 128
_MOST_NAMED = 12
# As `rgpu_common.clusters.is_node_name` has it.
_MOST_NAME = 63


class Server(Struct, frozen=True):
    """A server that is asked. node: its name in the cluster; "" if the user named its address.
    secured: its manager was asked over TLS. explicit: the user named a path, not only a server.
    """

    address: str
    node: str = ""
    secured: bool = False
    explicit: bool = False

    def __str__(self) -> str:
        return f"node {self.node}" if self.node else f"the server at {self.address}"

    @property
    def endpoint(self) -> Endpoint:
        """Returns its address."""
        return parse_endpoint(self.address)

    def client(self, seconds: float | None = None) -> ControlClient:
        """Returns a connection to its API; ServerError if its address has none, or is one to which
        no access token may go.

        seconds: how long it may take to answer.
        """
        from rgpu_client.control import TIMEOUT_SECONDS, ControlClient

        endpoint = self.endpoint
        if isinstance(endpoint, UcxEndpoint):
            raise ServerError(
                f"{self.address} carries sessions only: give the server another address with "
                "--advertise"
            )
        environment = credentials_for(self.address, os.environ)
        if self.secured:
            check_secured(endpoint, environment, str(self))
        return ControlClient(
            endpoint, seconds or TIMEOUT_SECONDS, environment, explicit=self.explicit
        )

    @contextlib.contextmanager
    def asking(self) -> Iterator[ControlClient]:
        """Yields a connection to its API. Of a node of a cluster each refusal says which it is."""
        try:
            with self.client() as client:
                yield client
        except ServerError as error:
            if not self.node:
                raise
            raise type(error)(f"{self}: {error}") from None


def _opened(server: Server) -> AbstractContextManager[ControlClient]:
    return server.client()


@dataclass(frozen=True, slots=True)
class Answered(Generic[T]):
    """What one server has answered, or why it has not. wrong: it should have answered. silent: it
    has said nothing in its time.
    """

    server: Server
    answer: T | None = None
    failure: str = ""
    wrong: bool = False
    silent: bool = False


def _silence(server: Server, seconds: float) -> str:
    return (
        f"the server at {server.address} did not answer within the {seconds:g} s that all nodes "
        f"have together{SILENT_REMEDY}"
    )


def _together(
    servers: Sequence[Server], answered: Callable[[Server, float], Answered[T]], seconds: float
) -> list[Answered[T]]:
    """Returns what each server has answered, after `seconds` at most.

    Silent servers keep those behind them from being asked, so the servers of a cluster with more of
    them than are asked at a time have a part of the seconds each. Those that were silent then are
    asked again in the part that is left, so that one that is only slow answers.

    answered: asks a server, which has so many seconds.
    """
    until = time.monotonic() + seconds
    found: dict[Server, Answered[T]] = {}
    again: Sequence[Server] = servers
    for left in (1, 0):
        turns = math.ceil(len(again) / _AT_ONCE)
        if not turns:
            break
        patience = max(until - time.monotonic(), 0.0) / (turns + left * (turns > 1))
        with ThreadPoolExecutor(min(len(again), _AT_ONCE)) as threads:
            for one in threads.map(answered, again, repeat(patience)):
                found[one.server] = one
        again = [server for server in again if found[server].silent] if turns > 1 else ()
    return list(found.values())


class Servers(Struct, frozen=True):
    """The servers that a command asks.

    name: the address of the server, or of the manager. pool: what the manager said. whole: these
    are the nodes of a cluster, so each row says of which node it is. absent: the nodes that are not
    connected to their manager. manager: its address; "": none was asked.
    """

    name: str
    asked: tuple[Server, ...]
    pool: cluster_pb2.GetPoolResponse | None = None
    whole: bool = False
    absent: tuple[Server, ...] = ()
    manager: str = ""

    def ask(
        self,
        question: Callable[[ControlClient], T],
        opened: Opened = _opened,
        seconds: float = SILENT_SECONDS,
    ) -> Answers[T]:
        """Asks all servers the same, at the same time. One that fails does not hide the others.

        opened: gives a server's connection for the time of a question. seconds: how long all nodes
        of a cluster have together to answer; those that have not count as silent.

        Raises:
            ServerError: the only server does not answer.
        """
        if not self.whole:
            (server,) = self.asked
            with opened(server) as client:
                return Answers(self, (Answered(server, question(client)),))

        def answered(server: Server, patience: float) -> Answered[T]:
            try:
                with opened(server) as client:
                    client.give_up_after(patience)
                    return Answered(server, question(client))
            except SilentError:
                return Answered(server, None, _silence(server, seconds), wrong=True, silent=True)
            except RgpuError as error:
                return Answered(server, None, str(error), wrong=True)

        away: list[Answered[T]] = [
            Answered(one, None, "it is not connected to its manager") for one in self.absent
        ]
        found = _together(self.asked, answered, seconds)
        rows = sorted((*found, *away), key=lambda one: one.server.node)
        return Answers(self, tuple(rows))

    def titles(self, titles: Sequence[str]) -> tuple[str, ...]:
        """Returns a table's titles, with the node's if the rows are of several."""
        return ("node", *titles) if self.whole else tuple(titles)

    def cells(self, server: Server, cells: Iterable[str]) -> tuple[str, ...]:
        """Returns a row below `titles`."""
        return (server.node, *cells) if self.whole else tuple(cells)


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What the servers have answered, by the names of their nodes."""

    servers: Servers
    rows: tuple[Answered[T], ...]

    def __iter__(self) -> Any:
        """Yields each server that has answered, with its answer."""
        for one in self.rows:
            if one.answer is not None:
                yield one.server, one.answer

    def complain(self) -> int:
        """Says on stderr which nodes have not answered. Returns the command's exit code."""
        silent = [one for one in self.rows if one.failure]
        for one in silent:
            print(one_line(f"rgpu: {one.server}: {one.failure}"), file=sys.stderr)
        return FAILED if any(one.wrong for one in silent) else OK

    def plain(self, answer: Callable[[T], dict[str, Any]] = plain_message) -> dict[str, Any]:
        """Returns the answers for JSON: one server's as it is, else a row for each node.

        answer: turns one server's answer into what is printed.
        """
        if not self.servers.whole:
            return next(answer(found) for _, found in self)
        return {
            "nodes": [
                {
                    "node": one.server.node,
                    "server": one.server.address,
                    "failure": one_line(one.failure) or None,
                    "answer": None if one.answer is None else answer(one.answer),
                }
                for one in self.rows
            ]
        }


def add_servers(parser: argparse.ArgumentParser, *, by_name: bool = False) -> None:
    """Adds the options that say which servers are asked.

    by_name: the node is an argument of the command, as in `rgpu drain gpu1`.
    """
    parser.add_argument("--server", metavar="ADDRESS", help=API_SERVER_HELP)
    parser.add_argument(
        "--manager",
        metavar="HOST:PORT",
        help="the manager of the cluster (default: RGPU_MANAGER)",
    )
    if by_name:
        parser.add_argument("node", metavar="NODE", nargs="?", help="the node of the cluster")
    else:
        parser.add_argument("--node", metavar="NAME", help="only this node of the cluster")


def servers_of(arguments: argparse.Namespace) -> Servers:
    """Returns the servers that the options name, else those that the environment names.

    A server's name counts before a manager's, as in `rgpu run`.

    Raises:
        UsageError: the options contradict each other.
        ServerError: the manager does not answer.
        NotThereError: the cluster has no node of that name.
    """
    option, node = arguments.manager, arguments.node
    if arguments.server and (option or node):
        raise UsageError("--server names the server already: leave out the manager and the node")
    by_name = arguments.server or (os.environ.get("RGPU_SERVER") if not (option or node) else None)
    manager = None if by_name else manager_of(option, os.environ)
    if manager is None:
        if node:
            raise UsageError(
                f"node {node!r} is of a cluster: name its manager, --manager or RGPU_MANAGER"
            )
        address = str(configured_server(arguments.server, os.environ))
        return Servers(address, (Server(address, explicit=is_explicit(by_name or "")),))
    whole = nodes_of(manager)
    if node and whole.pool is not None:
        server = _connected(_named(whole.pool, node), manager)
        return Servers(server.address, (server,), whole.pool, manager=str(manager))
    return whole


def nodes_of(manager: Endpoint) -> Servers:
    """Returns the nodes of a manager's cluster; ServerError: it does not answer."""
    from rgpu_client.cluster.asking import ManagerClient

    with ManagerClient(manager) as client:
        pool = client.pool()
    there = [(_server(one, manager), one.connected) for one in pool.nodes]
    return Servers(
        str(manager),
        tuple(server for server, connected in there if connected),
        pool,
        True,
        tuple(server for server, connected in there if not connected),
        str(manager),
    )


def default_servers() -> Servers:
    """Returns the servers that the environment names. Errors as `servers_of`."""
    return servers_of(argparse.Namespace(server=None, manager=None, node=None))


def only_server(servers: Servers, what: str) -> Server:
    """Returns the server of a command that changes one; UsageError: a cluster has several.

    what: what is to be done with it, as in "drain".
    """
    if servers.whole:
        assert servers.pool is not None
        raise UsageError(f"say which node to {what}: {_names(servers.pool)}")
    return servers.asked[0]


def _named(pool: cluster_pb2.GetPoolResponse, name: str) -> cluster_pb2.PoolNode:
    """Returns the node of this name; NotThereError. How a name begins is none: `gpu1` would drain
    gpu10 when gpu1 has gone.
    """
    found = next((one for one in pool.nodes if one.name == name), None)
    if found is None:
        raise NotThereError(f"there is no node {name!r}: name one of {_names(pool)}")
    return found


def _server(node: cluster_pb2.PoolNode, manager: Endpoint) -> Server:
    return Server(node.address, one_line(node.name, _MOST_NAME), speaks_tls(manager))


def _connected(node: cluster_pb2.PoolNode, manager: Endpoint) -> Server:
    if not node.connected:
        raise ServerError(
            f"node {node.name} is not connected to its manager: start its server again, or look at "
            "that server's log"
        )
    return _server(node, manager)


def _names(pool: cluster_pb2.GetPoolResponse) -> str:
    names = [one.name for one in pool.nodes]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more if names else "no node has joined"
