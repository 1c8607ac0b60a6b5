"""The service in deploy/systemd: how far it is hardened, and that its commands are right."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

from helpers.command import run_rgpu_plain as rgpu
from helpers.needs import needs, program

from rgpu_server.config_reader import load_config

FOLDER = Path(__file__).resolve().parents[2] / "deploy/systemd"
UNIT = FOLDER / "rgpu.service"
PROGRAM = "/opt/rgpu/bin/rgpu"
CONFIG = "/etc/rgpu/server.toml"
MOST_EXPOSURE = 3.0


def commands() -> list[list[str]]:
    lines = re.findall(r"^Exec\w+=(.*)$", UNIT.read_text(), re.MULTILINE)
    return [words for line in lines if (words := shlex.split(line))[0] == PROGRAM]


@needs("systemd-analyze")
def test_its_exposure_is_small(tmp_path: Path) -> None:
    # Without folders for drop-ins beside it.
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text())
    done = subprocess.run(
        [program("systemd-analyze"), "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level for rgpu.service: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) < MOST_EXPOSURE
    assert "Unknown" not in done.stderr, done.stderr


def test_its_commands_are_accepted(tmp_path: Path) -> None:
    tokens, config = tmp_path / "tokens.toml", tmp_path / "server.toml"
    assert rgpu("token", "new", "alice", "--tokens", str(tokens)).returncode == 0
    text = (FOLDER / "server.toml").read_text()
    assert str(Path(CONFIG).parent / tokens.name) in text
    config.write_text(text.replace(str(Path(CONFIG).parent), str(tmp_path)))
    assert len(commands()) == 3
    for words in commands():
        own = [str(config) if word == CONFIG else word for word in words[1:]]
        own += [] if "--check-config" in own else ["--check-config"]
        done = rgpu(*own, "--device", "emulated:1GiB")
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(" emulated:1GiB on 0.0.0.0:7700\n")


def test_its_metrics_are_at_a_port_that_no_exporter_has() -> None:
    """Prometheus' exporters divide 9100 to 9999 among themselves; 9400 is dcgm-exporter's, which
    runs on most nodes with GPUs.
    """
    metrics = load_config(FOLDER / "server.toml", {}).metrics
    assert metrics is not None
    assert metrics.port not in range(9100, 10_000)
    root = FOLDER.parents[1]
    named = (
        "deploy/prometheus/prometheus.yml", "deploy/docker/prometheus.yml",
        "deploy/docker/Dockerfile", "deploy/kubernetes/autoscaling/scrape.yaml",
        "deploy/kubernetes/autoscaling/values.yaml", "docker-compose.yml", "docs/how-to/observe.md",
    )  # fmt: skip
    for name in named:
        text = (root / name).read_text()
        assert str(metrics.port) in text, name
        assert ":9400" not in text, name


def test_its_folder_holds_the_sockets_and_the_state() -> None:
    """/run is read-only to the service, so its socket must lie in its own folder there."""
    text = UNIT.read_text()
    assert "RuntimeDirectory=rgpu\n" in text
    assert "XDG_RUNTIME_DIR=/run/rgpu " in text
    assert load_config(None, {"listen": ("127.0.0.1:1",)}).state == ""  # by port, in /run/rgpu
