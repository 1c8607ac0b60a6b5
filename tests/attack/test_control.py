"""Tenants that take from a server's control plane what others need, or want to read there what is
secret: its answers, the time of its process, its log.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from helpers import clients
from helpers.command import run_rgpu_plain
from helpers.credentials import Keys
from helpers.credentials import keys as keys
from helpers.server import Server
from helpers.waiting import wait_until
from observe.page import address as metrics_address
from web_page.asking import asked, bearer
from web_page.browser import address as page_address

from attack.door import Lane
from rgpu_common.v1 import (
    lease_pb2,
    lease_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    observe_pb2,
    observe_pb2_grpc,
)
from rgpu_common.wire.claim import Claim
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.welcome import Welcome
from rgpu_server.observe.record import Ring, Sample, Series, Store
from rgpu_server.web.http import SAFE_HEADERS

MIB = 1 << 20
SECONDS = 300
LEASES = 200
# Far more looks than fit the burst, however fast the machine is.
LOOKS, OPERATES = 2000, 200
CHANGES = 200
OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
QUESTIONS = 60
RECORDED, RECORDED_SECONDS = 50, 300
OPENS = 12
ORDERS = 300
# rgpu_server/observe/audit.py: refusals of one caller that are written at once; then one a second.
WRITTEN = 100
YEAR = observe_pb2.GetRecordRequest(since_seconds=366 * 86400, max_steps=1)
SECRET = "hunter2-that-nobody-writes-down"
CONFIG = """
[identity]
require = "always"
tokens = "{tokens}"
operators = ["ops"]

[record]
folder = "{record}"

[sessions]
resume_grace_seconds = 0
open_seconds = 60
"""


@pytest.fixture(scope="module")
def server(keys: Keys) -> Iterator[Server]:
    """A server with a page and metrics. It outlives all attacks."""
    config = keys.path.with_name("rgpu.toml")
    record = keys.path.with_name("record")
    record.mkdir()
    keep_record(record)
    config.write_text(CONFIG.format(tokens=keys.path, record=record))
    options = ("--config", str(config), "--web", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with Server(*options) as running:
        yield running
        assert running.process is not None
        assert running.process.poll() is None, "the daemon ended"


def shown(token: str) -> list[tuple[str, str]]:
    """Returns the metadata of a call that shows an access token."""
    return [("authorization", f"Bearer {token}")]


@pytest.fixture(scope="module")
def leases(server: Server, keys: Keys) -> Iterator[None]:
    """Leases of alice, so that the metrics have something to say."""
    with grpc.insecure_channel(server.tcp) as channel:
        stub = lease_pb2_grpc.LeaseServiceStub(channel)
        for number in range(LEASES):
            quota = lease_pb2.Quota(memory_bytes=MIB)
            request = lease_pb2.GrantLeaseRequest(
                tenant="alice", key=f"held-{number}", quota=quota, ttl_seconds=3600
            )
            stub.GrantLease(request, timeout=SECONDS, metadata=shown(keys.ops))
        yield


# What is secret


@pytest.mark.parametrize("seam", ["arrays", "driver"])
def test_the_arguments_of_a_program_are_in_no_log_of_the_node(
    server: Server, keys: Keys, tmp_path: Path, seam: str
) -> None:
    """Programs are given passwords as arguments, and the server's log is not theirs."""
    script = tmp_path / f"train_{seam}.py"
    arrays = "import rgpu_client.cupy as cp\nprint(int(cp.ones(7).sum()))\n"
    driver = clients.PRELUDE + "cuda.open()\nprint(7)\n"
    script.write_text(arrays if seam == "arrays" else driver)
    done = subprocess.run(
        [sys.executable, str(script), f"--password={SECRET}", SECRET], cwd="/",
        env=clients.environment(server.tcp, RGPU_TOKEN=keys.alice), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "7\n"), done.stderr
    wait_until(lambda: any(script.name in line for line in list(server.log)))
    assert not [line for line in list(server.log) if SECRET in line]


