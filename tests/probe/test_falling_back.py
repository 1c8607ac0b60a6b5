"""The paths that a program falls back on, and that its agent measures, when paths do not work. In
process, as if the server were on another machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from netprobe import survey as surveying
from netprobe.prober import Measurement, ProbeBudget, measure
from netprobe.record import Entry
from netprobe.survey import find, quick
from probe.conftest import Listen
from probe.paths import broken
from probe.slow import SlowProxy
from rgpu_client.session import paths as choosing
from rgpu_client.session.paths import find_path
from rgpu_client.session.start import on_path

pytestmark = pytest.mark.usefixtures("elsewhere", "patient")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than the start of a program waits for what works."""
    monkeypatch.setattr(choosing, "quick", lambda uris, server: quick(uris, server, 5.0))


def test_a_server_is_found_where_it_answered_before(
    listen: Listen, environment: dict[str, str]
) -> None:
    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.0)
        named = proxy.uri.removeprefix("tcp:")
        try:
            assert find_path(named, "auto", environment).worth_watching
        finally:
            proxy.close()
        aged(environment, named, 86400)
        assert find_path(named, "auto", environment).uri == responder.tcp
    # With another one there it is the address that was named.
    with listen("listen", f"127.0.0.1:{responder.port}"):
        assert find_path(named, "auto", environment).uri == named


def test_a_path_that_broke_is_one_to_fall_back_on(
    listen: Listen, environment: dict[str, str]
) -> None:
    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.0)
        named = proxy.uri.removeprefix("tcp:")
        try:
            find_path(named, "auto", environment)
        finally:
            proxy.close()
        aged(environment, named, 3600)
        for reason in ("the only one of 2 paths that works", r"measured \d+ s ago"):
            path = find_path(named, "auto", environment)
            assert (path.uri, path.others) == (responder.tcp, (proxy.uri,))
            assert re.search(reason, path.reason)
            assert path.worth_watching
            assert path.variables()["RGPU_PATHS"] == proxy.uri
        # After two days another machine may have the address, so no program sends a session's
        # secret there.
        aged(environment, named, 2 * 86400)
        path = find_path(named, "auto", environment)
        assert (path.uri, path.others) == (responder.tcp, ())


def aged(environment: dict[str, str], named: str, seconds: float) -> None:
    """Makes the stored measurement older."""
    kept = surveying.memory(environment)
    entry = kept.read(named)
    assert entry is not None
    seen = {uri: at - seconds for uri, at in entry.seen.items()}
    kept.write(named, entry._replace(at=entry.at - seconds, seen=seen))


def test_nobody_falls_back_on_where_the_server_was_never_seen(
    listen: Listen, environment: dict[str, str]
) -> None:
    with listen() as responder:
        offer = find(responder.tcp).offer
        works = measure(responder.tcp, ProbeBudget(seconds=0.03))
        down = [replace(broken(f"tcp:127.0.0.1:{port}"), server=who)
                for port, who in ((1, b""), (2, offer.server), (3, bytes(16)))]  # fmt: skip
        entry = Entry(time.time(), offer.server, False, (works, *down))
        surveying.memory(environment).write("127.0.0.1:9", entry)
        path = find_path("127.0.0.1:9", "auto", environment)
    assert (path.uri, path.others) == (responder.tcp, ("tcp:127.0.0.1:2",))
    assert path.worth_watching
    assert not path.unseen


def test_paths_that_are_too_slow_for_the_start_are_for_the_agent(
    listen: Listen,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_slow(uris: tuple[str, ...], server: bytes) -> tuple[Measurement, ...]:
        return tuple(broken(uri, "it did not answer in time") for uri in uris)

    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.0)
        named = proxy.uri.removeprefix("tcp:")
        try:
            with monkeypatch.context() as slow:
                slow.setattr(choosing, "quick", too_slow)
                path = find_path(named, "auto", environment)
                assert (path.uri, path.others, path.unseen) == (proxy.uri, (), (responder.tcp,))
                assert path.worth_watching
            # Once they were measured, each is known to lead there.
            assert find_path(named, "auto", environment).others
            with monkeypatch.context() as slow:
                slow.setattr(choosing, "quick", too_slow)
                aged(environment, named, 3600)
                path = find_path(named, "auto", environment)
                assert (path.uri, path.others, path.unseen) == (proxy.uri, (responder.tcp,), ())
        finally:
            proxy.close()


def test_a_program_that_starts_while_a_path_is_down_has_an_agent(
    listen: Listen, environment: dict[str, str], tmp_path: Path
) -> None:
    with listen() as responder:
        proxy = SlowProxy(responder.port, 0.0)
        named = proxy.uri.removeprefix("tcp:")
        try:
            find_path(named, "auto", environment)
        finally:
            proxy.close()
        aged(environment, named, 3600)
        given = on_path({**environment, "XDG_RUNTIME_DIR": str(tmp_path)}, named, None, False)
        assert given["RGPU_SERVER"] == responder.tcp
        assert given["RGPU_PATHS"] == proxy.uri
        where = Path(given["RGPU_AGENT"])
        wait_until(lambda: bool(agents_at(where.parent)))
        (agent,) = agents_at(where.parent)
        words = Path(f"/proc/{agent}/cmdline").read_text().split("\0")
        assert words[words.index("--") + 1 :] == [responder.tcp, proxy.uri, ""]
        os.kill(agent, signal.SIGTERM)
        wait_until(lambda: not where.parent.exists())


def agents_at(folder: Path) -> list[int]:
    """Returns the agents that own the folder. They have no waiting child any more."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_text().split("\0")
            children = (entry / "task" / entry.name / "children").read_text()
            if words[1:2] == ["-m"] and str(folder) in words and not children:
                found.append(int(entry.name))
    return found
