"""The Jupyter extension in a real kernel, as a notebook talks to it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from helpers.needs import import_needed
from helpers.server import Server

from rgpu_client.notebook import Line, Watch, _line
from rgpu_common.clock import FakeClock
from rgpu_common.errors import ServerError
from rgpu_common.v1.observe_pb2 import LeaseNow

import_needed("ipykernel")
from jupyter_client.manager import KernelManager  # noqa: E402

CUDA = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), 16 << 20) == 0
"""
# No cell runs for long, as it may on a busy machine, and a server has time for its answer.
PATIENT = "import rgpu_client.notebook as own; own._SHORT_SECONDS = own._ASK_SECONDS = 60"
# Runs until the line under the cell has been shown and updated.
LONG = """
import time, rgpu_client.notebook
seen = []
shown = rgpu_client.notebook.Extension._show
def show(self, line): shown(self, line); seen.append(line)
rgpu_client.notebook.Extension._show = show
while len(seen) < 2: time.sleep(0.01)
rgpu_client.notebook.Extension._show = shown
"""


@dataclass
class Cell:
    """What a cell has shown: lines, updates of lines, printed text, errors."""

    lines: list[str] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    html: str = ""
    printed: str = ""
    error: str = ""


class Notebook:
    """A kernel; `folder` is for its sockets and files.

    The kernel has another working directory than the tests, so the path of its sockets, which
    jupyter_client takes from that of the connection file, is absolute.
    """

    def __init__(self, folder: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
        clean.update(dict.fromkeys(("IPYTHONDIR", "JUPYTER_CONFIG_DIR"), folder))
        self.manager = KernelManager(
            kernel_name="python3", transport="ipc", connection_file=f"{folder}/kernel.json"
        )
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager.kernel_spec.argv = command  # type: ignore[union-attr]
        self.manager.start_kernel(env=clean, cwd="/")
        self.client = self.manager.client()
        self.client.start_channels()
        try:
            self.client.wait_for_ready(timeout=120)
        except RuntimeError:
            self.close()
            raise

    def run(self, code: str) -> Cell:
        cell = Cell()

        def take(message: dict) -> None:  # type: ignore[type-arg]
            kind, content = message["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data"):
                text = content["data"]["text/plain"]
                (cell.lines if kind == "display_data" else cell.updates).append(text)
                cell.html = content["data"]["text/html"]
            elif kind == "stream":
                cell.printed += content["text"]
            elif kind == "error":
                cell.error = f"{content['ename']}: {content['evalue']}"

        self.client.execute_interactive(code, timeout=120, output_hook=take)
        return cell

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    # The path of a socket has at most 107 bytes; those of tmp_path can be longer.
    with tempfile.TemporaryDirectory(prefix="rgpu-kernel-") as folder:
        running = Notebook(folder)
        yield running
        running.close()


def test_a_line_under_a_cell(notebook: Notebook, server: Server) -> None:
    assert notebook.run("%load_ext rgpu_client").error == ""
    assert notebook.run(PATIENT).error == ""
    assert notebook.run("x = 1").lines == []
    assert "has no lease; rgpu_client.connect(...)" in notebook.run("%rgpu").printed

    connect = f"import rgpu_client; rgpu_client.connect('tcp:{server.tcp}', memory='64MiB')"
    assert notebook.run(connect).error == ""
    cell = notebook.run(CUDA)
    assert cell.error == ""
    (line,) = cell.lines
    assert line.startswith("rgpu: memory 16 MiB of 64 MiB, share ")
    assert line.endswith(f"rgpu emulated device over tcp:{server.tcp}")
    assert '<meter min="0" max="1" value="0.250"' in cell.html

    assert notebook.run("x = 2").lines == []
    notebook.run("own._SHORT_SECONDS = 0.5")
    cell = notebook.run(LONG)
    assert cell.error == ""
    assert len(cell.lines) == 1
    assert cell.updates
    assert {text.partition(", ")[0] for text in cell.updates} == {"rgpu: memory 16 MiB of 64 MiB"}

    notebook.run("%rgpu off")
    assert notebook.run("cuda.cuMemFree_v2(memory)").lines == []
    assert notebook.run("%rgpu").printed.startswith("rgpu: memory 0 B of 64 MiB")
    assert "%rgpu off and %rgpu on" in notebook.run("%rgpu maybe").printed
    notebook.run("%rgpu on")
    notebook.run("%unload_ext rgpu_client")
    again = "assert cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20) == 0"
    cell = notebook.run(again)
    assert (cell.lines, cell.error) == ([], "")


def test_a_server_that_is_gone_is_said_under_the_cell(notebook: Notebook) -> None:
    with Server(device="emulated:1GiB") as server:
        connect = f"import rgpu_client; rgpu_client.connect('tcp:{server.tcp}')"
        notebook.run(f"%load_ext rgpu_client\n{PATIENT}\n{connect}")
        assert notebook.run("%rgpu").printed.startswith("rgpu: memory 0 B of 256 MiB")
    assert "rgpu: nothing listens at 127.0.0.1:" in notebook.run("%rgpu").printed


def test_a_terminal_prints_one_line(server: Server, tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    cells = ["%load_ext rgpu_client", PATIENT,
             f"import rgpu_client; rgpu_client.connect('tcp:{server.tcp}')", f"exec({CUDA!r})"]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--quick"],
        input="\n".join([*cells, "exit", ""]), cwd="/", env={**clean, "IPYTHONDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout.count("rgpu: memory 16 MiB of 256 MiB, share ") == 1, done.stdout


def test_a_server_that_hangs_does_not_hold_up_every_cell() -> None:
    asked = []

    class Hanging(Watch):
        def ask(self, key: str, server: str, environment: object) -> Line:
            asked.append(server)
            self._server = server
            raise ServerError("the server does not answer")

    clock = FakeClock()
    watch = Hanging(clock)
    environment = {"RGPU_LEASE": "key", "RGPU_SERVER": "unix:/s"}
    for _ in range(3):
        line = watch.look(environment, again=False)
        assert line is not None
        assert line.text() == "rgpu: the server does not answer"
    assert len(asked) == 1
    assert watch.look(environment) is not None  # %rgpu
    assert len(asked) == 2
    clock.advance(20)
    watch.look(environment, again=False)
    watch.look({**environment, "RGPU_SERVER": "unix:/other"}, again=False)
    assert asked == ["unix:/s"] * 3 + ["unix:/other"]


def test_what_is_measured_is_rounded_and_what_was_asked_for_is_exact() -> None:
    line = Line(share_ppm=901_982, request_ppm=125_000, limit_bytes=1 << 20)
    assert "share 90% (12.5% guaranteed)" in line.text()
    waits = LeaseNow(share_1s_ppm=24_987, waiting_ppm=612_345, memory_limit_bytes=1 << 20)
    said = _line(waits, "device", "tcp").text()
    assert "share 2.5%" in said
    assert "waited 61% of the last second" in said


def test_names_of_devices_cannot_change_a_page_or_a_terminal() -> None:
    line = Line(device="\x1b[2J<script>", path="tcp", limit_bytes=1 << 20)
    assert "\x1b" not in line.text()
    assert "<script>" not in line.bundle()["text/html"]
    assert "\x1b" not in line.bundle()["text/html"]
