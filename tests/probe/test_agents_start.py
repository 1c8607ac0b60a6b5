"""Agents beside programs, as processes: what is left of an agent that fails to start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from rgpu_client.session import launch, start
from rgpu_client.session.paths import Path as ProgramPath
from rgpu_common.endpoints import GrpcEndpoint
from rgpu_common.errors import RgpuError

NOBODY = GrpcEndpoint("127.0.0.1", 1)
TWO = ProgramPath("tcp:127.0.0.1:1", "it is the first", ("tcp:127.0.0.1:2",), server=bytes(16))
# Runs before anything of an agent does.
_DIES = """
import os, signal, sys
if "--folder" in sys.orig_argv:
    with open({met!r}, "w") as file:
        file.write(str(os.getpid()))
    {how}
"""


def environment(tmp_path: Path, how: str = "") -> dict[str, str]:
    """Of a starter whose agents' folders lie in `run`, and whose agents meet their end in `how`."""
    (tmp_path / "run").mkdir(exist_ok=True)
    (tmp_path / "sitecustomize.py").write_text(_DIES.format(met=str(tmp_path / "met"), how=how))
    return {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def folders(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "run").iterdir())


@pytest.mark.parametrize("how", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
@pytest.mark.parametrize("kind", ["grpc", "paths"])
def test_an_agent_that_dies_at_its_start_leaves_no_folder(
    tmp_path: Path, how: str, kind: str
) -> None:
    said = environment(tmp_path, how)
    if kind == "grpc":
        where = launch.start_agent(NOBODY, said)
    else:
        where = start.start_agent(TWO, "127.0.0.1:1", said, False)[start.AGENT]
    assert Path(where).parent.parent == tmp_path / "run"
    wait_until(lambda: not folders(tmp_path))
    assert (tmp_path / "met").exists()


@pytest.mark.parametrize(
    "how", ["sys.modules['asyncio'] = None", "sys.modules['netprobe.survey'] = None"]
)
def test_an_agent_without_a_module_leaves_no_folder(tmp_path: Path, how: str) -> None:
    said = environment(tmp_path, how)
    if "asyncio" in how:
        launch.start_agent(NOBODY, said)
    else:
        assert start.start_agent(TWO, "127.0.0.1:1", said, False)
    wait_until(lambda: not folders(tmp_path))


def test_an_agent_that_cannot_be_executed_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = environment(tmp_path)
    # It forks as the interpreter would, which is gone by the time the agent needs it.
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nrm "$0"\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    launch.start_agent(NOBODY, said)
    wait_until(lambda: not folders(tmp_path))
    with pytest.raises(RgpuError, match="cannot be started"):
        launch.start_agent(NOBODY, said)
    assert not folders(tmp_path)


def test_an_interrupt_while_an_agent_starts_leaves_no_folder(tmp_path: Path) -> None:
    said = environment(tmp_path)
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "never")
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho > {tmp_path}/begun\nread x < {tmp_path}/never\n")
    script.chmod(0o755)
    source = f"""
import os, sys
from rgpu_client.session.launch import start_agent
from rgpu_common.endpoints import GrpcEndpoint
sys.executable = {str(script)!r}
start_agent(GrpcEndpoint("127.0.0.1", 1), os.environ)
"""
    with subprocess.Popen(
        [sys.executable, "-c", source], env=said, cwd="/", stderr=subprocess.PIPE
    ) as starter:
        assert (tmp_path / "begun").read_text() == "\n"
        assert len(folders(tmp_path)) == 1
        starter.send_signal(signal.SIGINT)
        _, errors = starter.communicate(timeout=60)
    # An interrupt within the constructor of Popen leaves the script behind: it ends here.
    with contextlib.suppress(OSError):  # nobody reads
        os.close(os.open(tmp_path / "never", os.O_WRONLY | os.O_NONBLOCK))
    assert starter.returncode == -signal.SIGINT, errors
    assert b"KeyboardInterrupt" in errors
    assert not folders(tmp_path)


@pytest.mark.parametrize("kind", ["grpc", "paths"])
def test_an_agent_that_is_told_to_end_takes_its_folder_along(tmp_path: Path, kind: str) -> None:
    said = environment(tmp_path)
    if kind == "grpc":
        where = launch.start_agent(NOBODY, said)
    else:
        where = start.start_agent(TWO, "127.0.0.1:1", said, False)[start.AGENT]
    met = tmp_path / "met"
    wait_until(lambda: met.exists() and met.read_text() != "")
    agent = int(met.read_text())
    # Its folder is its own once nobody else watches over it.
    wait_until(lambda: not children(agent))
    assert Path(where).is_socket()
    os.kill(agent, signal.SIGTERM)
    wait_until(lambda: not folders(tmp_path))


_TOLD_IN_A_CALLBACK = """
import os, signal, sys, weakref
from rgpu_client.session.detach import own_folder

class Module:
    pass

def told(reference):
    os.kill(os.getpid(), signal.SIGTERM)

folder, ready = sys.argv[1], os.open(os.devnull, os.O_WRONLY)
with own_folder(folder, ready):
    module = Module()
    watched = weakref.ref(module, told)
    del module
    print("it lives on", flush=True)
"""


def test_an_agent_is_told_to_end_where_python_ignores_exceptions(tmp_path: Path) -> None:
    """The callbacks of weak references are such places; an agent's imports have many of them."""
    folder = tmp_path / "folder"
    folder.mkdir()
    ended = subprocess.run(
        [sys.executable, "-c", _TOLD_IN_A_CALLBACK, str(folder)],
        cwd="/",
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (128 + signal.SIGTERM, ""), ended.stderr
    assert not folder.exists()


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]
