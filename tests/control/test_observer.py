"""The observer reads the server and changes nothing; the API's changes go through `Control`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rgpu_server.core import actions as do
from rgpu_server.core.model import Wish
from rgpu_server.core.node import Node
from rgpu_server.observe.snapshot import Observer
from rgpu_server.service.control import Control

pytestmark = pytest.mark.asyncio
Serve = Callable[..., Any]
GIB = 1 << 30
# The readers that need to be told of which lease.
OF_A_LEASE = (
    "lease", "tenant_of", "held_bytes", "compiling", "seams", "used_bytes", "time_used", "processes",
    "remaining_seconds",
)  # fmt: skip


def granted(control: Control) -> str:
    """Grants alice a lease, and returns its id."""
    answer = control.grant("alice", "a", Wish(memory_bytes=GIB), 60.0, passes_line=False)
    assert isinstance(answer, do.Answer)
    return answer.lease


def readings(observer: Observer, lease: str) -> dict[str, Any]:
    """Calls every public name of the observer; returns name -> result."""
    names = [name for name in dir(observer) if not name.startswith("_")]
    return {
        name: getattr(observer, name)(*([lease] if name in OF_A_LEASE else [])) for name in names
    }


async def test_an_observer_hands_the_node_no_event(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every public name of the observer is a reader, and no reader makes the node do anything."""
    handled: list[object] = []

    def handle(_node: Node, event: object, _now: float) -> list[do.Action]:
        handled.append(event)
        return []

    async with serve() as server:
        lease = granted(Control(server.daemon.conductor))
        with monkeypatch.context() as patch:
            patch.setattr(Node, "handle", handle)
            read = readings(server.daemon.observer, lease)
        assert handled == []
        assert [view.lease.id for view in read["leases"]] == [lease]
        assert read["tenant_of"] == "alice"


async def test_a_change_through_control_is_seen_by_the_observer(serve: Serve) -> None:
    async with serve() as server:
        control, observer = Control(server.daemon.conductor), server.daemon.observer
        lease = granted(control)
        control.pause(lease, True, by_operator=True)
        view = observer.lease(lease)
        assert view is not None
        assert view.lease.paused
        control.drain(None)
        assert observer.node().draining
        control.undrain()
        assert not observer.node().draining
