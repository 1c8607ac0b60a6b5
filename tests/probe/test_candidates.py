"""Which endpoints become candidates, and the cache of measurements."""

from __future__ import annotations

import errno
import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import Self

from netprobe import record
from netprobe.candidates import (
    MOST_OF_A_KIND,
    MOST_TUNNELLED,
    Here,
    candidates,
    is_explicit,
    proxies,
    resolved,
)
from netprobe.identity import host_sum, identity_in, is_this_host, make_identity
from netprobe.native import Offer
from netprobe.prober import Measurement
from netprobe.record import SCHEMA, Cache, Entry, cache_folder, from_plain, to_plain
from netprobe.survey import memory
from probe.paths import SERVER, broken, path
from rgpu_client.session import audit, paths

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


def test_an_access_token_does_not_go_in_the_clear() -> None:
    found = candidates("tls:n:2", ("tcp:n:1", "tls:n:2"), Here(ALL, secret=True))
    assert found.uris == ("tls:n:2",)
    assert "uses encrypted paths" in found.dropped[0].reason


def test_an_access_token_does_not_go_to_the_named_address_in_the_clear() -> None:
    found = candidates("n:1", ("tcp:n:1", "tls:n:2"), Here(ALL, secret=True))
    assert found.uris == ("tls:n:2",)
    # An encrypted path that cannot be used is no reason to leave out the others.
    for offered in ("tls:127.0.0.1:2", "tls:[::]:70000", "nonsense"):
        assert "tcp:n:1" in candidates("n:1", (offered,), Here(ALL, secret=True)).uris
    assert candidates("n:1", ("tls:n:2",), Here(("tcp",), secret=True)).uris == ("tcp:n:1",)
    assert candidates("127.0.0.1:1", ("tls:n:2",), Here(ALL, secret=True)).uris == (
        "tcp:127.0.0.1:1", "tls:n:2",
    )  # fmt: skip


@pytest.mark.parametrize(
    "uri",
    [
        "", "nonsense", "tcp:", "tcp:a", "tcp:a;tcp:b:1", "tcp:a b:1", "tcp:a:0", "tcp:a:65536",
        "tcp:[::1", "unix:relative", "unix:/a;unix:/b", "unix:/" + "x" * 200, "http://a:1/",
        "tcp:a:1:2", "tcp:-@:1", "a\tb:1",
    ],
)  # fmt: skip
def test_what_is_no_address_is_no_path(uri: str) -> None:
    found = candidates("node:1", (uri,), Here(ALL, same_host=True))
    assert found.uris == ("tcp:node:1",)
    assert [one.reason for one in found.dropped] == ["it is not a valid address"]


def test_so_many_paths_and_no_more() -> None:
    offered = [f"{scheme}:h{i}:7700" for scheme in ("tcp", "tls", "grpc") for i in range(60)]
    found = candidates("node:7700", offered, Here(ALL))
    kinds = [uri.partition(":")[0] for uri in found.uris]
    assert kinds.count("tcp") == MOST_OF_A_KIND + 1  # and the one that was named
    assert kinds.count("tls") == MOST_OF_A_KIND
    assert kinds.count("grpc") == MOST_TUNNELLED
    assert "the server names more than 8 tls: addresses" in {one.reason for one in found.dropped}


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
    assert is_this_host(identity.nonce, identity.host)
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


def test_who_answered_is_known_of_a_path_that_broke() -> None:
    other = bytes(16)
    now = (broken("tcp:a:1"), broken("tcp:a:2"), replace(broken("tcp:a:3"), server=other))
    before = (path("tcp:a:1"), broken("tcp:a:2"), path("tcp:a:3"), path("tcp:a:4"))
    kept = entry()._replace(paths=now).after(entry()._replace(paths=before))
    assert [one.uri for one in kept.paths] == ["tcp:a:1", "tcp:a:2", "tcp:a:3"]
    assert [one.server for one in kept.paths] == [SERVER, b"", other]
    assert not any(one.works for one in kept.paths)
    # And of one that goes on being broken.
    assert entry()._replace(paths=now).after(kept).paths == kept.paths
    assert entry().after(None) == entry()


