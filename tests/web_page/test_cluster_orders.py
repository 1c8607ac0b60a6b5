"""What operators order on a manager's page, and what the page shows on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers.credentials import Keys
from helpers.credentials import keys as keys
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, start, started, where
from helpers.waiting import wait_until

from web_page.asking import ordered
from web_page.browser import Visitor, window
from web_page.test_cluster import sign_in, tokens

NARROW = {"viewport": {"width": 390, "height": 844}}


@pytest.fixture(scope="module")
def nodes(keys: Keys) -> Iterator[Nodes]:
    """A manager of two nodes that knows callers by tokens."""
    config = keys.path.with_name("manager.toml")
    config.write_text(
        f'[identity]\ntokens = "{keys.path}"\noperators = ["ops"]\n[nodes]\nsilence_seconds = 6.0\n'
    )
    token = keys.path.with_name("nodes.token")
    token.write_text(keys.add("nodes")[0])
    token.chmod(0o600)
    ops = tokens(keys, "ops")
    with (
        ManagerProcess("--config", str(config), "--web", "127.0.0.1:0", **ops) as manager,
        Nodes(
            manager, {"gpu1": "r1", "gpu2": "r2"}, "emulated:2GiB", "--join-token", str(token)
        ) as running,
    ):
        yield running


def drains(manager: ManagerProcess, name: str) -> bool:
    """Returns whether the manager has heard that a node drains."""
    (node,) = [one for one in manager.pool()["nodes"] if one["name"] == name]
    return "drain" in node["taints"]


def test_an_operator_drains_a_node(nodes: Nodes, keys: Keys, visitor: Visitor) -> None:
    manager = nodes.manager
    sign_in(manager, visitor, keys.ops)
    visitor.row("Nodes", "gpu2").get_by_role("button", name="Drain").click()
    dialog = visitor.page.get_by_role("dialog")
    dialog.get_by_role("heading", name="Drain gpu2?").wait_for()
    dialog.get_by_role("button", name="Drain").click()
    visitor.says("gpu2 takes nothing new; what runs goes on until it ends by itself")
    visitor.row("Nodes", "gpu2").filter(has_text="drain").wait_for()
    assert drains(manager, "gpu2")
    assert not drains(manager, "gpu1")
    visitor.row("Nodes", "gpu2").get_by_role("button", name="Undrain").click()
    visitor.page.get_by_role("dialog").get_by_role("button", name="Undrain").click()
    visitor.says("gpu2 takes new leases and sessions")
    wait_until(lambda: not drains(manager, "gpu2"))


def test_only_an_operator_drains_a_node_that_is_connected(nodes: Nodes, keys: Keys) -> None:
    manager = nodes.manager
    for order in ("drain", "undrain"):
        assert ordered(manager, order, keys.alice, node="gpu1").status == 403
        assert ordered(manager, order, keys.ops, node="gpu9").status == 409
        assert ordered(manager, order, keys.ops).status == 400
    assert ordered(manager, "drain", keys.ops, node="gpu1", end_after_seconds=-1).status == 400
    assert not drains(manager, "gpu1")


def test_a_narrow_screen_shows_why_a_request_waits_and_who_is_where(
    nodes: Nodes, keys: Keys, browser: Any
) -> None:
    manager = nodes.manager
    with ExitStack() as stack:
        alice = stack.enter_context(
            started(manager.address, "-v", "--share", "60%", "--memory", "256MiB",
                    **tokens(keys, "alice"))
        )  # fmt: skip
        node, request = where(alice)
        for _ in range(2):
            run = start(manager.address, "--share", "90%", "--wait", **tokens(keys, "bob"))
            stack.callback(run.communicate)
            stack.callback(run.kill)
        wait_until(lambda: len(manager.pool()["waiting"]) == 1)
        page = stack.enter_context(window(browser, **NARROW))
        sign_in(manager, page, keys.ops)
        _on_screen(page, page.row("Cards", f"{node}/0").get_by_text(request))
        _on_screen(page, page.row("Nodes", "gpu1").get_by_role("button", name="Drain"))
        page.go("Queue")
        _on_screen(page, page.row("Queue", "bob").get_by_text("cards cannot be used"))
        page.go("Events")
        _on_screen(page, page.row("Events", request).get_by_text("gpu").first)


def _on_screen(page: Visitor, what: Any) -> None:
    """Asserts that something is seen without scrolling to the side."""
    shown = what.locator("visible=true").first
    shown.wait_for()
    box = shown.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= page.page.viewport_size["width"], box


def test_a_node_that_has_gone_stays_on_the_page(nodes: Nodes, keys: Keys, visitor: Visitor) -> None:
    sign_in(nodes.manager, visitor, keys.ops)
    with started(
        nodes.manager.address, "-v", "--memory", "64MiB", **tokens(keys, "alice")
    ) as alice:
        node, request = where(alice)
        visitor.row("Cards", f"{node}/0").filter(has_text=request).wait_for()
        nodes.kill(node)
        gone = visitor.row("Nodes", node).filter(has_text="not ready for")
        gone.wait_for()
        visitor.row("Cards", f"{node}/0").filter(has_text=request).wait_for()
        assert not gone.get_by_role("button").count()
        nodes.start(node)
        visitor.row("Nodes", node).filter(has_text="ready").filter(has_text="Drain").wait_for()
        alice.kill()
