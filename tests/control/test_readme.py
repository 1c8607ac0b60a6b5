"""The commands that the README gives a newcomer, run as they are printed there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from helpers import clients
from helpers.server import Server

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
_BLOCK = re.compile(r"```sh\n(.*?)```", re.DOTALL)


def blocks(title: str) -> list[str]:
    """The commands of a section, a block each."""
    _, _, rest = README.partition(f"# {title}\n")
    return _BLOCK.findall(re.split(r"^##+ ", rest, maxsplit=1, flags=re.MULTILINE)[0])


def sh(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh", "-e", "-c", script], env={**clients.environment(None), "PATH": path, **variables},
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_the_two_terminals(tmp_path: Path) -> None:
    """Another port, since 7700 may be taken here, is all that differs."""
    server, program = blocks("In two terminals")
    command, *options = shlex.split(server)
    assert (command, options[0]) == ("rgpu", "serve")
    with Server(*options[1:]) as running:
        done = sh(program, tmp_path, RGPU_SERVER=running.tcp)
    assert done.returncode == 0, done.stderr
    assert "rgpu" not in done.stderr.replace(str(tmp_path), "").replace(sys.prefix, "")
    printed = re.search(r"It prints `(.*?)`", README)
    assert printed is not None
    assert done.stdout.strip() == printed[1]


def test_the_servers_and_the_clients_commands_fit_together(tmp_path: Path) -> None:
    """The access token that the server's block makes is the one that the client's block shows."""
    node, client, _ = blocks("Use it")
    new, serve = (line for line in node.splitlines() if line.startswith("rgpu "))
    home = {"HOME": str(tmp_path)}
    file = tmp_path / "tokens.toml"
    made = sh(f"{new.partition('#')[0]} --tokens {file}", tmp_path, **home)
    assert made.returncode == 0, made.stderr
    assert serve.startswith("rgpu serve --listen 0.0.0.0:7700 ")
    export = next(line for line in client.splitlines() if line.startswith("export "))
    run = next(line for line in client.splitlines() if line.startswith("rgpu run "))
    always = tmp_path / "rgpu.toml"
    always.write_text('[identity]\nrequire = "always"\n')
    with Server("--tokens", str(file), "--config", str(always)) as running:
        words = run.partition(" -- ")[0].replace("gpu-node:7700", f"tcp:{running.tcp}")
        done = sh(f"{export}\n{words} -- true", tmp_path, **home)
        assert done.returncode == 0, done.stderr
        assert sh(f"{words} -- true", tmp_path, **home).returncode == 125


def test_the_folder_of_the_library_is_printed_in_a_checkout_too() -> None:
    *_, folder = blocks("Use it")
    done = sh(folder, Path(__file__).resolve().parents[2])
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip(), "libcuda.so.1").is_file()
