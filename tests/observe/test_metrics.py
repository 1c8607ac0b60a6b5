"""The metrics of a server: counters that survive ended leases and restarts, and GPUManager's
metrics.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.server import Server
from helpers.waiting import wait_until

from observe import page

COPIED = 4096
COPIES = f"""
cuda.open()
held = cuda.alloc(1 << 20)
cuda.upload(held, bytes({COPIED}))
cuda.upload(held, bytes({COPIED}))
cuda.synchronize()
"""
HOLDS = COPIES + "print('ready', flush=True)\nwait_for_line()\n"


def copies(server: Server, **options: str) -> None:
    code, _, errors = clients.run(server.unix, COPIES, **options)
    assert code == 0, errors


def holds(address: str, **options: str) -> subprocess.Popen[str]:
    process = clients.start(address, HOLDS, **options)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == "ready\n", line
    return process


def written(path: Path) -> str:
    """What a file has so far.  The server makes it a little after it has begun."""
    with suppress(FileNotFoundError):
        return path.read_bytes().decode(errors="replace")
    return ""


def config(folder: Path, text: str) -> str:
    path = folder / "rgpu.toml"
    path.write_text(text)
    return str(path)


def test_a_tenant_keeps_what_its_ended_leases_did(tmp_path: Path) -> None:
    grace = config(tmp_path, "[leases]\ngrace_seconds = 0\n")
    with Server("--metrics", "127.0.0.1:0", "--config", grace) as server:
        for key in ("a", "b"):
            copies(server, RGPU_TENANT="alice", RGPU_LEASE=key)
            wait_until(lambda: not page.values(page.text(server), "rgpu_copies_total"))
        text = page.text(server)
        assert page.value(text, "rgpu_tenant_copies_total", tenant="alice") == 4
        assert page.value(text, "rgpu_tenant_copied_bytes_total", tenant="alice") == 4 * COPIED
        assert page.value(text, "rgpu_tenant_sessions", tenant="alice") == 0
        assert page.value(text, "rgpu_tenant_memory_used_bytes", tenant="alice") == 0


def test_health_is_not_answered_before_sessions_can_be_opened() -> None:
    """A server that cannot listen at all its addresses never reports that it is healthy."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"grpc:127.0.0.1:{taken.getsockname()[1]}"
        server = Server("--insecure", "--metrics", "127.0.0.1:0", "--listen", place)
        with pytest.raises(RuntimeError, match="did not start") as error, server:
            pass
    assert "in use" in str(error.value)
    assert "metrics on" not in str(error.value)


def test_totals_go_on_over_a_crash_of_the_daemon(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    state, address = tmp_path / "state", f"unix:{tmp_path}/s"
    options = ("--state-dir", str(state), "--listen", address, "--metrics", "127.0.0.1:0",
               "--config", config(tmp_path, "[leases]\ngrace_seconds = 0\n"))  # fmt: skip
    with Server(*options) as first:
        code, _, errors = clients.run(address, COPIES, RGPU_TENANT="alice", RGPU_LEASE="ended")
        assert code == 0, errors
        kept = holds(address, RGPU_TENANT="alice", RGPU_LEASE="kept")
        wait_until(lambda: len(page.values(page.text(first), "rgpu_copies_total")) == 1)
        wait_until(lambda: "kept" in written(state / "usage.record"))
        assert page.value(page.text(first), "rgpu_tenant_copies_total", tenant="alice") == 4
        wait_until(lambda: '"alice",0' in written(state / "usage.totals"))
        wait_until(lambda: f",4,{4 * COPIED}," in written(state / "usage.totals"))
        assert first.process is not None
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        with Server(*options) as second:
            text = page.text(second)
            assert page.value(text, "rgpu_tenant_copies_total", tenant="alice") == 4
            assert page.value(text, "rgpu_copies_total", key="kept") == 2
            kept.communicate("\n")
            wait_until(lambda: not page.values(page.text(second), "rgpu_copies_total"))
            assert page.value(page.text(second), "rgpu_tenant_copies_total", tenant="alice") == 4
    assert not state.exists()


@pytest.mark.full
def test_the_record_can_be_kept_elsewhere_for_good(tmp_path: Path) -> None:
    folder = tmp_path / "record"
    options = ("--config", config(tmp_path, f"[record]\nfolder = '{folder}'\nsize = '1MiB'\n"))
    with Server(*options) as server:
        process = holds(server.unix, RGPU_LEASE="job")
        record = folder / "usage.record"
        wait_until(lambda: record.exists() and record.stat().st_size > 1000)
        process.communicate("\n")
    assert record.stat().st_size > 1000


def test_gpumanagers_metrics_where_they_are_asked_for(tmp_path: Path) -> None:
    path = config(tmp_path, '[metrics]\nlisten = "127.0.0.1:0"\ngpumanager = true\n')
    with Server("--config", path) as server:
        options = {"RGPU_SHARE": "0.25", "RGPU_MEMORY": "512MiB"}
        process = holds(server.unix, RGPU_TENANT="alice", RGPU_LEASE="job", **options)
        text = page.text(server)
        who = {"namespace": "alice", "pod_name": "job", "container_name": "job"}
        assert page.value(text, "container_gpu_memory_total", gpu_memory="gpu0", **who) == 1
        assert page.value(text, "container_gpu_memory_total", gpu_memory="total", **who) == 1
        assert page.value(text, "container_request_gpu_memory", **who) == 512
        assert page.value(text, "container_request_gpu_utilization", **who) == 0.25
        assert 0 <= page.value(text, "container_gpu_utilization", gpu="total", **who) <= 100
        assert "# TYPE container_gpu_memory_total gauge" in text
        process.communicate("\n")


def test_gpumanagers_metrics_are_not_there_by_default() -> None:
    with Server("--metrics", "127.0.0.1:0") as server:
        assert "container_gpu" not in page.text(server)


def test_every_metric_is_in_the_documentation() -> None:
    text = pki.config(more='[metrics]\nlisten = "127.0.0.1:0"\ngpumanager = true\n')
    docs = (Path(__file__).resolve().parents[2] / "docs/how-to/observe.md").read_text()
    named = set(re.findall(r"`([a-z][a-z0-9_]+)`", docs))
    with Server(tls=text) as server:
        process = holds(server.unix, RGPU_LEASE="job")
        wait_until(lambda: "rgpu_token_loop_silent_seconds" in page.text(server))
        families = re.findall(r"^# TYPE (\S+) \S+$", page.text(server), re.MULTILINE)
        process.communicate("\n")
    shown = {name.removeprefix("rgpu_tenant_").removeprefix("rgpu_") for name in families}
    assert len(shown) > 40
    known = {name.removeprefix("rgpu_tenant_").removeprefix("rgpu_") for name in named}
    assert shown <= known, sorted(shown - known)
