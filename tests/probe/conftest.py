"""Responders of tests: `netprobe listen`, as it is installed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from netprobe import survey as surveying

DEADLINE_SECONDS = 60


def netprobe() -> str:
    return str(Path(sys.executable).parent / "netprobe")


@dataclass
class Listening:
    """tcp, unix: URIs."""

    process: subprocess.Popen[str]
    tcp: str
    unix: str

    @property
    def port(self) -> int:
        return int(self.tcp.rpartition(":")[2])

    @property
    def shm(self) -> str:
        return f"shm:{self.path}"

    @property
    def path(self) -> str:
        return self.unix.removeprefix("unix:")


Listen = Callable[..., AbstractContextManager[Listening]]


@pytest.fixture
def listen(tmp_path: Path) -> Listen:
    """`with listen("--idle-ms", "100") as responder:` starts a responder with these limits."""

    @contextmanager
    def start(*options: str) -> Iterator[Listening]:
        path = f"unix:{tmp_path}/probe.sock"
        command = [netprobe(), "listen", "--listen", "127.0.0.1:0", "--listen", path]
        for name, value in zip(options[::2], options[1::2], strict=True):
            command += [f"--{name}", value]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/")
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"listening on (127\.0\.0\.1:\d+), ", line)
            assert found, line
            yield Listening(process, f"tcp:{found[1]}", path)
            assert process.poll() is None, "the responder died"
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(DEADLINE_SECONDS) == 0
            if process.stdout is not None:
                process.stdout.close()
        assert not (tmp_path / "probe.sock").exists()

    return start


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    folders = {"XDG_CACHE_HOME": f"{tmp_path}/cache", "XDG_STATE_HOME": f"{tmp_path}/state"}
    return {**kept, **folders}


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surveying, "is_this_host", lambda nonce, host: False)
