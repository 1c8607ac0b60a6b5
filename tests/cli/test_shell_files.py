"""Man pages and the shells' completion: fresh, complete, and at work in real shells."""

from __future__ import annotations

import os
import pty
import runpy
import select
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from helpers.command import rgpu_command
from helpers.command import run_rgpu_plain as rgpu
from helpers.needs import needs
from helpers.server import Server

ROOT = Path(__file__).resolve().parents[2]
MAN = ROOT / "docs" / "man"
COMPLETIONS = ROOT / "rgpu_client" / "completions"
PATH = f"{Path(rgpu_command()).parent}:{os.environ['PATH']}"
DEADLINE_SECONDS = 30.0


@pytest.mark.skipif(
    sys.version_info >= (3, 13), reason="argparse of Python 3.13 writes options in another form"
)
def test_the_files_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # the script sets it, for this process too
    written = runpy.run_path(str(ROOT / "scripts" / "gen_shell_files.py"))
    for folder, texts in ((MAN, written["pages"]()), (COMPLETIONS, written["completions"]())):
        there = {path.name: path.read_text() for path in folder.iterdir()}
        assert there == texts, "run make man"


def test_each_command_has_a_page_and_is_completed() -> None:
    overview = (MAN / "rgpu.1").read_text().replace("\\-", "-")
    for point in entry_points(group="rgpu.commands"):
        assert (MAN / f"rgpu-{point.name}.1").is_file()
        assert f".B rgpu-{point.name}(1)\n" in overview
        for path in COMPLETIONS.iterdir():
            assert point.name in path.read_text()


@needs("man")
@pytest.mark.parametrize("page", sorted(path.name for path in MAN.glob("*.1")))
def test_a_page_is_shown_without_a_complaint(page: str) -> None:
    done = subprocess.run(
        ["man", "--warnings=w", "-E", "UTF-8", "-l", str(MAN / page)],
        env={"PATH": PATH, "MANWIDTH": "80", "MANPAGER": "cat", "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "cannot adjust line" not in done.stderr
    assert "can't break line" not in done.stderr
    assert page.removesuffix(".1").upper() in done.stdout.splitlines()[0]


def bash(words: list[str]) -> set[str]:
    """Returns what bash offers for the last word."""
    quoted = " ".join(f"'{word}'" for word in words)
    before = words[-2] if len(words) > 1 else ""
    script = (
        f"source <(rgpu completion bash); COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; "
        f"_shtab_rgpu rgpu '{words[-1]}' '{before}'; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return set(_shell("bash", "-c", script).split())


def fish(words: list[str]) -> set[str]:
    """Returns what fish offers for the last word."""
    script = f"rgpu completion fish | source; complete -C '{' '.join(words)}'"
    return {line.partition("\t")[0] for line in _shell("fish", "-c", script).splitlines()}


def _shell(*command: str) -> str:
    done = subprocess.run(
        command, env={**os.environ, "PATH": PATH}, cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("complete", [bash, pytest.param(fish, marks=needs("fish"))])
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("rgpu doc", {"doctor"}),
        ("rgpu lease res", {"resize", "resume"}),
        ("rgpu run --pol", {"--policy"}),
        ("rgpu run --policy ", {"fixed", "burst", "best-effort", "none"}),
        ("rgpu help trans", {"transports"}),
        ("rgpu serve --config /etc/host", {"/etc/hosts"}),
    ],
)
def test_a_shell_completes(
    complete: Callable[[list[str]], set[str]], line: str, offered: set[str]
) -> None:
    found = complete(line.split(" "))
    assert found >= offered
    if not line.endswith("host"):
        assert found == offered


def test_a_shell_completes_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server() as server:
        for key in ("train", "my_run.2", "a b", "$(id)"):
            assert rgpu("lease", "grant", key, "--server", server.tcp).returncode == 0
        monkeypatch.setenv("RGPU_SERVER", server.tcp)
        assert bash(["rgpu", "lease", "revoke", "tr"]) == {"train"}
        offered = set(rgpu("completion", "leases", RGPU_SERVER=server.tcp).stdout.split("\n"))
        assert {one for one in offered if not one.startswith("lease-")} == {"", "train", "my_run.2"}
    assert rgpu("completion", "leases", RGPU_SERVER="127.0.0.1:1").stdout == ""


@needs("zsh")
def test_zsh_completes(tmp_path: Path) -> None:
    (tmp_path / "_rgpu").write_text(rgpu("completion", "zsh").stdout)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="dumb", PATH=PATH, ZDOTDIR=str(tmp_path), HOME=str(tmp_path))
        os.execvp("zsh", ["zsh", "-f", "-i"])
    try:
        os.write(terminal, f"fpath=({tmp_path} $fpath); autoload -U compinit\n".encode())
        os.write(terminal, b"compinit -u -D; echo compinit is $?\n")
        until(terminal, "compinit is 0\r\n")
        os.write(terminal, b"rgpu help trans\t")
        until(terminal, "ports")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def until(terminal: int, text: str) -> None:
    """Reads what the shell shows until it has shown a text."""
    end, shown = time.monotonic() + DEADLINE_SECONDS, ""
    while text not in shown:
        ready, _, _ = select.select([terminal], [], [], max(end - time.monotonic(), 0))
        assert ready, shown
        shown += os.read(terminal, 65536).decode(errors="replace")


def test_a_file_that_is_not_installed_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    from rgpu_client import completion
    from rgpu_common.command import main

    monkeypatch.setattr(completion, "SHELLS", {"bash": "gone"})
    assert main(["completion", "bash"]) == 1


def test_the_version_loads_none_of_it() -> None:
    script = (
        "import sys; from rgpu_common.command import main; main(['--version']); "
        "print(*(name.partition('.')[0] for name in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd="/", capture_output=True, text=True, timeout=60,
        check=True,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    assert "rgpu_common" in loaded
    assert not loaded & {"shtab", "argparse_manpage", "pydoc", "grpc", "rgpu_client", "rgpu_server"}
