"""Runs docker-compose.yml without a container engine: `make demo-cluster`, as root.

python examples/cluster [--verbose] [FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import compose
import containers
import make_secrets
from containers import ClusterError, Container, Switch

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).resolve().parents[2]
LAST = "report"
START_SECONDS = 30.0
STOP_SECONDS = 10.0
_PROGRAMS = {
    "openssl": "openssl",
    "rgpu": "rgpu-cuda (python -m pip install .)",
    "netprobe": "rgpu-cuda (python -m pip install .)",
}
# Programs of Debian that services are.
_DEBIAN = {"nginx": "nginx-light (Debian)", "prometheus": "prometheus (Debian)"}


@dataclass
class Running:
    """A started service, and what it has said."""

    service: compose.Service
    container: Container
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)


class Cluster:
    """Everything that runs, and how it ends."""

    def __init__(self, project: compose.Project, folder: Path, verbose: bool) -> None:
        self._project, self._folder, self._verbose = project, folder, verbose
        self._stack = contextlib.ExitStack()
        self._started = time.monotonic()
        self.running: dict[str, Running] = {}
        self._well: set[str] = set()
        # Service -> network -> IPv4 and IPv6 address.
        self._addresses: dict[str, dict[str, list[str]]] = {}
        for number, network in enumerate(project.networks):
            there = (one for one in project.services if network.name in one.networks)
            for place, one in enumerate(there, 2):
                both = [f"10.90.{number}.{place}", str(network.subnet[place])]
                self._addresses.setdefault(one.name, {})[network.name] = both

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:5.1f} s  {text}", flush=True)

    def up(self) -> int:
        """Starts all services in order, and waits for the last one; its exit code."""
        switch = Switch([network.name for network in self._project.networks])
        self._stack.callback(switch.close)
        for volume in self._project.volumes:
            (self._folder / volume).mkdir()
        for service in self._project.order():
            self._wait_healthy([name for name, healthy in service.after.items() if healthy])
            self._start(service, switch)
        return self.running[LAST].process.wait()

    def down(self) -> None:
        """Ends everything: the clients' side first."""
        for one in reversed(list(self.running.values())):
            containers.stop(one.process, STOP_SECONDS)
        self._stack.close()

    def _start(self, service: compose.Service, switch: Switch) -> None:
        container = Container(service.name, self._mounts(service), read_only=True)
        self._stack.callback(container.close)
        mine = self._addresses.get(service.name, {})
        for network, (four, six) in mine.items():
            switch.plug(container, network, [f"{four}/24", f"{six}/64"])
        process = container.start(service.words, service.user, service.environment)
        one = Running(service, container, process)
        self.running[service.name] = one
        reader = threading.Thread(target=self._read, args=(one,))
        reader.start()
        self._stack.callback(reader.join)
        where = ", ".join(f"{network} {' '.join(both)}" for network, both in mine.items())
        self.say(f"{service.name} runs ({where or 'no network'})")

    def _mounts(self, service: compose.Service) -> list[tuple[str, str, bool]]:
        hosts = self._folder / f"hosts-{service.name}"
        hosts.write_text(self._hosts(service))
        mounts = [(str(hosts), "/etc/hosts", True)]
        for mount in service.mounts:
            source = str(self._folder / mount.source) if mount.volume else mount.source
            if mount.volume:
                os.chown(source, service.user, service.user)
            mounts.append((source, mount.target, mount.read_only))
        secrets = self._project.secrets
        return mounts + [(str(secrets[n]), f"/run/secrets/{n}", True) for n in service.secrets]

    def _hosts(self, service: compose.Service) -> str:
        """Who is to be seen: the services on the same networks, as an engine's DNS has it."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for name, places in self._addresses.items():
            shared = [places[network] for network in service.networks if network in places]
            lines += [f"{address} {name}" for address in shared[0]] if shared else []
        return "\n".join(lines) + "\n"

    def _read(self, one: Running) -> None:
        assert one.process.stdout is not None
        with one.process.stdout as output:
            for line in output:
                one.lines.append(line)
                if one.service.name == LAST:
                    print(line, end="", flush=True)
                elif self._verbose:
                    print(f"[{one.service.name}] {line}", end="", flush=True)

    def _wait_healthy(self, names: list[str]) -> None:
        """Runs the health checks until they pass; ClusterError if they do not."""
        deadline = time.monotonic() + START_SECONDS
        for name in names:
            one = self.running[name]
            while name not in self._well:
                if self._healthy(one):
                    self._well.add(name)
                    self.say(f"{name} is healthy")
                elif one.process.poll() is not None or time.monotonic() > deadline:
                    raise ClusterError(f"{name} did not become healthy:\n{''.join(one.lines)}")
                else:
                    time.sleep(0.1)

    def _healthy(self, one: Running) -> bool:
        check = one.container.start(one.service.health, one.service.user, {})
        try:
            check.communicate(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        finally:
            if check.poll() is None:
                check.kill()
                check.communicate()
        return check.returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo-cluster", description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="print what every container says")
    parser.add_argument(
        "file", nargs="?", type=Path, default=ROOT / "docker-compose.yml", metavar="FILE",
        help="another file for docker compose",
    )  # fmt: skip
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        containers.check()
        _check(_PROGRAMS)
        return run(asked.file, asked.verbose)
    except (ClusterError, compose.ComposeError) as error:
        print(f"demo-cluster: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("demo-cluster: stopped", file=sys.stderr)
    return 1


def _check(needed: dict[str, str]) -> None:
    """ClusterError if programs are missing. needed: name -> what installs it."""
    missing = sorted({how for name, how in needed.items() if not containers.find(name)})
    if missing:
        raise ClusterError(f"the demo needs {', '.join(missing)}: install them first")


def run(file: Path, verbose: bool) -> int:
    """The whole demo, in a folder that is gone afterwards; its exit code."""
    with tempfile.TemporaryDirectory(prefix="rgpu-cluster-") as name:
        folder = Path(name)
        secrets = folder / "secrets"
        make_secrets.make(secrets)
        project = compose.read(file, {**os.environ, "RGPU_SECRETS": str(secrets)})
        programs = {service.words[0] for service in project.services}
        _check({name: how for name, how in _DEBIAN.items() if name in programs})
        cluster = Cluster(project, folder, verbose)
        try:
            status = cluster.up()
        finally:
            cluster.down()
            cluster.say("everything has ended")
        if status != 0:
            tell_more(cluster)
        return status


def tell_more(cluster: Cluster) -> None:
    """What the containers said last, for who has to find out why it went wrong."""
    for one in cluster.running.values():
        print(f"--- {one.service.name}, exit code {one.process.returncode}")
        print("".join(one.lines[-20:]), end="")


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