@pytest.mark.parametrize("form", ["{token}", "tcp:{token}:7700", "alice:{token}@127.0.0.1:7700"])
def test_an_access_token_in_an_address_is_not_printed(keys: Keys, form: str) -> None:
    """People paste it into the wrong place, and what is printed lands in logs of others."""
    where = form.format(token=keys.alice)
    program = (sys.executable, "-c")
    arrays = "import rgpu_client.cupy as cp; cp.ones(3).get()"
    for words, named in (
        (("rgpu", "devices", "--server", where), {}),
        (("rgpu", "run", "--server", where, "--", "true"), {}),
        ((*program, arrays), {"RGPU_SERVER": where}),
        ((*program, clients.PRELUDE + "cuda.open()"), {"RGPU_SERVER": where}),
    ):
        if words[0] == "rgpu":
            done = run_rgpu_plain(*words[1:])
        else:
            done = subprocess.run(
                words, env=clients.environment(None, **named), cwd="/", capture_output=True,
                stdin=subprocess.DEVNULL, text=True, timeout=60, check=False,
            )  # fmt: skip
        assert done.returncode != 0
        assert done.stderr
        secret = keys.alice.split("_", 2)[2]
        assert secret not in done.stdout + done.stderr


# Answers


def keep_record(folder: Path) -> None:
    """Writes the record of usage of a server on which alice had many leases for minutes, so that
    each question about it takes a while.
    """
    ring, store = Ring(64 * MIB), Store(folder, 64 * MIB)
    store.load(ring)
    numbers = [ring.number(Series(f"old-{n}", "alice", f"old-{n}", 0)) for n in range(RECORDED)]
    now_ms = round(time.time()) * 1000
    for second in range(RECORDED_SECONDS):
        samples = [Sample(second, 0, 0, second, 0, MIB, MIB, 0, 0, 0, n) for n in numbers]
        at_ms = now_ms - 1000 * (RECORDED_SECONDS - second)
        store.append(ring.add(at_ms, samples), ring)
    store.close()


def test_many_questions_of_a_tenant_hold_no_operator_up(server: Server, keys: Keys) -> None:
    """The operator asks last, and has the answer while the tenant waits for its own. Then the tenant
    takes all of them back at once, and another tenant is answered.
    """
    with (
        grpc.insecure_channel(server.tcp) as theirs,
        grpc.insecure_channel(server.tcp) as ours,
    ):
        tenant = observe_pb2_grpc.ObserveServiceStub(theirs)
        operator = observe_pb2_grpc.ObserveServiceStub(ours)
        questions = [
            tenant.GetRecord.future(YEAR, timeout=SECONDS, metadata=shown(keys.alice))
            for _ in range(QUESTIONS)
        ]
        wait_until(lambda: any(one.done() for one in questions))
        before = sum(one.done() for one in questions)
        operator.GetRecord(YEAR, timeout=SECONDS, metadata=shown(keys.ops))
        answered = sum(one.done() for one in questions) - before
        for one in questions:
            one.cancel()
        assert answered < QUESTIONS // 2, "the operator waited for the tenant's questions"
        tenant.GetRecord(YEAR, timeout=SECONDS, metadata=shown(keys.bob))
        assert not [line for line in list(server.log) if "Traceback" in line]


def test_a_tenant_that_looks_again_and_again_holds_no_operator_up(
    server: Server, keys: Keys, leases: None
) -> None:
    """Each look costs the server time for every lease that is there. It makes them in the thread in
    which sessions open and operators are answered.
    """
    with (
        grpc.insecure_channel(server.tcp, options=OWN_CONNECTION) as theirs,
        grpc.insecure_channel(server.tcp, options=OWN_CONNECTION) as ours,
    ):
        looks = observe_pb2_grpc.ObserveServiceStub(theirs)
        operator = node_pb2_grpc.NodeServiceStub(ours)
        questions = [
            looks.GetNow.future(
                observe_pb2.GetNowRequest(), timeout=SECONDS, metadata=shown(keys.alice)
            )
            for _ in range(LOOKS)
        ]
        wait_until(lambda: any(one.done() for one in questions))
        for _ in range(OPERATES):
            operator.GetNode(node_pb2.GetNodeRequest(), timeout=SECONDS, metadata=shown(keys.ops))
        answered = sum(one.done() for one in questions)
        for one in questions:
            one.cancel()
        assert answered < LOOKS // 2, "the operator waited for the tenant's looks"


