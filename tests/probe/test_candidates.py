"""Which endpoints become candidates, and the cache of measurements."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netprobe.candidates import Here, candidates, is_explicit, proxies, resolved
from netprobe.identity import host_sum, identity_in, is_this_host, make_identity
from netprobe.record import SCHEMA, Cache, Entry, cache_folder, from_plain, to_plain
from probe.paths import SERVER, broken, path

ALL = ("shm", "unix", "tcp", "tls", "ucx", "grpc", "grpcs")
OFFER = ("shm:/run/s", "unix:/run/s", "tcp:0.0.0.0:7700", "tcp:10.0.0.1:7700", "tls:10.0.0.1:7701")


def test_a_client_elsewhere_has_no_use_for_sockets() -> None:
    found = candidates("node:7700", OFFER, Here(ALL))
    assert found.uris == ("tcp:node:7700", "tcp:10.0.0.1:7700", "tls:10.0.0.1:7701")
    assert {one.uri for one in found.dropped} == {"shm:/run/s", "unix:/run/s"}
    assert all(one.reason == "the server is on another machine" for one in found.dropped)


def test_on_the_same_machine_sockets_come_first() -> None:
    found = candidates("127.0.0.1:7700", OFFER, Here(ALL, same_host=True))
    assert found.uris[:2] == ("shm:/run/s", "unix:/run/s")


def test_what_this_release_lacks_is_left_out() -> None:
    found = candidates("node:7700", OFFER, Here(("unix", "tcp")))
    assert "tls:10.0.0.1:7701" not in found.uris
    assert "this release of the client has no tls:" in [one.reason for one in found.dropped]


def test_loopback_of_another_machine_is_not_tried() -> None:
    found = candidates("node:7700", ("tcp:127.0.0.1:7700",), Here(ALL))
    assert found.uris == ("tcp:node:7700",)


def test_rdma_only_where_there_is_some() -> None:
    assert candidates("n:1", ("ucx:n:2",), Here(ALL)).uris == ("tcp:n:1",)
    assert candidates("n:1", ("ucx:n:2",), Here(ALL, rdma=True)).uris == ("ucx:n:2", "tcp:n:1")


def test_a_token_does_not_go_in_the_clear() -> None:
    found = candidates("tls:n:2", ("tcp:n:1", "tls:n:2"), Here(ALL, secret=True))
    assert found.uris == ("tls:n:2",)
    assert "unencrypted" in found.dropped[0].reason


@pytest.mark.parametrize(
    ("endpoint", "reached", "result"),
    [
        ("tcp:0.0.0.0:7700", "tcp:node:7800", "tcp:node:7700"),
        ("tls:[::]:7701", "tcp:[fe80::1]:7700", "tls:[fe80::1]:7701"),
        ("tcp:10.0.0.1:7700", "tcp:node:1", "tcp:10.0.0.1:7700"),
        ("tcp:0.0.0.0:7700", "unix:/s", "tcp:0.0.0.0:7700"),
    ],
)
def test_an_unspecified_address_is_the_one_just_used(
    endpoint: str, reached: str, result: str
) -> None:
    assert resolved(endpoint, reached) == result


@pytest.mark.parametrize(
    ("text", "explicit"),
    [
        ("node:7700", False), ("node", False), ("[::1]:7700", False), ("tcp:node:7700", True),
        ("unix:/s", True), ("grpc:node:7700", True), ("tls:node", True),
    ],
)  # fmt: skip
def test_a_written_scheme_is_meant(text: str, explicit: bool) -> None:
    assert is_explicit(text) is explicit


def test_proxies_are_shown_without_passwords() -> None:
    environment = {"HTTPS_PROXY": "http://joe:secret@proxy:3128/x", "grpc_proxy": "proxy:1"}
    assert proxies(environment) == ["grpc_proxy=proxy:1", "https_proxy=http://proxy:3128"]
    assert "secret" not in str(proxies({"http_proxy": "http://a:secret@[::"}))


# identity


def test_a_machine_knows_itself_and_no_other() -> None:
    identity = make_identity()
    assert identity.is_here()
    assert not is_this_host(identity.nonce, host_sum(identity.nonce, "another boot"))
    assert not is_this_host(identity.nonce, host_sum(identity.nonce, None))


def test_a_server_stays_itself(tmp_path: Path) -> None:
    first, second = identity_in(tmp_path), identity_in(tmp_path)
    assert first.server == second.server
    assert first.host != second.host  # another nonce
    assert (tmp_path / "identity").stat().st_mode & 0o777 == 0o600
    (tmp_path / "identity").write_text("nonsense")
    assert identity_in(tmp_path).server != first.server


# cache


def entry(at: float = 1000.0) -> Entry:
    return Entry(at, SERVER, False, (path("tcp:a:1"), broken("tls:a:2")))


def test_the_cache_gives_back_what_was_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "deep" / "folder")
    assert cache.read("me", "a:1") is None
    cache.write("me", "a:1", entry())
    assert cache.read("me", "a:1") == entry()
    assert cache.read("me", "b:1") is None
    assert cache.read("you", "a:1") is None


def test_what_is_old_or_of_the_future_is_not_fresh() -> None:
    assert entry().fresh(1100.0)
    assert not entry().fresh(2000.0)
    assert not entry().fresh(999.0)


def test_another_schema_is_as_if_nothing_were_there(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("me", "a:1", entry())
    (file,) = tmp_path.glob("*.json")
    plain = json.loads(file.read_text())
    file.write_text(json.dumps({**plain, "schema": SCHEMA + 1}))
    assert cache.read("me", "a:1") is None


@given(st.binary(max_size=200))
def test_a_damaged_cache_is_as_if_nothing_were_there(
    tmp_path_factory: pytest.TempPathFactory, damage: bytes
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    cache = Cache(folder)
    cache.write("me", "a:1", entry())
    (file,) = folder.glob("*.json")
    data = file.read_bytes()
    file.write_bytes(damage + data[len(damage) :])
    kept = cache.read("me", "a:1")
    assert kept is None or isinstance(kept, Entry)


def test_a_cache_that_cannot_be_written_is_no_error() -> None:
    Cache(Path("/proc/nowhere")).write("me", "a:1", entry())


def test_measurements_survive_json() -> None:
    for one in (path("tcp:a:1"), broken("tls:a:2")):
        assert from_plain(json.loads(json.dumps(to_plain(one)))) == one


def test_where_the_cache_lies() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/rgpu/paths")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/rgpu/paths")
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.cache/rgpu/paths"
    )
