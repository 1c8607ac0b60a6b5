"""How fast a manager places gated pods over a real API server: 1,000 nodes with 8,000 cards.

The nodes are fake daemons with the real protocol; API server, controllers and scheduler are real
(`make k8s` builds them). Kubernetes' own limits of calls a second are lifted, because they would be
measured otherwise: the controllers that make claims from templates do 20 a second as shipped.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lightkube import AsyncClient, KubeConfig, codecs

from benchmarks.cluster.plane import ControlPlane, apply, find
from benchmarks.harness import Row, above, arguments, below, report, say
from benchmarks.server import ManagerProcess
from rgpu_cluster.kubernetes.informer import Informer

_NAMESPACE = "default"
_MANAGED = {"rgpu.dev/placement": "managed"}
_AT_ONCE = 24
_SECONDS = 300.0
_CLAIM = {
    "devices": {
        "requests": [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": "rgpu.dev",
                    "capacity": {"requests": {"core": "30", "memory": "8Gi"}},
                },
            }
        ]
    }
}


def pod(name: str) -> Any:
    """Returns a gated pod with a claim of its own."""
    return codecs.from_dict({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE, "labels": _MANAGED},
        "spec": {
            "containers": [
                {"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
            ],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "third"}],
            "schedulingGates": [{"name": "rgpu.dev/placement"}],
        },
    })  # fmt: skip


def template() -> Any:
    """Returns the template of the pods' claims."""
    return codecs.from_dict({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "third", "namespace": _NAMESPACE}, "spec": {"spec": _CLAIM},
    })  # fmt: skip


class Pods:
    """Notes when each pod was made, and when its gate had gone."""

    def __init__(self, client: AsyncClient) -> None:
        from lightkube.resources.core_v1 import Pod

        self._client = client
        self.made: dict[str, float] = {}
        self.gone: dict[str, float] = {}
        self._changed = asyncio.Event()
        self._informer: Informer[Any] = Informer(
            client, Pod, namespace=_NAMESPACE, on_change=self._on_change
        )

    def _on_change(self, before: Any, after: Any) -> None:
        if after is not None and not after.spec.schedulingGates:
            self.gone.setdefault(after.metadata.name, time.monotonic())
            self._changed.set()

    async def watch(self) -> asyncio.Task[None]:
        """Begins to watch."""
        task = asyncio.ensure_future(self._informer.run())
        await self._informer.synced.wait()
        return task

    async def make(self, name: str) -> None:
        """Makes a pod."""
        self.made[name] = time.monotonic()
        await self._client.create(pod(name))

    async def wait(self) -> None:
        """Returns when no pod that was made is gated."""
        deadline = time.monotonic() + _SECONDS
        while len(self.gone) < len(self.made):
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), max(deadline - time.monotonic(), 0))


def _many(quick: bool) -> int:
    return 300 if quick else 2000


async def alone(pods: Pods, count: int) -> list[float]:
    """Returns the milliseconds from a pod's creation until its gate has gone, one pod at a time."""
    found = []
    for number in range(count):
        name = f"alone-{number}"
        await pods.make(name)
        await pods.wait()
        found.append(1000 * (pods.gone[name] - pods.made[name]))
    return found


async def together(pods: Pods, count: int) -> float:
    """Returns the pods a second if many are made at once."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(name: str) -> None:
        async with places:
            await pods.make(name)

    began = time.monotonic()
    await asyncio.gather(*(one(f"many-{number}") for number in range(count)))
    await pods.wait()
    return count / (time.monotonic() - began)


async def measured(config: dict[str, Any], quick: bool) -> tuple[list[float], float]:
    """Returns the figures of both."""
    async with AsyncClient(config=KubeConfig.from_dict(config)) as client:
        pods = Pods(client)
        watching = await pods.watch()
        try:
            delays = await alone(pods, 15 if quick else 60)
            say(f"alone: {statistics.median(delays):.0f} ms")
            return delays, await together(pods, _many(quick))
        finally:
            watching.cancel()


def resident_mib(pid: int) -> float:
    """Returns the memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / (1 << 20)


def processor_seconds(pid: int) -> float:
    """Returns the processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rows(quick: bool) -> list[Row]:
    """Runs everything."""
    nodes = 100 if quick else 1000
    with ControlPlane(find(), calls_a_second=2000) as plane:
        apply(plane.client(), "namespace.yaml", "classes.yaml", "manager-rbac.yaml")
        plane.client().create(template())
        config = plane.kubeconfig_file("placer")
        words = ("--kubernetes", "--kubeconfig", str(config), "--namespace", "rgpu-system")
        with ManagerProcess(*words, "--log-level", "warning") as manager:
            command = [sys.executable, "-m", "benchmarks.cluster.fake_nodes"]
            fakes = subprocess.Popen(
                [*command, manager.address, str(nodes), "8"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            with fakes:
                assert fakes.stdout is not None
                assert fakes.stdout.readline().strip() == "ready"
                say(f"{nodes} nodes have joined")
                assert manager.process is not None
                pids = {"manager": manager.process.pid}
                pids.update((name, part.pid) for name, part in plane.parts.items())
                before = {name: processor_seconds(pid) for name, pid in pids.items()}
                delays, rate = asyncio.run(measured(plane.kubeconfig(), quick))
                count = len(delays) + _many(quick)
                spent = {
                    name: 1000 * (processor_seconds(pid) - before[name]) / count
                    for name, pid in pids.items()
                }
                memory = resident_mib(manager.process.pid)
                fakes.terminate()
    last = statistics.quantiles(delays, n=100)[98]
    return [
        above(f"gated pods, {8 * nodes} cards", "pods/s", rate, 64),
        below("gate of one pod, p50", "ms", statistics.median(delays), 150),
        below("gate of one pod, p99", "ms", last, 500),
        below("memory of the manager", "MiB", memory, 500),
        *(Row(f"processor time of a pod, {name}", "ms", value) for name, value in spent.items()),
    ]


def main() -> None:
    """The command."""
    asked = arguments(__doc__ or "")
    report("cluster", rows(asked.quick), asked.json)


if __name__ == "__main__":
    main()
