"""Orders that people give on a server's page: confirmed, carried out, written down."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from helpers.command import run_rgpu_plain
from helpers.figures import figures
from helpers.ports import free_port
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_client.control import ControlClient, LeaseRequest
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import lease_pb2
from web_page.browser import LIVE_MS, Visitor, address, served

MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as running:
        yield running


@contextmanager
def control(server: Server) -> Iterator[ControlClient]:
    with ControlClient(parse_endpoint(server.tcp)) as client:
        yield client


def grant(server: Server, key: str, share_ppm: int = 0, limit_ppm: int = 0) -> None:
    request = LeaseRequest(
        key=key, memory_bytes=64 * MIB, ttl_seconds=3600.0, share_request_ppm=share_ppm,
        share_limit_ppm=limit_ppm,
    )  # fmt: skip
    with control(server) as client:
        client.grant(request)


def lease(server: Server, key: str) -> lease_pb2.Lease | None:
    with control(server) as client:
        return next((one for one in client.leases() if one.key == key), None)


def draining(server: Server) -> bool:
    with control(server) as client:
        return client.devices().draining


def written(server: Server, event: str, order: str) -> list[dict[str, Any]]:
    """Returns the lines of the audit log about an order."""
    lines = [line.partition("rgpu.audit: ")[2] for line in server.log if "rgpu.audit: " in line]
    found = [json.loads(line) for line in lines]
    return [one for one in found if one["event"] == event and one.get("order") == order]


def on_lease(visitor: Visitor, server: Server, key: str) -> None:
    visitor.open(address(server.log))
    visitor.page.get_by_role("link", name=key, exact=True).click()
    visitor.page.get_by_role("button", name="Revoke").wait_for()


def test_pause_and_resume(server: Server, visitor: Visitor) -> None:
    grant(server, "pausing")
    on_lease(visitor, server, "pausing")
    visitor.order("Pause")
    visitor.says("is paused")
    found = lease(server, "pausing")
    assert found is not None
    assert found.state == lease_pb2.LEASE_STATE_PAUSED
    # Not the event "lease paused".
    visitor.page.get_by_text("paused", exact=True).wait_for()
    visitor.order("Resume")
    visitor.says("goes on")
    found = lease(server, "pausing")
    assert found is not None
    assert found.state == lease_pb2.LEASE_STATE_ACTIVE
    wait_until(lambda: bool(written(server, "page_order_carried_out", "resume")))
    (line,) = written(server, "page_order_carried_out", "pause")
    assert (line["lease"], line["proof"], line["peer"]) == (found.lease_id, "place", "local")
    log = run_rgpu_plain("logs", "pausing", "--server", server.tcp)
    assert f"on the page: {found.lease_id} is paused" in log.stdout


def test_an_order_that_is_not_confirmed_does_nothing(server: Server, visitor: Visitor) -> None:
    grant(server, "kept")
    on_lease(visitor, server, "kept")
    visitor.page.get_by_role("button", name="Revoke").click()
    dialog = visitor.page.get_by_role("dialog", name="Revoke kept?")
    dialog.get_by_role("button", name="Cancel").click()
    dialog.wait_for(state="detached")
    assert lease(server, "kept") is not None
    assert not written(server, "page_order_carried_out", "revoke")


def test_resize_changes_what_was_changed_in_the_form(server: Server, visitor: Visitor) -> None:
    grant(server, "resizing", share_ppm=123_456, limit_ppm=500_000)
    on_lease(visitor, server, "resizing")
    visitor.order("Resize", Memory="100MiB")
    visitor.says("has 100 MiB, share 12.3456%, limit 50%")
    visitor.order("Resize", Limit="5%")
    dialog = visitor.page.get_by_role("dialog")
    dialog.get_by_role("alert").filter(has_text="limit").wait_for()
    visitor.picture("web-resize")
    dialog.get_by_role("textbox", name="Limit").fill("60%")
    dialog.get_by_role("textbox", name="Guaranteed share").fill("20%")
    dialog.get_by_role("button", name="Resize").click()
    visitor.says("has 100 MiB, share 20%, limit 60%")
    found = lease(server, "resizing")
    assert found is not None
    assert found.quota.share_limit_ppm == 600_000
    wait_until(lambda: bool(written(server, "page_order_refused", "resize")))
    (refused,) = written(server, "page_order_refused", "resize")
    assert json.loads(refused["values"]) == {
        "lease": found.lease_id,
        "kill": False,
        "limit": "5%",
    }


def test_revoke_ends_the_lease(server: Server, visitor: Visitor) -> None:
    grant(server, "ending")
    on_lease(visitor, server, "ending")
    visitor.order("Revoke")
    visitor.says("was revoked, and 0 sessions with it")
    visitor.page.get_by_text("it has ended, or belongs to another tenant").wait_for()
    assert lease(server, "ending") is None
    visitor.go("Events")
    visitor.row("Events", "page order carried out").filter(has_text="revoke").wait_for()


def test_drain_and_undrain(server: Server, visitor: Visitor) -> None:
    visitor.open(address(server.log))
    visitor.order("Drain", **{"End what still runs after (seconds)": "3600"})
    visitor.says("ends in 3600 s at the latest")
    visitor.page.get_by_text("The server drains: it takes nothing new.").wait_for()
    assert draining(server)
    visitor.order("Undrain")
    visitor.says("takes new leases")
    visitor.page.get_by_text("The server drains").wait_for(state="detached")
    assert not draining(server)


class Stranger(BaseHTTPRequestHandler):
    """Another site of this machine: for a browser the same site, and another origin."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>stranger</title>")

    def log_message(self, *_: object) -> None:
        """Says nothing."""


