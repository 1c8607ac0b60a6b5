"""Every view of a server's page, in a browser, while programs run, wait and are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from helpers import clients
from helpers.runs import exact, run
from helpers.server import Server
from helpers.waiting import wait_until
from observe.load import Load

from web_page.browser import Visitor, address, served, window

# tenant, key, share, limit, memory, kernel in ms, idle seconds
TENANTS = (
    ("alice", "train", "0.4", "1", "1GiB", 3.0, 0.0),
    ("bob", "notebook", "0.3", "0.5", "512MiB", 3.0, 0.02),
    ("carol", "inference", "0.1", "1", "256MiB", 1.0, 0.05),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running, ExitStack() as stack:
        for tenant, key, share, limit, memory, kernel_ms, idle in TENANTS:
            load = Load(
                running.tcp, kernel_ms, idle, RGPU_TENANT=tenant, RGPU_LEASE=key, RGPU_SHARE=share,
                RGPU_LIMIT=limit, RGPU_MEMORY=memory,
            )  # fmt: skip
            stack.callback(load.close)
            load.go()
        status, _, _ = clients.run(
            running.tcp, "cuda.open()", RGPU_TENANT="dave", RGPU_MEMORY="1.5GiB"
        )
        assert status != 0
        options = ("--memory", "1GiB", "--wait", "--tenant", "erin")
        waiting = stack.enter_context(run(exact(running), *options))
        assert waiting.stderr is not None
        assert "waiting for room" in waiting.stderr.readline()
        yield running


@pytest.fixture
def page(server: Server, visitor: Visitor) -> Visitor:
    visitor.open(address(server.log))
    return visitor


def test_devices_and_leases(page: Visitor) -> None:
    device = page.page.get_by_role("article", name="0: rgpu emulated device")
    device.get_by_text("80%").first.wait_for()  # guaranteed
    for name in ("Got", "Lent", "Guaranteed", "Asked", "Waiting"):
        device.get_by_role("listitem").filter(has_text=name).first.wait_for()
    device.get_by_role("img", name=re.compile(r"Shares of device 0. Now: Got [1-9]")).wait_for()
    device.get_by_role("img", name=re.compile(r"Memory of device 0. Now: Used 192 MiB")).wait_for()
    for tenant, key, share, *_ in TENANTS:
        row = page.row("Leases", key)
        row.filter(has_text=tenant).filter(has_text=f"{float(share):.0%}").wait_for()
    page.picture("web-overview", height=1020)


def test_a_lease_and_its_sessions(page: Visitor) -> None:
    page.page.get_by_role("link", name="train").click()
    page.page.get_by_role("heading", level=1, name="Lease train").wait_for()
    main = page.page.get_by_role("main")
    main.get_by_text("40% guaranteed, 40% asked, limit 100%").wait_for()
    shares = re.compile(r"Shares of the lease. Now: Got [1-9].*Waiting")
    main.get_by_role("img", name=shares).wait_for()
    memory = re.compile("Memory of the lease. Now: Used 64 MiB, Limit 1 GiB")
    main.get_by_role("img", name=memory).wait_for()
    page.row("Events", "lease granted").filter(has_text="alice").wait_for()
    page.picture("web-lease", height=1100)
    page.table("Sessions").get_by_role("rowheader").get_by_role("link").click()
    page.page.get_by_role("heading", level=1, name=re.compile(r"Session \d+")).wait_for()
    main.get_by_text("tcp from local").wait_for()
    main.get_by_text(re.compile(r"^\d+(\.\d+)? (µs|ms)$")).wait_for()  # the round trip
    page.page.go_back()
    page.page.get_by_role("heading", level=1, name="Lease train").wait_for()


def test_sessions_have_path_round_trip_and_seam(page: Visitor) -> None:
    page.go("Sessions")
    for tenant, *_ in TENANTS:
        row = page.row("Sessions", tenant).filter(has_text="tcp").filter(has_text="driver")
        row.filter(has_text=re.compile(r"\d (µs|ms)")).wait_for()
    page.picture("web-sessions")


def test_the_queue_says_what_is_waited_for(page: Visitor) -> None:
    page.go("Queue")
    row = page.row("Queue", "erin").filter(has_text="1 of 1").filter(has_text="1 GiB")
    row.filter(has_text="does not fit on device 0").wait_for()
    page.picture("web-queue")


def test_refusals_have_their_reasons(page: Visitor) -> None:
    page.go("Refusals")
    row = page.row("Events", "session refused").filter(has_text="dave")
    row.filter(has_text="does not fit on device 0").wait_for()
    assert not page.row("Events", "lease granted").count()
    page.picture("web-refusals")


def test_events_and_tenants(page: Visitor) -> None:
    page.go("Events")
    page.row("Events", "session opened").first.wait_for()
    page.page.get_by_label("Filter").fill("bob lease granted")
    page.row("Events", "key 'notebook'").wait_for()
    assert page.row("Events", "alice").count() == 0
    page.go("Tenants")
    page.row("Tenants", "alice").filter(has_text="40% 1 GiB").wait_for()


def test_headings_sort_a_table(page: Visitor) -> None:
    heading = page.table("Leases").get_by_role("columnheader", name="Guaranteed")
    rows = page.table("Leases").get_by_role("rowheader")
    heading.get_by_role("button").click()
    wait_until(lambda: rows.all_inner_texts() == ["train", "notebook", "inference"])
    assert heading.get_attribute("aria-sort") == "descending"
    heading.get_by_role("button").click()
    wait_until(lambda: rows.all_inner_texts() == ["inference", "notebook", "train"])


def test_on_a_phone_nothing_is_wider_than_the_screen(server: Server, browser: Any) -> None:
    size = {"width": 360, "height": 740}
    with window(browser, viewport=size, has_touch=True, is_mobile=True) as phone:
        phone.open(address(server.log))
        phone.row("Leases", "train").wait_for()
        phone.picture("web-phone", height=1500)
        for view in ("Sessions", "Queue", "Refusals", "Events", "Tenants"):
            phone.go(view)
            width = phone.page.evaluate("document.documentElement.scrollWidth")
            assert width <= size["width"], f"{view}: {width}"
        phone.go("Devices and leases")
        phone.page.get_by_role("link", name="train").tap()
        phone.page.get_by_role("button", name="Pause").wait_for()
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= size["width"]


def test_dark_and_light(server: Server, browser: Any) -> None:
    def ground(visitor: Visitor) -> str:
        return str(visitor.page.evaluate("getComputedStyle(document.body).backgroundColor"))

    with window(browser, color_scheme="dark") as night:
        night.open(address(server.log))
        night.row("Leases", "train").wait_for()
        wait_until(lambda: ground(night) == "rgb(18, 23, 21)")
        night.picture("web-dark", height=1020)
        night.page.get_by_label("Colours").select_option("light")
        # The page shows it with its next frame.
        wait_until(lambda: ground(night) == "rgb(255, 255, 255)")
        night.page.reload()
        night.page.locator(".link.live").wait_for()
        wait_until(lambda: ground(night) == "rgb(255, 255, 255)")


def test_the_keyboard_reaches_a_lease_and_its_orders(page: Visitor) -> None:
    keys = page.page.keyboard

    def focused(name: str) -> bool:
        held = page.page.evaluate("document.activeElement.textContent")
        return str(held).strip() == name

    keys.press("Tab")
    wait_until(lambda: focused("Skip to the content"))
    keys.press("Enter")
    wait_until(lambda: focused("Devices and leases"))
    for _ in range(40):
        keys.press("Tab")
        if focused("train"):
            break
    keys.press("Enter")
    page.page.get_by_role("heading", level=1, name="Lease train").wait_for()
    wait_until(lambda: page.page.evaluate("document.activeElement.tagName") == "H1")
    keys.press("Tab")
    wait_until(lambda: focused("Pause"))
    keys.press("Enter")
    dialog = page.page.get_by_role("dialog", name="Pause train?")
    dialog.wait_for()
    wait_until(
        lambda: page.page.evaluate("document.activeElement.closest('dialog') !== null") is True
    )
    keys.press("Escape")
    dialog.wait_for(state="detached")
    wait_until(lambda: focused("Pause"))


def test_a_link_that_is_wrong_shows_a_view_all_the_same(page: Visitor) -> None:
    where = page.page.url.partition("#")[0]
    for link, heading in (
        ("#/lease/%E0%A4%A", "Lease %E0%A4%A"),
        ("#/lease/lease-99", "Lease lease-99"),
        ("#/constructor", "Devices and leases"),
        ("#/session/7/8/9", "Session 7"),
    ):
        page.page.goto(f"{where}{link}")
        page.page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()
    page.page.get_by_text("Session 7 is not here").wait_for()


def test_screen_readers_are_told_what_everything_is(page: Visitor) -> None:
    for view in ("Devices and leases", "Sessions", "Queue", "Tenants", "Refusals", "Events"):
        page.go(view)
        page.page.get_by_role("table").first.wait_for()
        nameless = page.page.evaluate(
            """() => [...document.querySelectorAll("a, button, input, select, [role=img]")]
            .filter((e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length))
            .map((e) => e.outerHTML)"""
        )
        assert nameless == []
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.page.get_by_role(role).first.is_visible()
