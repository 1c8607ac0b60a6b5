"""Two managers of which one leads, as processes."""

from __future__ import annotations

import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from lightkube import ApiError
from lightkube.resources.coordination_v1 import Lease

from helpers.command import rgpu_command
from helpers.ends import killed
from helpers.kubernetes import ControlPlane
from helpers.waiting import wait_until

_ADDRESS = "127.0.0.1:{}"


class Replica:
    """One manager; the one that leads listens at the address of both."""

    def __init__(self, name: str, address: str, config: Path, log: Path) -> None:
        self.name = name
        self._log = log
        self._command = [
            rgpu_command(), "manager", "--listen", address, "--kubernetes", "--kubeconfig", str(config),
            "--namespace", "rgpu-system", "--config", str(self._settings(log.parent)),
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    def _settings(self, folder: Path) -> Path:
        path = folder / f"{self.name}.toml"
        path.write_text(f'[kubernetes]\nidentity = "{self.name}"\n')
        return path

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self) -> None:
        assert self.process is not None
        killed(self.process)

    def told(self) -> str:
        """Returns the end of its log."""
        return f"--- {self.name}\n{self._log.read_text()[-3000:]}"

    def ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None


class Replicas:
    """address: that of the first; the second has it too, unless each has its own."""

    def __init__(self, plane: ControlPlane, folder: Path, *ports: int) -> None:
        self.address = _ADDRESS.format(ports[0])
        self._client = plane.client()
        # That of an earlier test names replicas that are gone.
        with suppress(ApiError):
            self._client.delete(Lease, "rgpu-manager", namespace="rgpu-system")
        config = plane.kubeconfig_file("placer")
        self.all = [
            Replica(name, _ADDRESS.format(port), config, folder / f"{name}.log")
            for name, port in (("one", ports[0]), ("two", ports[-1]))
        ]
        for one in self.all:
            one.start()

    def leader(self) -> Replica | None:
        """Returns the replica that the Lease names."""
        try:
            lease = self._client.get(Lease, "rgpu-manager", namespace="rgpu-system")
        except ApiError:
            return None
        holder = lease.spec.holderIdentity if lease.spec else ""
        return next((one for one in self.all if one.name == holder), None)

    def led(self) -> Replica:
        """Waits until one leads that lives."""

        def found() -> bool:
            leader = self.leader()
            return leader is not None and not leader.ended()

        wait_until(found, 60)
        leader = self.leader()
        assert leader is not None
        return leader

    def restart_ended(self) -> None:
        """Starts again what has ended, as Kubernetes does."""
        for one in self.all:
            if one.ended():
                one.start()
