"""The page of a manager: nodes, cards, who is where, the queue, and how a request was decided."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers.credentials import Keys, make_keys
from helpers.credentials import keys as keys
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, start, started, where
from helpers.waiting import wait_until

from web_page.asking import asked, bearer, ordered, state
from web_page.browser import Visitor, address, window


@pytest.fixture(scope="module")
def manager(keys: Keys) -> Iterator[ManagerProcess]:
    """A manager of two nodes that knows callers by tokens, and believes this machine's own."""
    identity = keys.path.with_name("manager.toml")
    identity.write_text(f'[identity]\ntokens = "{keys.path}"\noperators = ["ops"]\n')
    token = keys.path.with_name("nodes.token")
    token.write_text(keys.add("nodes")[0])
    token.chmod(0o600)
    ops = keys.path.with_name("ops.token")
    ops.write_text(keys.ops)
    ops.chmod(0o600)
    words = ("--config", str(identity), "--web", "127.0.0.1:0")
    with (
        ManagerProcess(*words, RGPU_TOKEN_FILE=str(ops)) as running,
        Nodes(running, {"gpu1": "r1", "gpu2": "r2"}, "emulated:2GiB", "--join-token", str(token)),
    ):
        yield running


@pytest.fixture
def page(manager: ManagerProcess, keys: Keys, visitor: Visitor) -> Visitor:
    sign_in(manager, visitor, keys.ops)
    return visitor


def sign_in(manager: ManagerProcess, visitor: Visitor, token: str) -> None:
    visitor.open(address(manager.log))
    visitor.page.get_by_role("button", name="Sign in").click()
    visitor.page.get_by_label("Access token").fill(token)
    visitor.page.get_by_role("button", name="Sign in").click()
    visitor.page.get_by_role("button", name="Sign out").wait_for()


def tokens(keys: Keys, tenant: str) -> dict[str, str]:
    path = keys.path.with_name(f"{tenant}.token")
    path.write_text(getattr(keys, tenant))
    path.chmod(0o600)
    return {"RGPU_TOKEN_FILE": str(path)}


@pytest.mark.full
def test_the_cluster_and_who_is_where(
    manager: ManagerProcess, keys: Keys, page: Visitor, browser: Any
) -> None:
    with ExitStack() as stack:
        alice = stack.enter_context(
            started(manager.address, "-v", "--share", "60%", "--memory", "256MiB",
                    **tokens(keys, "alice"))
        )  # fmt: skip
        node, request = where(alice)
        page.row("Nodes", "gpu1").filter(has_text="ready").wait_for()
        page.row("Nodes", "gpu2").filter(has_text="r2").wait_for()
        page.row("Cards", f"{node}/0").filter(has_text=request).filter(has_text="alice").wait_for()
        bob = stack.enter_context(
            start(manager.address, "-v", "--share", "90%", "--wait", **tokens(keys, "bob"))
        )
        _, second = where(bob)
        third = start(manager.address, "--share", "90%", "--wait", **tokens(keys, "bob"))
        stack.callback(third.communicate)
        stack.callback(third.kill)
        page.page.get_by_role("link", name="1 waiting for cards").wait_for()
        page.picture("web-cluster")
        with window(browser) as other:
            sign_in(manager, other, keys.bob)
            other.row("Cards", second).wait_for()
            other.row("Cards", f"{node}/0").filter(has_text="1 of other tenants").wait_for()
            assert request not in str(other.page.content())
        check_what_another_tenant_may(manager, keys, request)
        page.go("Queue")
        page.row("Queue", "bob").filter(has_text="cards cannot be used").wait_for()
        check_decision(page, request, node)
        page.order("End")
        page.says(f"{request} was taken back")
        wait_until(lambda: request not in manager.leases())
        page.go("Events")
        page.row("Events", "withdrawn").filter(has_text=request).wait_for()
        stack.callback(bob.kill)
    wait_until(lambda: '"order":"withdraw"' in "".join(manager.log))


def check_what_another_tenant_may(manager: ManagerProcess, keys: Keys, request: str) -> None:
    seen = json.dumps(state(manager, keys.bob))
    assert request not in seen
    assert "alice" not in seen
    explained = asked(manager, "GET", f"/api/explain?request={request}", **bearer(keys.bob))
    assert explained.status in (403, 404)
    for order in ("withdraw", "release"):
        answer = ordered(manager, order, keys.bob, request=request)
        assert answer.status in (403, 404), answer.text
    assert request in manager.leases()


def check_decision(page: Visitor, request: str, node: str) -> None:
    page.go("Nodes and cards")
    page.page.get_by_role("link", name=request).click()
    page.page.get_by_role("heading", level=1, name=re.compile(request)).wait_for()
    page.row("Chosen place", f"{node}/0").wait_for()
    page.table("Other possible places").wait_for()
    page.row("Events", "placed").wait_for()
    page.picture("web-decision")


def test_measured_paths_are_listed(page: Visitor) -> None:
    page.go("Paths")
    page.row("Paths", re.compile("rack r[12].*rack r[12].*(µs|ms)")).first.wait_for()


def test_a_stranger_sees_the_form_alone(
    tmp_path_factory: pytest.TempPathFactory, visitor: Visitor
) -> None:
    keys = make_keys(tmp_path_factory.mktemp("strict") / "tokens.toml")
    config = keys.path.with_name("manager.toml")
    config.write_text(f'[identity]\ntokens = "{keys.path}"\nrequire = "always"\n')
    with ManagerProcess("--config", str(config), "--web", "127.0.0.1:0") as strict:
        visitor.page.goto(address(strict.log))
        visitor.page.get_by_role("heading", name="Sign in").wait_for()
        # In words of a page, and of this page.
        said = visitor.page.get_by_role("alert").inner_text()
        assert said == (
            "this manager shows nothing without an access token; if you have none, ask the "
            "manager's operator for one"
        )
        field = visitor.page.get_by_label("Access token").bounding_box()
        text = visitor.page.get_by_text("Access token", exact=True).evaluate(
            "label => { const range = document.createRange(); range.selectNode(label.firstChild); "
            "return range.getBoundingClientRect().right; }"
        )
        assert field is not None
        assert field["x"] - text >= 4
        visitor.page.get_by_label("Access token").fill("rgpu_wrong")
        visitor.page.get_by_role("button", name="Sign in").click()
        wrong = visitor.page.get_by_role("alert").filter(has_text="is wrong, was revoked")
        wrong.wait_for()
        visitor.picture("web-sign-in")
        visitor.page.get_by_label("Access token").fill(keys.alice)
        visitor.page.get_by_role("button", name="Sign in").click()
        visitor.page.locator(".link.live").wait_for()
        visitor.page.get_by_text("alice").first.wait_for()
