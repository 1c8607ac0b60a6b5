"""Who gets in at the page, and who may order: strangers, other sites, proxies, tenants, users."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command import run_rgpu_plain
from helpers.credentials import Keys
from helpers.credentials import keys as keys
from helpers.server import Server
from helpers.waiting import wait_until

from web_page.asking import CROWD, Answer, asked, bearer, crowd, descriptors, ordered, state
from web_page.browser import address, served

IDENTITY = """
[identity]
tokens = "{tokens}"
operators = ["ops"]
require = "always"
"""


@pytest.fixture(scope="module")
def server(keys: Keys) -> Iterator[Server]:
    """A server that asks everybody for an access token, with a lease of alice and one of bob."""
    config = keys.path.with_name("rgpu.toml")
    config.write_text(IDENTITY.format(tokens=keys.path))
    ops = keys.path.with_name("ops.token")
    ops.write_text(keys.ops)
    ops.chmod(0o600)
    with served("--config", str(config)) as running:
        for tenant in ("alice", "bob"):
            done = run_rgpu_plain(
                "lease", "grant", f"of-{tenant}", "--tenant", tenant, "--memory", "64MiB", "--ttl",
                "3600", "--server", running.tcp, RGPU_TOKEN_FILE=str(ops),
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        yield running


@pytest.fixture(scope="module")
def opened() -> Iterator[Server]:
    """A server that believes this machine's users."""
    with served() as running:
        yield running


def lease_of(server: Server, keys: Keys, tenant: str) -> str:
    leases = state(server, keys.ops)["leases"]
    return next(name for name, row in leases.items() if row["tenant"] == tenant)


# Identity


def kept_out(server: Server, method: str, path: str, body: str = "", **headers: str) -> Answer:
    """Asks what gets 401. Tests ask from one address, which gets so many refusals in a while."""
    answers: list[Answer] = []

    def counted() -> bool:
        answers.append(asked(server, method, path, body, **headers))
        return answers[-1].status != 429

    wait_until(counted)
    assert answers[-1].status == 401, (path, headers)
    return answers[-1]


def test_a_stranger_gets_the_form_and_nothing_else(server: Server) -> None:
    assert asked(server, "GET", "/").status == 200
    for path in ("/api/hello", "/api/live", "/api/record?since=60", "/api/explain"):
        assert "access token" in kept_out(server, "GET", path).message
    kept_out(server, "POST", "/api/order", "{}")


def test_a_wrong_token_is_refused_with_its_reason(server: Server) -> None:
    answer = kept_out(server, "GET", "/api/hello", **bearer("rgpu_wrong"))
    assert "is wrong, was revoked or has expired" in answer.message
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_token_in_the_address_is_not_read(server: Server, keys: Keys) -> None:
    """Addresses are kept in logs and histories, and links to them can come from anywhere."""
    for name in ("token", "access_token", "authorization"):
        kept_out(server, "GET", f"/api/hello?{name}={keys.ops}")
    kept_out(server, "GET", "/api/hello", cookie=f"token={keys.ops}")