DAY = record.MAX_UNSEEN_SECONDS


def test_who_answered_before_a_path_broke_is_known_for_a_day() -> None:
    kept = entry()._replace(paths=(path("tcp:a:1"),))

    def measured(at: float, *paths: Measurement) -> tuple[bytes, ...]:
        """Returns for each path the server that is known to answer there."""
        nonlocal kept
        kept = entry(at)._replace(paths=paths or (broken("tcp:a:1"),)).after(kept)
        return tuple(one.server for one in kept.paths)

    # However often somebody looks meanwhile.
    assert [measured(1000.0 + n * DAY / 4) for n in range(1, 5)] == [(SERVER,)] * 4
    assert measured(1001.0 + DAY) == (b"",)
    assert not kept.seen
    assert measured(1002.0 + DAY) == (b"",)
    # A server that answers again is known for another day, and only on paths that it offers.
    assert measured(2000.0 + DAY, path("tcp:a:1")) == (SERVER,)
    assert measured(2000.0 + 2 * DAY, broken("tcp:a:1"), broken("tcp:a:2")) == (SERVER, b"")
    assert kept.seen == {"tcp:a:1": 2000.0 + DAY}
    assert measured(2001.0 + 2 * DAY, broken("tcp:a:2")) == (b"",)
    assert not kept.seen


def test_who_answered_in_the_future_is_not_known() -> None:
    before = entry(5000.0)._replace(paths=(path("tcp:a:1"),))
    now = entry(4999.0)._replace(paths=(broken("tcp:a:1"),))
    assert now.after(before) == now


def test_the_cache_keeps_when_somebody_answered(tmp_path: Path) -> None:
    down = entry(5000.0)._replace(paths=(replace(broken("tcp:a:1"), server=SERVER),))
    down = down._replace(seen={"tcp:a:1": 1000.0})
    Cache(tmp_path).write("me", "a:1", down)
    assert Cache(tmp_path).read("me", "a:1") == down


def test_what_is_old_or_of_the_future_is_not_fresh() -> None:
    whole = entry()._replace(paths=(path("tcp:a:1"),))
    assert whole.fresh(1100.0)
    assert not whole.fresh(2000.0)
    assert not whole.fresh(999.0)


def test_a_path_that_did_not_work_is_looked_at_again_soon() -> None:
    assert entry().fresh(1059.0)
    assert not entry().fresh(1061.0)


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


NONSENSE = {
    "nothing": lambda plain: None,
    "a list": lambda plain: [plain],
    "nested": lambda plain: {**plain, "paths": json.loads("[" * 500 + "]" * 500)},
    "no server": lambda plain: {**plain, "server": 7},
    "an endless time": lambda plain: {**plain, "at": float("inf")},
    "a count without end": lambda plain: changed(plain, "round_trip", count=float("inf")),
    "a count that is none": lambda plain: changed(plain, "round_trip", count="9" * 5000),
    "no number": lambda plain: changed(plain, "round_trip", median=float("nan")),
    "a time that runs back": lambda plain: changed(plain, "round_trip", median=-1.0),
    "a rate without end": lambda plain: changed(plain, "up", bytes_per_second=float("inf")),
    "more than there is": lambda plain: changed(plain, "up", bytes=10**30),
    "what a terminal obeys": lambda plain: changed(plain, uri="tcp:\x1b[2J:1"),
    "no times": lambda plain: {**plain, "seen": "tcp:a:1"},
    "a time before there were any": lambda plain: {**plain, "seen": {"tcp:a:1": -1.0}},
    "no text": lambda plain: changed(plain, uri=["tcp:a:1"]),
}


