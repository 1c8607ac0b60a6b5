"""Who waits longest comes first: the manager's own record decides, not what a client says."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers.command import run_rgpu
from helpers.manager import ManagerProcess, node
from helpers.nodes import check_end, started, where
from helpers.waiting import wait_until

from rgpu_common.v1 import cluster_pb2, cluster_pb2_grpc, lease_pb2

_SECONDS = 120


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ManagerProcess]:
    """A manager with a tokens file, which believes callers of this machine, and one node."""
    tokens, config = tmp_path / "tokens.toml", tmp_path / "rgpu.toml"
    run_rgpu("token", "new", "alice", "--tokens", str(tokens))
    config.write_text('[identity]\nrequire = "never"\n')
    with (
        ManagerProcess("--tokens", str(tokens), "--config", str(config)) as running,
        node(running.address, "gpu1", tmp_path / "gpu1"),
    ):
        running.has("gpu1")
        yield running


def ask(tenant: str) -> cluster_pb2.SubmitRequest:
    """A request for more than half of the card, which waits."""
    return cluster_pb2.SubmitRequest(
        request_id=f"run-{secrets.token_hex(16)}",
        tenant=tenant,
        quota=lease_pb2.Quota(memory_bytes=1 << 20, share_request_ppm=600_000),
        wait=True,
    )


def stub_of(channel: grpc.Channel) -> Any:
    return cluster_pb2_grpc.ManagerServiceStub(channel)


def placed_first(call: Any, manager: ManagerProcess) -> set[str]:
    """Returns the tenants that still wait when the request of a call is placed."""
    assert any(state.HasField("placed") for state in call)
    return {one["tenant"] for one in manager.pool()["waiting"]}


def test_a_clients_own_word_of_its_wait_counts_for_nothing(manager: ManagerProcess) -> None:
    with grpc.insecure_channel(manager.address) as channel:
        stub = stub_of(channel)
        with started(manager.address, "-v", "--share", "90%") as full:
            where(full)
            patient = stub.Submit(ask("alice"), timeout=_SECONDS)
            assert next(patient).HasField("waiting")
            boasts = ask("bob")
            # Field 18 was `waited_seconds`, a double.
            boasts.MergeFromString(b"\x91\x01" + struct.pack("<d", 86400.0))
            other = stub.Submit(boasts, timeout=_SECONDS)
            assert next(other).HasField("waiting")
            check_end(full, "right")
        assert placed_first(patient, manager) == {"bob"}
        other.cancel()


def test_a_manager_that_was_started_again_keeps_the_order(manager: ManagerProcess) -> None:
    """Its clients show their tickets, the one that has waited longest last."""
    asked = {tenant: ask(tenant) for tenant in ("alice", "bob")}
    with started(manager.address, "-v", "--share", "90%") as full:
        where(full)
        with grpc.insecure_channel(manager.address) as channel:
            for request in asked.values():
                state = next(stub_of(channel).Submit(request, timeout=_SECONDS))
                request.ticket = state.waiting.ticket
                assert request.ticket
        manager.restart()
        manager.has("gpu1")
        wait_until(lambda: bool(manager.leases()))
        with grpc.insecure_channel(manager.address) as channel:
            calls = {}
            for tenant in ("bob", "alice"):
                calls[tenant] = stub_of(channel).Submit(asked[tenant], timeout=_SECONDS)
                assert next(calls[tenant]).HasField("waiting")
            check_end(full, "right")
            assert placed_first(calls["alice"], manager) == {"bob"}
            calls["bob"].cancel()
