"""What `rgpu` imports before it answers or starts a program: Python's own start is the floor."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence

import pytest
from helpers.granting import granting
from helpers.server import Server

from rgpu_common import command
from rgpu_common.installing import install_words

# Runs `rgpu` up to its end, or up to where it executes a program, and prints what it imported.
# Without `site`: other packages hook themselves into that and import much.
SCRIPT = """
import os, sys
def tell(*words):
    print(*sys.modules)
    sys.stdout.flush()
    os._exit(0)
sys.path.append({site!r})
sys.argv = ["rgpu", *{arguments!r}]
os.execve = tell
from rgpu_common.entry import main
main()
tell()
"""
# Each of these takes milliseconds, or imports what does.
HEAVY = {
    "asyncio", "concurrent.futures", "dataclasses", "decimal", "difflib", "google.protobuf", "grpc",
    "importlib.metadata", "inspect", "logging", "msgspec", "netprobe.cost", "netprobe.prober",
    "rgpu_client.cluster.placing", "rgpu_client.session.watching", "secrets", "shutil", "socket",
    "subprocess", "tempfile",
}  # fmt: skip


DEPENDENCIES = ("grpc", "google", "msgspec")


def imported(*arguments: str, **environment: str) -> set[str]:
    script = SCRIPT.format(site=sysconfig.get_path("purelib"), arguments=arguments)
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        # A variable of the tests may look like a misspelt one of ours, and telling so takes imports.
        env={k: v for k, v in os.environ.items() if not k.startswith("RGPU_")} | environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_waits_for_no_command() -> None:
    found = imported("--version")
    assert not found & {*HEAVY, "argparse", "dataclasses", "rgpu_common.command", "typing"}


def test_a_program_on_this_machine_waits_for_little(tmp_path: os.PathLike[str]) -> None:
    """The address is HOST:PORT, so that the client asks the server for its paths."""
    with Server(device="emulated:64MiB") as server:
        address = server.tcp.removeprefix("tcp:")
        found = imported("run", "--", "true", RGPU_SERVER=address, HOME=str(tmp_path))
    assert "netprobe.survey" in found
    assert not found & HEAVY


def test_a_program_with_a_named_path_waits_for_little() -> None:
    with granting() as address:
        found = imported("run", "--server", address, "--", "true")
    assert not found & HEAVY


def test_a_command_of_rgpu_is_found_without_reading_other_packages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_all_commands", lambda: pytest.fail("all packages were read"))
    with pytest.raises(SystemExit):
        command.main(["token", "--help"])
    assert "usage: rgpu token" in capsys.readouterr().out


def test_commands_are_found_where_the_installer_wrote_no_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in an editable installation."""
    monkeypatch.setattr(command, "_DISTRIBUTION", "no-such-distribution-")
    with pytest.raises(SystemExit):
        command.main(["token", "--help"])
    assert "usage: rgpu token" in capsys.readouterr().out


def without(missing: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"import sys; sys.modules.update(dict.fromkeys({missing!r}));"
        f"sys.argv = ['rgpu', *{arguments!r}];"
        "from rgpu_common.entry import main; sys.exit(main())"
    )
    return subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip


def test_programs_run_where_no_dependency_is_installed() -> None:
    with granting() as address:
        done = without(DEPENDENCIES, "run", "--server", address, "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.parametrize("missing", ["grpc", "msgspec"])
def test_other_commands_name_the_package_that_is_missing(missing: str) -> None:
    done = without([missing], "ps")
    assert done.returncode == 1
    assert done.stderr == (
        f"rgpu: {missing!r} is not installed, which this command needs: {install_words()}\n"
    )
