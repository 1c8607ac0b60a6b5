"""The services of one compose file, under the tests' own container engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from helpers.engine import Engine
from helpers.waiting import wait_until

HEALTHY_SECONDS = 300.0


class Composed:
    """services: what the file says of each service."""

    def __init__(self, engine: Engine, file: Path) -> None:
        self.engine = engine
        self._file = file
        said = yaml.safe_load(file.read_text())
        self._project = said["name"]
        self.services: dict[str, Any] = said["services"]

    def container(self, service: str) -> str:
        return f"{self._project}_{service}_1"

    def start(self, *services: str) -> None:
        """Starts services."""
        self._compose("up", "--detach", "--no-build", "--no-deps", *services)

    def up(self, *services: str) -> None:
        """Starts services, and waits until their health checks pass."""
        self.start(*services)
        for service in services:
            wait_until(partial(self.healthy, service), HEALTHY_SECONDS)

    def down(self) -> None:
        """Removes the containers, networks and volumes."""
        self._compose("down", "--volumes")

    def healthy(self, service: str) -> bool:
        """Runs the health check: podman leaves that to systemd, which need not be there."""
        check = self.engine.podman("healthcheck", "run", self.container(service), check=False)
        return check.returncode == 0

    def status(self, service: str) -> str:
        """Returns what the last health check has found."""
        look = ("inspect", "-f", "{{.State.Health.Status}}", self.container(service))
        return self.engine.podman(*look).stdout.strip()

    def inside(self, service: str, *words: str) -> str:
        """Returns what a command prints in a service's container."""
        return self.engine.podman("exec", self.container(service), *words).stdout

    def ended(self, service: str) -> tuple[str, str]:
        """Waits until a service ends; returns its exit status, and all that it has said."""
        status = self.engine.podman("wait", self.container(service)).stdout.strip()
        said = self.engine.podman("logs", self.container(service))
        return status, said.stdout + said.stderr

    def assert_nothing_is_left(self) -> None:
        """Asserts that neither containers nor volumes, networks or interfaces are left."""
        podman = self.engine.podman
        assert podman("ps", "--all", "--quiet").stdout == ""
        assert podman("volume", "ls", "--quiet").stdout == ""
        assert podman("network", "ls", "--format", "{{.Name}}").stdout.split() == ["podman"]
        assert self.engine.interfaces() == ["lo"]

    def _compose(self, *words: str) -> None:
        self.engine.compose(self._file, *words)
