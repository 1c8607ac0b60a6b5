"""What `rgpu pool`, `rgpu lease list` and `rgpu ps` print with --json, asked for in this process.

Tests ask again and again. Starting the command takes a hundred times the processor time of the
answer. `tests/cli/test_json.py` runs the commands themselves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import grpc

from rgpu_client.control import ControlClient
from rgpu_client.settings import configured_server
from rgpu_common.channels import open_channel
from rgpu_common.credentials import call_metadata
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.tables import as_json, message_json
from rgpu_common.v1 import cluster_pb2, cluster_pb2_grpc

_SECONDS = 60


def pool_of(manager: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns what `rgpu pool --json` prints. environment: has the token and the certificates."""
    return dict(_asked(manager, environment, "GetPool", cluster_pb2.GetPoolRequest()))


def events_of(manager: str, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Returns the events that `rgpu pool --events --json` prints."""
    answer = _asked(manager, environment, "ListEvents", cluster_pb2.ListEventsRequest())
    return list(answer["events"])


def release_all(manager: str, environment: Mapping[str, str]) -> None:
    """Releases all reservations, as `rgpu release` does. One may end meanwhile."""
    for one in pool_of(manager, environment)["reservations"]:
        request = cluster_pb2.ReservationRequest(
            reservation=one["request_id"], tenant=one["tenant"]
        )
        with suppress(grpc.RpcError):
            _asked(manager, environment, "Release", request)


def leases_of(server: str) -> list[dict[str, Any]]:
    """Returns the leases that `rgpu lease list --json` prints."""
    with _client(server) as client:
        found: list[dict[str, Any]] = json.loads(as_json({"leases": client.leases()}))["leases"]
    return found


def running_on(server: str) -> dict[str, Any]:
    """Returns what `rgpu ps --json` prints, without the claims in line."""
    with _client(server) as client:
        groups = {"sessions": client.sessions(), "leases": client.usage()}
    return dict(json.loads(as_json(groups)))


def passing_at(server: str) -> set[str]:
    """Returns a word for each thing at a server that ends with a program: its session, its run's
    lease, and its claim in line. Other leases end by an order, or after a time, and sessions of
    this process with the module of a library.

    server: the path of its Unix socket, where its own user is let in without proof.
    """
    with ControlClient(parse_endpoint(server), _SECONDS, {}) as client:
        running = client.running()
        leases = [one for one in client.leases() if one.key.startswith("run-")]
    return {
        *(
            f"session {one.session_id} of {one.program}"
            for one in running.sessions
            if one.client_pid != os.getpid()
        ),
        *(f"claim {one.claim} of {one.name} in line" for one in running.waiting),
        *(f"lease {one.key} of {one.name}" for one in leases),
    }


def passing_in(pool: Mapping[str, Any]) -> set[str]:
    """Returns a word for each thing in a manager's pool that ends with a program, or when a server
    has said that it is as before. pool: what `pool_of` has returned.

    Nodes that are cut off are left out: what they have stays until they are given up.
    """
    nodes = [node for node in pool["nodes"] if node["connected"]]
    placed = [
        f"lease {lease['request_id']} on {node['name']}"
        for node in nodes
        for card in node["cards"]
        for lease in card["leases"]
        if lease["request_id"].startswith("run-")
    ]
    return {
        *placed,
        *(f"request {one['request_id']} in line" for one in pool["waiting"]),
        *(f"{taint} at {one['name']}" for one in nodes for taint in one["taints"]),
    }


def _asked(manager: str, environment: Mapping[str, str], method: str, request: Any) -> Any:
    """Opens a connection for each question: a kept one would wait before it connects again to a
    manager that was killed.
    """
    with open_channel(parse_endpoint(manager), environment) as channel:
        stub = cluster_pb2_grpc.ManagerServiceStub(channel)
        metadata = call_metadata(environment)
        answer = getattr(stub, method)(request, timeout=_SECONDS, metadata=metadata)
    return json.loads(message_json(answer))


def _client(server: str) -> ControlClient:
    return ControlClient(configured_server(server, os.environ), timeout_seconds=_SECONDS)
