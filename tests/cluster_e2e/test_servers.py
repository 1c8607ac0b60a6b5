"""`--server a,b`: `rgpu run` chooses among servers without a manager."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from helpers.command import run_rgpu_plain
from helpers.nodes import ended, started
from helpers.ports import free_port
from helpers.runs import gone, line
from helpers.server import Server


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Server]]:
    """Two servers that know nothing of each other."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(Server("--no-socket", device=f"emulated:{size}"))
            for size in ("256MiB", "1GiB")
        ]


@pytest.fixture
def named(pair: list[Server]) -> Iterator[str]:
    yield ",".join(server.tcp for server in pair)
    for server in pair:
        gone(server.tcp)


def chosen(errors: str) -> str:
    """Returns the server that `-v` names."""
    found = re.search(r"(\S+) of \d servers: ", errors)
    assert found is not None, errors
    return found[1]


def test_the_server_with_enough_memory_is_chosen(pair: list[Server], named: str) -> None:
    with started("", "--server", named, "-v", "--memory", "600MiB") as run:
        assert line(run) == str(600 << 20)
        _, _, errors = ended(run)
        assert chosen(errors) == pair[1].tcp


def test_a_second_run_goes_where_there_is_room(pair: list[Server], named: str) -> None:
    with started("", "--server", named, "-v", "--share", "80%") as first:
        line(first)
        with started("", "--server", named, "-v", "--share", "80%") as second:
            line(second)
            places = {chosen(ended(run)[2]) for run in (second, first)}
    assert places == {server.tcp for server in pair}


def test_no_room_is_refused_and_waited_for(pair: list[Server], named: str) -> None:
    with started("", "--server", named, "--share", "100%", "--memory", "600MiB") as full:
        line(full)
        wish = ("--share", "50%", "--memory", "500MiB")
        done = run_rgpu_plain("run", "--server", named, *wish, "--", "true")
        assert done.returncode != 0
        assert "wait for room with --wait" in done.stderr
        with started("", "--server", named, *wish, "--wait") as late:
            assert ended(full)[0] == 0
            assert ended(late)[1][-1] == "right"


def test_a_silent_server_is_left_out(pair: list[Server], named: str) -> None:
    silent = f"127.0.0.1:{free_port()}"
    with started("", "--server", f"{silent},{named}", "-v", "--memory", "64MiB") as run:
        line(run)
        assert chosen(ended(run)[2]) in {server.tcp for server in pair}
    done = run_rgpu_plain("run", "--server", f"{silent},{silent}0", "--", "true")
    assert done.returncode != 0


def test_environment_names_several_servers_too(named: str) -> None:
    with started("", "-v", "--memory", "64MiB", RGPU_SERVER=named) as run:
        status, lines, errors = ended(run)
        assert (status, lines[1:]) == (0, ["right"]), errors


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--near",), "use a manager"),
        (("--affinity", "x"), "use a manager"),
        (("--device", "0"), "leave out --device"),
        (("--memory", "9GiB"), "the largest card has 1 GiB"),
        (("--model", "H900"), "the pool has no H900"),
    ],
)
def test_what_several_servers_cannot_do(
    named: str, options: tuple[str, ...], sentence: str
) -> None:
    done = run_rgpu_plain("run", "--server", named, *options, "--", "true")
    assert done.returncode != 0
    assert sentence in done.stderr