def refused_changes(server: Server, token: str, stop: threading.Event, refused: list[int]) -> None:
    """Has changes of leases refused, many at a time, until it is told to stop."""
    with grpc.insecure_channel(server.tcp, options=OWN_CONNECTION) as channel:
        stub = lease_pb2_grpc.LeaseServiceStub(channel)
        nothing = lease_pb2.KeepAliveLeaseRequest(lease_id="none")
        quota = lease_pb2.Quota(memory_bytes=1 << 50)
        too_much = lease_pb2.GrantLeaseRequest(tenant="alice", key="too-much", quota=quota)
        named = {"timeout": SECONDS, "metadata": shown(token)}
        while not stop.is_set():
            asked = [stub.KeepAliveLease.future(nothing, **named) for _ in range(CHANGES)]
            asked += [stub.GrantLease.future(too_much, **named) for _ in range(CHANGES)]
            codes = {one.exception().code() for one in asked}
            assert grpc.StatusCode.UNAVAILABLE not in codes
            assert grpc.StatusCode.OK not in codes
            refused[0] += len(asked)


def test_others_keep_leases_and_open_sessions_in_a_flood_of_refused_changes(
    server: Server, keys: Keys, leases: None
) -> None:
    """Changes wait for no time that was used. So a flood of them has to leave others their turns."""
    stop, refused = threading.Event(), [0]
    flood = threading.Thread(target=refused_changes, args=(server, keys.alice, stop, refused))
    flood.start()
    try:
        wait_until(lambda: refused[0] > 0)
        before = refused[0]
        for number in range(OPENS):
            fields = {"lease_key": f"flooded-{number}", "memory_bytes": MIB}
            with Lane(server.tcp) as lane, grpc.insecure_channel(server.tcp) as channel:
                answer = lane.hello(access_token=keys.bob, **fields)
                assert isinstance(answer, Welcome), answer
                stub, named = lease_pb2_grpc.LeaseServiceStub(channel), shown(keys.bob)
                quota = lease_pb2.Quota(memory_bytes=MIB)
                key = f"kept-{number}"
                request = lease_pb2.GrantLeaseRequest(
                    tenant="bob", key=key, quota=quota, ttl_seconds=3600
                )
                lease = stub.GrantLease(request, timeout=SECONDS, metadata=named).lease.lease_id
                kept = lease_pb2.KeepAliveLeaseRequest(lease_id=lease)
                stub.KeepAliveLease(kept, timeout=SECONDS, metadata=named)
                ended = lease_pb2.RevokeLeaseRequest(lease_id=lease)
                stub.RevokeLease(ended, timeout=SECONDS, metadata=named)
        wait_until(lambda: refused[0] > before)
        assert flood.is_alive(), "the flood went on beside"
    finally:
        stop.set()
        flood.join(SECONDS)
    assert not flood.is_alive()


# The time of the process


def scrape(server: Server, token: str) -> str:
    """Reads the metrics once."""
    line = http.client.HTTPConnection(metrics_address(server), timeout=SECONDS)
    try:
        line.request("GET", "/metrics", headers=bearer(token))
        answer = line.getresponse()
        assert answer.status == 200
        return answer.read().decode()
    finally:
        line.close()


@contextmanager
def scrapers(server: Server, token: str, count: int = 2) -> Iterator[list[int]]:
    """Reads the metrics in a loop, in so many threads. Yields how often each has read them."""
    read, stop = [0] * count, threading.Event()

    def loop(number: int) -> None:
        while not stop.is_set():
            scrape(server, token)
            read[number] += 1

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(count)]
    for one in threads:
        one.start()
    try:
        yield read
    finally:
        stop.set()
        for one in threads:
            one.join(SECONDS)
        assert not any(one.is_alive() for one in threads)