ATTEMPTS = """async (page) => {
  const said = [];
  const done = (answer) => said.push(answer.type === "opaque" ? "opaque" : answer.status);
  const order = JSON.stringify({ order: "drain" });
  for (const mode of ["cors", "no-cors"])
    for (const kind of ["application/json", "text/plain"])
      await fetch(`${page}api/order`, { method: "POST", mode, headers: { "content-type": kind }, body: order })
        .then(done, () => said.push("no answer"));
  await fetch(`${page}api/hello`).then(done, () => said.push("no answer"));
  await import(`${page}page.js`).then(() => said.push("imported"), () => said.push("no answer"));
  return said;
}"""


def test_a_page_of_another_site_neither_reads_nor_orders(server: Server, visitor: Visitor) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as other:
        serving = threading.Thread(target=other.serve_forever)
        serving.start()
        visitor.page.goto(f"http://127.0.0.1:{other.server_port}/")
        said = visitor.page.evaluate(ATTEMPTS, address(server.log))
        other.shutdown()
        serving.join()
    assert set(said) <= {"no answer", "opaque"}, said
    assert len(said) == 6
    assert not draining(server)
    visitor.wrong.clear()  # the browser has told the stranger's page what it may not do


@pytest.mark.full
def test_a_server_that_is_started_again_is_found_again(visitor: Visitor) -> None:
    where = f"127.0.0.1:{free_port()}"
    with Server("--web", where) as first:
        grant(first, "before")
        visitor.open(f"http://{where}/")
        visitor.row("Leases", "before").wait_for()
    visitor.page.locator(".link.lost").wait_for()
    visitor.page.get_by_role("alert").filter(has_text="What is shown is old").wait_for()
    with Server("--web", where) as second:
        visitor.page.locator(".link.live").wait_for()
        visitor.row("Leases", "before").wait_for(state="detached")
        grant(second, "after")
        visitor.page.get_by_role("link", name="after", exact=True).click()
        visitor.order("Pause")  # with the secret of the new process
        visitor.says("is paused")


@pytest.mark.full
@pytest.mark.measures
def test_a_change_is_shown_within_two_seconds(server: Server, visitor: Visitor) -> None:
    visitor.open(address(server.log))
    grant(server, "first")
    visitor.row("Leases", re.compile("^first")).wait_for()
    taken = []
    for number in range(5):
        name = f"live-{number}"
        grant(server, name)
        began = time.monotonic()
        visitor.page.get_by_role("link", name=name, exact=True).wait_for()
        taken.append(1000 * (time.monotonic() - began))
    with figures():
        assert max(taken) < LIVE_MS, taken