def changed(plain: dict[str, Any], part: str = "", **values: object) -> dict[str, Any]:
    first = dict(plain["paths"][0])
    first = {**first, part: {**first[part], **values}} if part else {**first, **values}
    return {**plain, "paths": [first]}


@pytest.mark.parametrize("kind", NONSENSE)
def test_nonsense_in_the_cache_is_as_if_nothing_were_there(tmp_path: Path, kind: str) -> None:
    cache = Cache(tmp_path)
    cache.write("me", "a:1", entry())
    (file,) = tmp_path.glob("*.json")
    file.write_text(json.dumps(NONSENSE[kind](json.loads(file.read_text()))))
    assert cache.read("me", "a:1") is None


@pytest.mark.parametrize("text", ["[" * 200_000, "", "\0" * 300_000, "9" * 10_000])
def test_a_cache_that_is_no_json(tmp_path: Path, text: str) -> None:
    cache = Cache(tmp_path)
    cache.write("me", "a:1", entry())
    (file,) = tmp_path.glob("*.json")
    file.write_text(text)
    assert cache.read("me", "a:1") is None
    cache.write("me", "a:1", entry())
    assert cache.read("me", "a:1") == entry()


def test_what_others_may_have_written_is_not_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("me", "a:1", entry())
    (file,) = tmp_path.glob("*.json")
    tmp_path.chmod(0o777)
    assert cache.read("me", "a:1") is None
    cache.write("me", "b:1", entry())
    assert list(tmp_path.iterdir()) == [file]
    tmp_path.chmod(0o700)
    assert cache.read("me", "a:1") == entry()
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert cache.read("me", "a:1") is None


def test_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write("me", "a:1", entry())
    (file,) = tmp_path.glob("*.json")
    file.unlink()
    os.mkfifo(file)
    assert cache.read("me", "a:1") is None
    state = tmp_path / "rgpu"
    state.mkdir()
    os.mkfifo(state / "paths.jsonl")
    audit.write_down({"XDG_STATE_HOME": str(tmp_path)}, "chosen")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "replace", full)
    Cache(tmp_path).write("me", "a:1", entry())
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_a_home_or_a_place_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = f"rgpu-{os.geteuid()}"
    assert cache_folder({}) == Path(tempfile.gettempdir()) / mine / "rgpu" / "paths"

    def nowhere() -> str:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    assert cache_folder({}) is None
    cache = Cache(None)
    cache.write("me", "a:1", entry())
    assert cache.read("me", "a:1") is None
    audit.write_down({}, "chosen")


def test_an_access_token_is_not_sent_where_it_was_measured_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Answers:
        def __init__(self, uri: str, timeout: float) -> None:
            self.offer = Offer(server=SERVER)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(paths, "Line", Answers)
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    measured = (path("tcp:far:1", trip=0.001), path("tls:far:2", trip=0.01))
    memory(environment).write("far:1", Entry(time.time(), SERVER, False, measured))
    assert paths.find_path("far:1", "auto", environment).uri == "tcp:far:1"
    secret = {**environment, "RGPU_TOKEN": "x"}
    assert paths.find_path("far:1", "auto", secret).uri == "tls:far:2"
    assert "tcp:far:1" not in paths.find_path("far:1", "auto", secret).others


def test_measurements_survive_json() -> None:
    for one in (path("tcp:a:1"), broken("tls:a:2")):
        assert from_plain(json.loads(json.dumps(to_plain(one)))) == one


def test_where_the_cache_lies() -> None:
    assert cache_folder({"XDG_CACHE_HOME": "/x"}) == Path("/x/rgpu/paths")
    assert cache_folder({"HOME": "/h"}) == Path("/h/.cache/rgpu/paths")
    assert cache_folder({"XDG_CACHE_HOME": "relative", "HOME": "/h"}) == Path(
        "/h/.cache/rgpu/paths"
    )