def test_sessions_open_while_metrics_are_read_in_a_loop(
    server: Server, keys: Keys, leases: None
) -> None:
    """The page is made in the thread that opens sessions. So whoever reads it in a loop gets the
    last page at times: then a session that has just been opened is not on it.
    """
    old: list[str] = []

    def opens(key: str) -> None:
        fields = {"lease_key": key, "memory_bytes": MIB, "access_token": keys.alice}
        with Lane(server.tcp) as lane:
            answer = lane.hello(**fields)
            assert isinstance(answer, Welcome), answer
            old.extend([key] if f'"{key}"' not in scrape(server, keys.ops) else [])

    opens("before")
    assert not old, "who reads at leisure gets a new page"
    with scrapers(server, keys.ops) as read:
        for number in range(OPENS):
            opens(f"beside-{number}")
        rounds = iter(range(10_000))
        wait_until(lambda: opens(f"later-{next(rounds)}") or bool(old))
        assert min(read) > 0, "the loops went on beside"


# The log


@pytest.mark.parametrize("claims", [False, True], ids=["sessions", "claims"])
def test_refused_greetings_do_not_fill_the_log(server: Server, keys: Keys, claims: bool) -> None:
    """They ask for more than any device has."""
    wishes = (Wish(WishKey.CLAIM, int(Claim.WANTED | Claim.OWN)),) if claims else ()
    name, before = "claim" if claims else "session", len(list(server.log))
    greeter, _ = keys.add(f"{name}-greeter")  # it uses up what is written of a tenant

    def refused(token: str) -> None:
        with Lane(server.tcp) as lane:
            answer = lane.hello(access_token=token, memory_bytes=1 << 50, minor=2, wishes=wishes)
            assert isinstance(answer, tuple), answer

    def lines() -> list[str]:
        return [line for line in list(server.log)[before:] if "does not fit" in line]

    began = time.monotonic()
    for _ in range(ORDERS):
        refused(greeter)
    seconds = math.ceil(time.monotonic() - began)
    refused(keys.bob)
    wait_until(lambda: any('"tenant":"bob"' in line for line in lines()))
    assert all(f'"event":"{name}_refused"' in line for line in lines())
    assert len(lines()) <= WRITTEN + seconds + 1


# The page


@pytest.mark.parametrize(
    ("question", "status"),
    [
        (b"no question of HTTP\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * (17 << 10), 431),
    ],
    ids=["noise", "no host", "long head"],
)
def test_what_is_no_question_is_answered_with_the_safe_headers(
    server: Server, question: bytes, status: int
) -> None:
    """Another site can have a browser send such questions, and frames the answer."""
    host, _, port = page_address(server.log).split("//")[1].rstrip("/").partition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as browser:
        browser.sendall(question)
        browser.shutdown(socket.SHUT_WR)
        answer = http.client.HTTPResponse(browser)
        answer.begin()
        assert answer.status == status
        assert {name: answer.headers[name] for name in SAFE_HEADERS} == SAFE_HEADERS


def written(server: Server, tenant: str) -> list[dict[str, object]]:
    """Returns the lines of the log about orders of a tenant that were refused."""
    rows = [line for line in list(server.log) if '"event":"page_order_refused"' in line]
    found = [dict(json.loads(line[line.index("{") :])) for line in rows]
    return [one for one in found if one["by"] == tenant]


def test_refused_orders_do_not_fill_the_log(server: Server, keys: Keys) -> None:
    """To be refused costs a tenant nothing. Another tenant's refusal is written all the same."""
    secret = asked(server, "GET", "/api/hello", **bearer(keys.alice)).body["secret"]

    def refused(token: str) -> None:
        named = {"content_type": "application/json", "x_rgpu_page": secret, **bearer(token)}
        body = json.dumps({"order": "drain", "why": "x" * 4000})
        assert asked(server, "POST", "/api/order", body, **named).status == 403

    began = time.monotonic()
    for _ in range(ORDERS):
        refused(keys.alice)
    seconds = math.ceil(time.monotonic() - began)
    refused(keys.bob)
    wait_until(lambda: bool(written(server, "bob")))
    lines = written(server, "alice")
    assert 0 < len(lines) <= WRITTEN + seconds
    assert all(len(json.dumps(one)) < 1000 for one in lines)
    left_out = sum(int(str(one.get("left_out", 0))) for one in lines + written(server, "bob"))
    assert left_out == ORDERS - len(lines), "the log says how many it leaves out"
