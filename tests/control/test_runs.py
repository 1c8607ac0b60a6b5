"""A run has its lease before its program starts: its own, or one that it joins, or none and a
sentence.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.granting import answering
from helpers.runs import (
    MIB,
    NOT_STARTED,
    SHOWS,
    STAYS,
    end,
    exact,
    gone,
    leases,
    line,
    refused_before,
    run,
)
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.wire.refused import encode_refused
from rgpu_common.wire.welcome import DeviceInfo, Welcome, encode_welcome


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


def test_each_run_has_its_own_lease_with_the_memory_that_it_names(server: Server) -> None:
    with run(exact(server), "--memory", "256MiB") as first:
        assert line(first) == str(256 * MIB)
        with run(exact(server), "--memory", "64MiB") as second:
            assert line(second) == str(64 * MIB)
            assert len({lease["key"] for lease in leases(server.tcp)}) == 2
            assert end(second)[0] == 0
        assert end(first)[0] == 0
    gone(server.tcp)  # at once, without a grace


def test_all_processes_of_a_run_share_its_lease(server: Server) -> None:
    source = (
        "import os, subprocess, sys\n"
        "cuda.open(); cuda.alloc(16 << 20)\n"
        "child = 'from helpers.driver import Driver; c = Driver(); c.open(); print(*c.memory())'\n"
        "print(subprocess.check_output([sys.executable, '-c', child], text=True), flush=True)\n"
    )
    with run(exact(server), "--memory", "64MiB", source=source) as process:
        code, output, errors = end(process)
    assert (code, output.split()) == (0, [str(48 * MIB), str(64 * MIB)]), errors
    gone(server.tcp)


def test_a_run_keeps_its_lease_from_one_process_to_the_next(server: Server) -> None:
    source = (
        "import subprocess, sys\n"
        "child = 'from helpers.driver import Driver; c = Driver(); c.open(); print(c.memory()[1])'\n"
        "for _ in range(2):\n"
        "    print(subprocess.check_output([sys.executable, '-c', child], text=True).strip())\n"
        "    sys.stdout.flush(); input()\n"
    )
    with run(exact(server), "--memory", "64MiB", source=source) as process:
        assert line(process) == str(64 * MIB)
        before = [lease["lease_id"] for lease in leases(server.tcp)]
        wait_until(lambda: not any(lease["session_ids"] for lease in leases(server.tcp)))
        assert [lease["lease_id"] for lease in leases(server.tcp)] == before
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert line(process) == str(64 * MIB)
        assert [lease["lease_id"] for lease in leases(server.tcp)] == before
        end(process)
    gone(server.tcp)


@pytest.mark.parametrize(
    "option", [("--memory", "32MiB"), ("--memory", "96MiB"), ("--limit", "0.5")]
)
def test_joining_a_lease_in_use_with_other_numbers_is_refused(
    server: Server, option: tuple[str, str]
) -> None:
    with run(exact(server), "--lease", "joined", "--memory", "64MiB") as first:
        assert line(first) == str(64 * MIB)
        with run(exact(server), "--lease", "joined", *option) as second:
            code, output, errors = end(second)
        assert (code, output) == (NOT_STARTED, "")
        assert errors.count("\n") == 1
        assert "rgpu: lease 'joined' of tenant 'default' has a" in errors
        assert "was asked for: it is in use with that" in errors
        with run(exact(server), "--lease", "joined") as third:
            assert line(third) == str(64 * MIB)
            end(third)
        end(first)


def test_joining_a_lease_that_nobody_uses_gives_it_the_new_numbers(server: Server) -> None:
    for size in (64, 32):
        with run(exact(server), "--lease", "empty", "--memory", f"{size}MiB") as process:
            assert line(process) == str(size * MIB)
            end(process)


def test_a_program_without_a_wrapper_hears_of_other_numbers_too(server: Server) -> None:
    process = clients.start(server.unix, STAYS, RGPU_MEMORY="64MiB")
    with process:
        assert line(process) == str(64 * MIB)
        code, _, errors = clients.run(server.unix, SHOWS, RGPU_MEMORY="32MiB")
        assert code != 0
        assert "has a memory of 64 MiB and 32 MiB was asked for" in errors
        assert clients.run(server.unix, SHOWS)[1] == f"{64 * MIB}\n"
        end(process)


def test_a_later_process_of_a_run_that_was_resized_is_served(server: Server) -> None:
    source = (
        "import subprocess, sys\n"
        "cuda.open(); print('ready', flush=True); input()\n"
        "child = 'from helpers.driver import Driver; c = Driver(); c.open(); print(c.memory()[1])'\n"
        "print(subprocess.check_output([sys.executable, '-c', child], text=True), flush=True)\n"
    )
    with run(exact(server), "--memory", "64MiB", source=source) as process:
        assert line(process) == "ready"
        (lease,) = leases(server.tcp)
        subprocess.run(
            [rgpu_command(), "lease", "resize", str(lease["lease_id"]), "--memory", "128MiB",
             "--server", server.tcp],
            check=True, capture_output=True, timeout=60, cwd="/",
        )  # fmt: skip
        code, output, errors = end(process)
    assert (code, output.split()) == (0, [str(128 * MIB)]), errors


# The error is printed before the program starts, as the last line.


def test_a_server_that_is_not_there_ends_the_run_at_once(tmp_path: Path) -> None:
    assert "nothing listens at" in refused_before(tmp_path, "127.0.0.1:1")
    assert "nothing listens at" in refused_before(tmp_path, "tcp:127.0.0.1:1")
    assert "unix:/nowhere" in refused_before(tmp_path, "unix:/nowhere")


def test_a_size_that_the_device_has_not_ends_the_run_at_once(
    server: Server, tmp_path: Path
) -> None:
    said = refused_before(tmp_path, exact(server), "--memory", "2GiB")
    assert said.startswith("rgpu: a lease of 2 GiB does not fit on device 0")
    said = refused_before(tmp_path, exact(server), "--memory", "2GiB", "--wait")
    assert said.startswith("rgpu: a lease of 2 GiB does not fit on device 0")  # and never will
    said = refused_before(tmp_path, exact(server), "--device", "7")
    assert "there is no device 7" in said


def test_a_wrong_access_token_ends_the_run_at_once(tmp_path: Path) -> None:
    tokens_file = tmp_path / "tokens.toml"
    made = subprocess.run(
        [rgpu_command(), "token", "new", "alice", "--tokens", str(tokens_file)],
        check=True, capture_output=True, text=True, timeout=60, cwd="/",
    )  # fmt: skip
    right = made.stdout.split()[0]
    config = tmp_path / "rgpu.toml"
    config.write_text('[identity]\nrequire = "always"\n')
    with Server("--tokens", str(tokens_file), "--config", str(config)) as guarded:
        address = f"tcp:{guarded.tcp}"
        assert "token" in refused_before(tmp_path, address)
        wrong = right[:-4] + "aaaa"
        assert "token" in refused_before(tmp_path, address, RGPU_TOKEN=wrong)
        done = subprocess.run(
            [rgpu_command(), "run", "--server", address, "--", "true"],
            env={**clients.environment(None), "RGPU_TOKEN": right}, cwd="/", timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0


def test_another_version_ends_the_run_at_once(tmp_path: Path) -> None:
    sentence = "the client speaks wire version 1.2 and the server (rgpu 9) speaks 9"
    with answering(encode_refused(803, sentence)) as address:
        assert refused_before(tmp_path, address) == f"rgpu: {sentence}\n"
    with answering(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(64)) as address:
        assert "is no rgpu server" in refused_before(tmp_path, address)


def test_a_server_of_an_earlier_release_that_knows_no_claims_serves(tmp_path: Path) -> None:
    welcome = Welcome(release="0.0", devices=(DeviceInfo(name="old", total_bytes=MIB),))
    with answering(encode_welcome(welcome)) as address:
        done = subprocess.run(
            [rgpu_command(), "run", "--server", address, "--", "sh", "-c", "echo $RGPU_LEASE"],
            env=clients.environment(None), cwd="/", capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run-")


@pytest.mark.parametrize(
    "transport",
    ["shm", "tls", *(pytest.param(name, marks=pytest.mark.full) for name in ("unix", "grpc"))],
)
def test_a_run_is_checked_and_has_its_lease_over_every_transport(
    transport: str, tmp_path: Path
) -> None:
    from helpers import pki
    from helpers.agent import GRPC

    arguments = GRPC if transport == "grpc" else ()
    with Server(*arguments, tls=pki.config() if transport in ("tls", "grpc") else None) as one:
        address = one.address(transport)
        trusted = clients.trust() if transport == "tls" else {}
        done = subprocess.run(
            [rgpu_command(), "run", "--server", address, "--memory", "64MiB", "--", sys.executable,
             "-u", "-c", clients.PRELUDE + SHOWS],
            env={**clients.environment(None), **trusted}, cwd="/", capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, f"{64 * MIB}\n"), done.stderr
        gone(one.tcp)
        assert "does not fit" in refused_before(tmp_path, address, "--memory", "9GiB", **trusted)


# rgpu run --wait


def test_a_run_that_waits_is_told_its_place_and_gets_the_room(server: Server) -> None:
    whole = ("--memory", "1GiB")
    with run(exact(server), *whole) as first:
        assert line(first) == str(1024 * MIB)
        with run(exact(server), *whole, "--wait") as second:
            assert second.stderr is not None
            full = ": a lease of 1 GiB does not fit on device 0: 0 B of its 1 GiB are free, 1 GiB "
            full += "too little\n"
            assert second.stderr.readline() == "rgpu: waiting for room, place 1 of 1" + full
            with run(exact(server), *whole, "--wait=60") as third:
                assert third.stderr is not None
                assert third.stderr.readline() == (
                    "rgpu: waiting for room, place 2 of 2: others wait in line for room on device "
                    "0, and room that becomes free there is kept for them\n"
                )
                end(first)
                assert line(second) == str(1024 * MIB)
                assert third.stderr.readline() == "rgpu: waiting for room, place 1 of 1" + full
                end(second)
                assert line(third) == str(1024 * MIB)
                end(third)
    gone(server.tcp)


def test_a_run_that_leaves_the_line_lets_the_next_one_move_up(server: Server) -> None:
    with run(exact(server), "--memory", "1GiB") as first:
        assert line(first) == str(1024 * MIB)  # It has the device before another asks for it.
        with run(exact(server), "--memory", "1GiB", "--wait") as second:
            assert second.stderr is not None
            assert "waiting for room, place 1 of 1: " in second.stderr.readline()
            with run(exact(server), "--memory", "1GiB", "--wait") as third:
                assert third.stderr is not None
                assert "waiting for room, place 2 of 2: " in third.stderr.readline()
                second.send_signal(signal.SIGINT)
                assert second.wait(30) == 130
                assert "waiting for room, place 1 of 1: " in third.stderr.readline()
                end(first)
                assert line(third) == str(1024 * MIB)
    gone(server.tcp)


def test_a_run_waits_no_longer_than_it_wants_to(server: Server, tmp_path: Path) -> None:
    with run(exact(server), "--memory", "1GiB") as first:
        assert line(first) == str(1024 * MIB)
        mark = tmp_path / "started"
        done = subprocess.run(
            [rgpu_command(), "run", "--server", exact(server), "--wait=0.3", "--", "touch",
             str(mark)],
            env=clients.environment(None), cwd="/", capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
        assert done.returncode == NOT_STARTED
        assert not mark.exists()
        # The room is the first one's all the while. A busy server may look a little late.
        waited = re.search(r"\(waited for ([0-9.]+) (ms|s)\)$", done.stderr.splitlines()[-1])
        assert waited is not None, done.stderr
        assert float(waited[1]) >= (300 if waited[2] == "ms" else 1)
        # And who does not wait is told at once; the line is empty again.
        said = refused_before(tmp_path, exact(server))
        assert "0 B of its 1 GiB are free" in said
        assert said.rstrip().endswith("or wait until a lease ends, or add --wait to wait in line")


def test_a_terminal_shows_the_place_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from rgpu_client.session.check import InLine
    from rgpu_common.wire.claim import Place

    class Terminal:
        text = ""

        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    monkeypatch.setenv("COLUMNS", "60")
    terminal = Terminal()
    line = InLine(terminal)  # type: ignore[arg-type]
    line.show(None)
    assert terminal.text == ""
    line.show(Place(2, 3, "full\x1b[2J"))
    line.show(Place(1, 2, "the device is full; ask for less"))
    line.show(None)
    line.clear()
    assert terminal.text.split("\r\x1b[K") == [
        "",
        "rgpu: waiting for room, place 2 of 3, 0 s: full?[2J",
        "rgpu: waiting for room, place 1 of 2, 0 s: the device is...",
        "",
    ]


def test_a_place_that_is_repeated_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    from rgpu_client.session.check import InLine
    from rgpu_common.wire.claim import Place

    line = InLine(sys.stderr)
    for place in (Place(2, 2, "full"), Place(2, 2, "full"), Place(1, 1, "full")):
        line.show(place)
    line.clear()
    assert capsys.readouterr().err.splitlines() == [
        "rgpu: waiting for room, place 2 of 2: full",
        "rgpu: waiting for room, place 1 of 1: full",
    ]


def test_a_server_that_says_nothing_is_waited_for_aloud(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rgpu_client.session import check
    from rgpu_common.wire.claim import Place

    clock = [100.0]
    monkeypatch.setattr(check.time, "monotonic", lambda: clock[0])
    line = check.InLine(sys.stderr, "gpu:7700")
    for seconds in (0.2, 2.7, 0.2, 0.2, 5.0):
        clock[0] += seconds
        line.show(None)
    line.show(Place(1, 1, "full"))
    assert capsys.readouterr().err.splitlines() == [
        "rgpu: waiting for the server at gpu:7700 to answer",
        "rgpu: waiting for room, place 1 of 1: full",
    ]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--wait", "python", "x.py"), "--wait takes seconds, not 'python'"),
        (("--wait=-1", "--", "true"), "--wait takes seconds, not '-1'"),
        (("--wait", "--hold", "--", "true"), "leave out --wait"),
    ],
)
def test_a_wait_that_makes_no_sense(options: tuple[str, ...], sentence: str) -> None:
    done = subprocess.run(
        [rgpu_command(), "run", "--server", "tcp:127.0.0.1:1", *options],
        cwd="/", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert sentence in done.stderr
