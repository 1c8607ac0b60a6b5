"""Leases for the extender from a manager's shell: granted, denied, silent, and given back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cluster.samples import GIB, node
from helpers.granting_link import shell_of

from rgpu_cluster.core import events as on
from rgpu_cluster.core.card import Holding
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Client, Mode, Request
from rgpu_cluster.kubernetes.granting import ManagerCluster
from rgpu_cluster.kubernetes.legacy.asked import Asked, request_of
from rgpu_cluster.manager.config import load_manager_config
from rgpu_common.errors import UsageError

UID = "0b3f7a52-62b5-4a52-9d56-4a0d6f7d5a01"


def wish(core: int = 40, where: str = "") -> Request:
    return request_of(
        Asked("c", "x", core=core, memory_bytes=GIB), UID, "team", Client(where), Mode.ANY
    )


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 20))


def test_a_lease_is_granted_and_asked_again_is_the_same() -> None:
    async def work() -> None:
        shell, daemon = shell_of()
        cluster = ManagerCluster(shell)
        told = await cluster.grant(wish())
        assert told == {
            "rgpu.dev/server": "gpu-1:7700",
            "rgpu.dev/lease": UID,
            "rgpu.dev/device": "0",
        }
        assert await cluster.grant(wish()) == told
        assert daemon.ordered.count("grant") == 1
        cluster.release(UID)
        await asyncio.sleep(0)
        assert "revoke" in daemon.ordered
        cluster.release(UID)

    run(work())


def test_what_has_no_room_is_denied_with_the_managers_sentence() -> None:
    async def work() -> None:
        shell, _ = shell_of()
        one = node("gpu-1", address="gpu-1:7700", memory=16 * GIB, generation=2)
        held = Holding("other", "team", 900_000, GIB)
        shell.feed(on.NodeReported(one, {one.cards[0].id: (held,)}))
        with pytest.raises(RequestError, match="too little guaranteed device time left"):
            await ManagerCluster(shell).grant(wish())

    run(work())


def test_a_silent_daemon_is_not_waited_for_longer() -> None:
    async def work() -> None:
        shell, daemon = shell_of()
        daemon.silent = True
        cluster = ManagerCluster(shell, seconds=0.05)
        with pytest.raises(RequestError, match="no daemon granted the pod's card within"):
            await cluster.grant(wish())
        cluster.release(UID)
        assert shell.state(UID) in ("gone", "ending")
        assert not cluster._waiting

    run(work())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('extender = "127.0.0.1:7444"', "add --kubernetes"),
        ('serve = true\nextender = "0.0.0.0:7444"', "who can ask it can bind pods"),
        ('serve = true\nextender = "127.0.0.1:7444"\nextender_key = "/x"', "belong together"),
    ],
)
def test_an_extender_that_anybody_could_ask_is_refused(
    tmp_path: Path, text: str, sentence: str
) -> None:
    file = tmp_path / "manager.toml"
    file.write_text(f"[kubernetes]\n{text}\n")
    with pytest.raises(UsageError, match=sentence):
        load_manager_config(file, {})


def test_an_extender_on_this_machine_needs_no_certificate(tmp_path: Path) -> None:
    file = tmp_path / "manager.toml"
    file.write_text(
        '[kubernetes]\nserve = true\nextender = "127.0.0.1:7444"\nextender_reach = "local"\n'
    )
    keys = load_manager_config(file, {}).kubernetes
    assert keys.extender_reach is Mode.LOCAL