def test_who_guesses_gets_no_more_answers(keys: Keys, tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text(IDENTITY.format(tokens=keys.path))
    with served("--config", str(config)) as guarded:
        said = [asked(guarded, "GET", "/api/hello", **bearer("x")).status for _ in range(12)]
        assert said[0] == 401
        assert said[-1] == 429
        assert asked(guarded, "GET", "/api/hello", **bearer(keys.alice)).status == 200


def test_a_tenant_sees_its_own(server: Server, keys: Keys) -> None:
    hello = asked(server, "GET", "/api/hello", **bearer(keys.alice)).body
    assert (hello["tenant"], hello["operator"]) == ("alice", False)
    seen = state(server, keys.alice)
    assert {row["key"] for row in seen["leases"].values()} == {"of-alice"}
    assert {row["tenant"] for row in seen["tenants"].values()} == {"alice"}
    assert {row["tenant"] for row in seen["events"].values()} == {"alice"}
    assert "bob" not in json.dumps(seen)
    record = asked(
        server, "GET", f"/api/record?since=60&lease={lease_of(server, keys, 'bob')}",
        **bearer(keys.alice),
    )  # fmt: skip
    assert record.body["series"] == []
    assert {row["key"] for row in state(server, keys.ops)["leases"].values()} == {
        "of-alice",
        "of-bob",
    }


def test_a_tenant_orders_about_its_own_leases_alone(server: Server, keys: Keys) -> None:
    """As with `rgpu lease`: another tenant's lease is answered for as if there were none."""
    others = lease_of(server, keys, "bob")
    for order in ("pause", "resume", "revoke"):
        answer = ordered(server, order, keys.alice, lease=others)
        assert answer.status == 404
        assert f"there is no lease '{others}'" in answer.message
    assert ordered(server, "resize", keys.alice, lease=others, memory="1MiB").status == 404
    drain = ordered(server, "drain", keys.alice)
    assert drain.status == 403
    assert "only an operator may drain the server" in drain.message
    own = lease_of(server, keys, "alice")
    assert ordered(server, "pause", keys.alice, lease=own).status == 200
    assert ordered(server, "resume", keys.ops, lease=own).status == 200
    wait_until(lambda: '"by":"alice"' in "".join(server.log))


def test_a_token_that_is_revoked_ends_the_view(server: Server, keys: Keys) -> None:
    token, row = keys.add("mallory")
    host, _, port = address(server.log).split("//")[1].rstrip("/").partition(":")
    with socket.create_connection((host, int(port)), 30) as line, line.makefile("rb") as stream:
        line.sendall(
            f"GET /api/live HTTP/1.1\r\nhost: {host}\r\n"
            f"authorization: Bearer {token}\r\n\r\n".encode()
        )
        next(one for one in stream if one.startswith(b"data: "))
        done = run_rgpu_plain("token", "revoke", row.id, "--tokens", str(keys.path))
        assert done.returncode == 0, done.stderr
        rest = stream.read()
    # The end of the stream.
    assert rest.endswith(b"0\r\n\r\n"), (rest[-500:], server.log[-20:])
    kept_out(server, "GET", "/api/hello", **bearer(token))


def test_a_user_of_this_machine_is_known_by_the_socket(tmp_path: Path) -> None:
    """The page on a Unix socket, which ssh brings to a browser: the kernel says who that is."""
    path = tmp_path / "page.sock"
    with Server("--web", f"unix:{path}"):
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(30)
            line.connect(str(path))
            line.sendall(
                b"GET /api/hello HTTP/1.1\r\nhost: localhost:7780\r\nconnection: close\r\n\r\n"
            )
            with line.makefile("rb") as stream:
                said = stream.read().decode()
        hello = json.loads(said.partition("\r\n\r\n")[2])
        assert (hello["operator"], hello["proof"]) == (True, "owner")
        assert path.stat().st_mode & 0o777 == 0o666
    assert not path.exists()


# Other sites


def test_an_order_from_another_site_is_refused(opened: Server) -> None:
    """What a stranger's page can have this machine's browser send."""
    secret = asked(opened, "GET", "/api/hello").body["secret"]
    kind = {"content_type": "application/json"}
    drain = json.dumps({"order": "drain"})
    for named in (
        {"content_type": "text/plain"},
        {"content_type": "application/x-www-form-urlencoded"},
        kind,
        {**kind, "x_rgpu_page": "guessed"},
        {**kind, "x_rgpu_page": secret, "origin": "http://evil.example"},
        {**kind, "x_rgpu_page": secret, "origin": "null"},
        {**kind, "x_rgpu_page": secret, "origin": "http://["},
        {**kind, "x_rgpu_page": secret, "sec_fetch_site": "cross-site"},
        {**kind, "x_rgpu_page": secret, "sec_fetch_site": "same-site"},
        {**kind, "x_rgpu_page": secret, "host": "evil.example"},
    ):
        answer = asked(opened, "POST", "/api/order", drain, **named)
        assert answer.status in (403, 415, 421), named
        assert "access-control-allow-origin" not in answer.headers
    assert asked(opened, "GET", "/api/order").status == 405
    # Whether another site may ask with these headers: no.
    assert asked(opened, "OPTIONS", "/api/order", origin="http://evil.example").status == 403
    assert asked(opened, "OPTIONS", "/api/order").status == 405
    assert state(opened)["server"][""]["draining"] is False


def test_a_name_that_was_bent_to_this_machine_is_refused(opened: Server) -> None:
    for host in ("evil.example", "evil.example:7780", "", "a b"):
        answer = asked(opened, "GET", "/api/hello", host=host)
        assert answer.status in (400, 421), host
    for host in ("localhost:1", "127.0.0.1", "[::1]:7780", socket.gethostname()):
        assert asked(opened, "GET", "/api/hello", host=host).status == 200, host


def test_names_of_the_configuration_are_answered(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text('[web]\nlisten = "127.0.0.1:0"\nhosts = ["GPU.example.org"]\n')
    with Server("--config", str(config)) as named:
        assert asked(named, "GET", "/api/hello", host="gpu.example.org").status == 200
        assert asked(named, "GET", "/api/hello", host="other.example.org").status == 421


def test_a_proxy_on_this_machine_vouches_for_nobody(opened: Server) -> None:
    for named in ({"x_forwarded_for": "192.0.2.7"}, {"via": "1.1 proxy"}, {"forwarded": "for=x"}):
        kept_out(opened, "GET", "/api/hello", **named)


def test_every_answer_keeps_other_sites_out(opened: Server) -> None:
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/api/hello", "/nothing"):
        headers = asked(opened, "GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert not [name for name in headers if name.startswith("access-control")]
        assert "set-cookie" not in headers


# What is wrong


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"order": "explode", "lease": "x"}, "there is no order 'explode'"),
        ({"order": "pause"}, "lease has to be named"),
        ({"order": "pause", "lease": 7}, "lease has to be a text"),
        ({"order": "pause", "lease": "x" * 300}, "lease has to be a text"),
        ({"order": "pause", "lease": "lease-99"}, "there is no lease 'lease-99'"),
        ({"order": "resize", "lease": "x"}, "say what to change"),
        ({"order": "resize", "lease": "x", "memory": "much"}, "'much' is not"),
        ({"order": "resize", "lease": "x", "share": "2"}, "'2' is not a share"),
        ({"order": "resize", "lease": "x", "limit": "0"}, "limit 0 makes no sense"),
        ({"order": "resize", "lease": "x", "policy": "nice"}, "policy has to be one of none,"),
        ({"order": "resize", "lease": "x", "weight": 1.5}, "weight has to be a whole number"),
        ({"order": "resize", "lease": "x", "kill": 1}, "kill has to be true or false"),
        ({"order": "drain", "end_after_seconds": -1}, "end_after_seconds has to be from 0"),
        ({"order": "drain", "end_after_seconds": float("nan")}, "end_after_seconds has to be"),
    ],
)
def test_a_wrong_order_is_refused_with_a_sentence(
    opened: Server, fields: dict[str, Any], said: str
) -> None:
    answer = ordered(opened, **fields)
    assert answer.status in (400, 404)
    assert said in answer.message
    assert state(opened)["server"][""]["draining"] is False


