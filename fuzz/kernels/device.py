"""Kernels on a server of their own, through the client's library."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers import clients
from helpers.server import Server
from typing_extensions import Self

FOLDER = Path(__file__).resolve().parent.parent
SECONDS = 120
CANARY = bytes(range(256)) * 256


class Device:
    """A server with one emulated device, and a neighbour in a session of its own.

    `run` gives what a kernel did.  A kernel that ends its context ends the client process too; the
    next one gets a new client.  At the end the neighbour's memory must be what it was.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="rgpu-fuzz-")
        configuration = Path(self._folder.name) / "rgpu.toml"
        configuration.write_text("[emulated]\nlaunch_seconds = 2\n")
        self._server = Server("--config", str(configuration))
        self._client: subprocess.Popen[str] | None = None
        self._neighbour: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._server.__enter__()
        self._neighbour = clients.start(
            self._server.unix,
            f"""
            canary = bytes(range(256)) * {len(CANARY) // 256}
            cuda.open()
            place = cuda.alloc(len(canary))
            cuda.upload(place, canary)
            print("ready")
            wait_for_line()
            print(cuda.download(place, len(canary)) == canary)
            """,
        )
        assert self._neighbour.stdout is not None
        assert self._neighbour.stdout.readline() == "ready\n"
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        try:
            self._end_client()
            assert self._neighbour is not None
            output, errors = self._neighbour.communicate("\n", timeout=SECONDS)
            assert output == "True\n", f"the neighbour's memory has changed: {output}{errors}"
            assert self._server.process is not None
            assert self._server.process.poll() is None, "".join(self._server.log)
        finally:
            self._server.stop()
            self._folder.cleanup()

    def _start_client(self) -> subprocess.Popen[str]:
        environment = clients.environment(self._server.unix)
        environment["PYTHONPATH"] = f"{FOLDER}:{environment['PYTHONPATH']}"
        return subprocess.Popen(
            [sys.executable, "-u", "-m", "kernels.client"],
            env=environment,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # each illegal address is said there
            text=True,
        )

    def _end_client(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.communicate(timeout=SECONDS)

    def run(self, ptx: str, given: bytes, out: int, grid: int, block: int) -> dict[str, Any]:
        """The client's answer."""
        if self._client is None:
            self._client = self._start_client()
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        task = {"ptx": ptx, "in": given.hex(), "out": out, "grid": grid, "block": block}
        self._client.stdin.write(json.dumps(task) + "\n")
        self._client.stdin.flush()
        line = self._client.stdout.readline()
        assert line, "the client process died"
        answer: dict[str, Any] = json.loads(line)
        if not answer["usable"]:
            self._end_client()
        return answer
