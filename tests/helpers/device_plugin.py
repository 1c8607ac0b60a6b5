"""A real `rgpu device-plugin` for tests, and a kubelet that speaks to it."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from typing_extensions import Self

from helpers.command import rgpu_command
from helpers.ends import stopped
from rgpu_cluster.kubelet.api import deviceplugin_pb2 as api
from rgpu_cluster.kubelet.api import deviceplugin_pb2_grpc as api_grpc
from rgpu_cluster.kubelet.api import podresources_pb2 as pods
from rgpu_cluster.kubelet.api import podresources_pb2_grpc as pods_grpc

DEADLINE_SECONDS = 90


class DevicePlugin:
    """`with DevicePlugin(folder, ...) as plugin:`; all of its folders lie in `folder`."""

    def __init__(self, folder: Path, units: str, server: str, key: Path) -> None:
        self.folder, self.kubelet = folder, folder / "kubelet"
        self.state = folder / "units"
        self._log = folder / "device-plugin.log"
        self._words = [
            rgpu_command(), "device-plugin", "--units", units, "--server", server,
            "--key-file", str(key), "--kubelet-dir", str(self.kubelet),
            "--state", str(self.state), "--library", str(folder / "lib"),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, cwd="/", env={**os.environ},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        process, self._process = self._process, None
        if process is not None:
            stopped(process, (0, -number) if number == signal.SIGKILL else 0, number=number)

    def told(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


class UnitKubelet(api_grpc.RegistrationServicer, pods_grpc.PodResourcesListerServicer):
    """What a kubelet does with a device plugin. `with UnitKubelet(folder) as kubelet:`.

    It gives containers units that it has chosen as the plugin prefers, and lists who has which.
    """

    def __init__(self, folder: Path) -> None:
        self._plugins = folder / "kubelet" / "device-plugins"
        self._pods = folder / "kubelet" / "pod-resources"
        for one in (self._plugins, self._pods):
            one.mkdir(parents=True, exist_ok=True)
        self.registered: queue.Queue[api.RegisterRequest] = queue.Queue()
        self._stubs: dict[str, Any] = {}
        self._channels: list[grpc.Channel] = []
        self._lock = threading.Lock()
        # (namespace, pod, container) -> resource -> ids
        self._given: dict[tuple[str, str, str], dict[str, list[str]]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts as a kubelet does, which removes the sockets of all plugins."""
        for one in self._plugins.iterdir():
            one.unlink()
        self._server = grpc.server(ThreadPoolExecutor(4))
        api_grpc.add_RegistrationServicer_to_server(self, self._server)
        pods_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        for path in (self._plugins, self._pods):
            self._server.add_insecure_port(f"unix:{path}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        for channel in self._channels:
            channel.close()
        self._channels.clear()
        self._stubs.clear()
        self._server.stop(0).wait()

    def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        self.registered.put(request)
        return api.Empty()

    def List(self, request: Any, context: Any) -> pods.ListPodResourcesResponse:
        with self._lock:
            rows = [(key, dict(found)) for key, found in self._given.items()]
        return pods.ListPodResourcesResponse(pod_resources=[
            pods.PodResources(namespace=namespace, name=pod, containers=[
                pods.ContainerResources(name=container, devices=[
                    pods.ContainerDevices(resource_name=name, device_ids=ids)
                    for name, ids in found.items()
                ])
            ])
            for (namespace, pod, container), found in rows
        ])  # fmt: skip

    def accept(self, count: int = 2) -> dict[str, api.RegisterRequest]:
        """Waits for plugins to register; returns what they have said, by resource."""
        found = [self.registered.get(timeout=DEADLINE_SECONDS) for _ in range(count)]
        for one in found:
            channel = grpc.insecure_channel(f"unix:{self._plugins}/{one.endpoint}")
            self._channels.append(channel)
            self._stubs[one.resource_name] = api_grpc.DevicePluginStub(channel)
        return {one.resource_name: one for one in found}

    def devices(
        self, resource: str, health: str = "Healthy", count: int | None = None
    ) -> list[str]:
        """Waits for a list of units in which all are so; returns their ids."""
        stream = self._stubs[resource].ListAndWatch(api.Empty(), timeout=DEADLINE_SECONDS)
        for answer in stream:
            rows = [one.ID for one in answer.devices if one.health == health]
            if rows and len(rows) == len(answer.devices) and count in (None, len(rows)):
                stream.cancel()
                return rows
        raise AssertionError(f"the plugin never said that all of {resource} is {health}")

    def preferred(self, resource: str, free: Iterable[str], size: int) -> list[str]:
        """Returns which of the free units the plugin would choose."""
        row = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=free, allocation_size=size
        )
        asked = api.PreferredAllocationRequest(container_requests=[row])
        answer = self._stubs[resource].GetPreferredAllocation(asked, timeout=60)
        (one,) = answer.container_responses
        return [*one.deviceIDs]

    def allocate(self, resource: str, ids: Iterable[str]) -> api.ContainerAllocateResponse:
        row = api.ContainerAllocateRequest(devices_ids=ids)
        answer = self._stubs[resource].Allocate(
            api.AllocateRequest(container_requests=[row]), timeout=30
        )
        (one,) = answer.container_responses
        made: api.ContainerAllocateResponse = one
        return made

    def admit(
        self, pod: str, units: dict[str, int], namespace: str = "team-a", order: int = 1
    ) -> api.ContainerAllocateResponse:
        """Gives units to a container, as for a new pod; returns what the leading resource gives.

        order: -1: the other way round, for the kubelet has no order.
        """
        told = api.ContainerAllocateResponse()
        chosen: dict[str, list[str]] = {}
        for resource, size in [*units.items()][::order]:
            taken = set(itertools.chain(*(f.get(resource, []) for f in self._given.values())))
            free = [one for one in self.devices(resource) if one not in taken]
            chosen[resource] = self.preferred(resource, free, size)
            made = self.allocate(resource, chosen[resource])
            told = made if made.envs else told
        with self._lock:
            self._given[namespace, pod, "c"] = chosen
        return told

    def begin(self, pod: str, namespace: str = "team-a") -> None:
        """Says that the container starts; grpc.RpcError if the plugin refuses."""
        for resource, ids in self._given[namespace, pod, "c"].items():
            options = self._stubs[resource].GetDevicePluginOptions(api.Empty(), timeout=60)
            if options.pre_start_required:
                asked = api.PreStartContainerRequest(devices_ids=ids)
                self._stubs[resource].PreStartContainer(asked, timeout=30)

    def end(self, pod: str, namespace: str = "team-a") -> None:
        """The pod has ended."""
        with self._lock:
            del self._given[namespace, pod, "c"]

    def end_all(self) -> None:
        """All pods have ended."""
        with self._lock:
            self._given.clear()