@pytest.mark.parametrize("body", ["", "[]", "{", "[" * 5000, '{"order": 1', "\x00"])
def test_an_order_that_is_no_json_is_refused(opened: Server, body: str) -> None:
    secret = asked(opened, "GET", "/api/hello").body["secret"]
    named = {"content_type": "application/json", "x_rgpu_page": secret}
    assert asked(opened, "POST", "/api/order", body, **named).status == 400


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n", b"431"),
        (b"POST /api/order HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999\r\n\r\n"
         + b"x" * 99999, b"413"),
        (b"GET /?" + b"a=1&" * 40 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", b"400"),
        (b"GET /../../etc/passwd HTTP/1.1\r\nhost: localhost\r\n\r\n", b"404"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_answered_and_the_page_goes_on(
    opened: Server, sent: bytes, status: bytes
) -> None:
    host, _, port = address(opened.log).split("//")[1].rstrip("/").partition(":")
    with socket.create_connection((host, int(port)), 30) as line:
        line.sendall(sent)
        assert line.recv(1 << 16).split()[1] == status
    assert asked(opened, "GET", "/api/hello").status == 200


def test_many_silent_connections_keep_nobody_out(opened: Server) -> None:
    host, _, port = address(opened.log).split("//")[1].rstrip("/").partition(":")
    with crowd(host, int(port)):
        assert asked(opened, "GET", "/api/hello").status == 200
        assert len(descriptors(opened)) < CROWD


def test_a_file_that_a_browser_has_is_not_sent_again(opened: Server) -> None:
    first = asked(opened, "GET", "/page.js")
    again = asked(opened, "GET", "/page.js", if_none_match=first.headers["etag"])
    assert (first.status, again.status, again.text) == (200, 304, "")
    head = asked(opened, "HEAD", "/page.js")
    assert (head.text, head.headers["content-length"]) == ("", str(len(first.text.encode())))
