"""A thousand leases on the page."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.figures import figures
from helpers.server import Server

from rgpu_client.control import ControlClient, LeaseRequest
from rgpu_common.endpoints import parse_endpoint
from web_page.browser import LIVE_MS, Visitor, address, served

LEASES = 1000
CLIENTS = 10


def grant(server: Server, first: int, last: int) -> None:
    with ControlClient(parse_endpoint(server.tcp)) as client:
        for number in range(first, last):
            tenant, key = f"tenant{number % 20}", f"job{number:04}"
            client.grant(LeaseRequest(tenant, key, memory_bytes=1 << 20, ttl_seconds=3600.0))


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_leases_are_listed_found_and_live(visitor: Visitor) -> None:
    with served() as server:
        firsts = range(0, LEASES, LEASES // CLIENTS)
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda first: grant(server, first, first + LEASES // CLIENTS), firsts))
        visitor.open(address(server.log))
        visitor.page.get_by_text(f"1 to 100 of {LEASES}").wait_for()
        visitor.page.get_by_role("button", name="Next").click()
        visitor.page.get_by_text(f"101 to 200 of {LEASES}").wait_for()
        visitor.page.get_by_label("Filter").fill("tenant7 job00")
        visitor.page.get_by_text(re.compile(rf"^\d+ of {LEASES}$")).wait_for()
        names = visitor.table("Leases").get_by_role("rowheader").all_inner_texts()
        assert sorted(names) == [f"job{number:04}" for number in range(7, 100, 20)]
        visitor.page.get_by_label("Filter").fill("")
        taken = []
        for number in range(LEASES, LEASES + 5):
            grant(server, number, number + 1)
            began = time.monotonic()
            visitor.page.get_by_text(f"of {number + 1}", exact=False).first.wait_for()
            taken.append(1000 * (time.monotonic() - began))
        visitor.page.get_by_label("Filter").fill("job0500")
        visitor.page.get_by_role("link", name="job0500").click()
        visitor.order("Pause")
        visitor.says("is paused")
    with figures():
        assert max(taken) < LIVE_MS, taken
