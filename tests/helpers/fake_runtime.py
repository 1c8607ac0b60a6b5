"""A container runtime for the real kubelet that starts plain processes: CRI v1 as far as needed.

It knows every image, has no network, and adds to a container what CDI specifications say.
"""

from __future__ import annotations

import itertools
import json
import shutil
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from typing_extensions import Self

from helpers.cri import runtime_pb2 as cri
from helpers.cri import runtime_pb2_grpc as cri_grpc
from helpers.fake_container import Bind, FakeContainer, Program

_EXITED, _RUNNING, _CREATED = cri.CONTAINER_EXITED, cri.CONTAINER_RUNNING, cri.CONTAINER_CREATED


@dataclass
class Sandbox:
    """A pod."""

    id: str
    config: cri.PodSandboxConfig
    created: int
    ready: bool = True

    @property
    def state(self) -> Any:
        return cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY


@dataclass
class Made:
    """A container with what the kubelet wants to know of it. Times: nanoseconds since 1970."""

    id: str
    sandbox: Sandbox
    config: cri.ContainerConfig
    process: FakeContainer
    created: int
    started: int = 0
    finished: int = 0
    code: int = 0

    @property
    def state(self) -> Any:
        return _EXITED if self.finished else _RUNNING if self.started else _CREATED

    def ended(self, code: int) -> None:
        self.code, self.finished = code, time.time_ns()


class FakeRuntime(cri_grpc.RuntimeServiceServicer):
    """`with FakeRuntime(folder, cdi) as runtime:` serves at `runtime.endpoint`.

    cdi: the folder with CDI specifications.
    """

    def __init__(self, folder: Path, cdi: Path) -> None:
        self._folder, self._cdi = folder, cdi
        self.endpoint = f"unix://{folder}/runtime.sock"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, Sandbox] = {}
        self._containers: dict[str, Made] = {}
        self._server = grpc.server(ThreadPoolExecutor(8))
        cri_grpc.add_RuntimeServiceServicer_to_server(self, self._server)
        cri_grpc.add_ImageServiceServicer_to_server(FakeImages(folder), self._server)
        self._server.add_insecure_port(f"unix:{folder}/runtime.sock")

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(1).wait()
        for made in self._containers.values():
            made.process.stop(0)
        shutil.rmtree(self._folder / "containers", ignore_errors=True)

    def output(self, pod: str, container: str = "c") -> str:
        """Returns what the last container of this name in a pod has written; "" if there is none."""
        with self._lock:
            found = [
                made
                for made in self._containers.values()
                if (made.sandbox.config.metadata.name, made.config.metadata.name)
                == (pod, container)
            ]
        return found[-1].process.output if found else ""

    def running(self) -> list[str]:
        """Returns the pods in which a container runs."""
        with self._lock:
            found = [made for made in self._containers.values() if made.state == _RUNNING]
        return sorted({made.sandbox.config.metadata.name for made in found})

    # Version, state, configuration.

    def Version(self, request: Any, context: Any) -> cri.VersionResponse:
        return cri.VersionResponse(
            version="0.1.0", runtime_name="fake", runtime_version="1.0.0", runtime_api_version="v1"
        )

    def Status(self, request: Any, context: Any) -> cri.StatusResponse:
        names = ("RuntimeReady", "NetworkReady")
        rows = [cri.RuntimeCondition(type=name, status=True) for name in names]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=rows))

    def RuntimeConfig(self, request: Any, context: Any) -> cri.RuntimeConfigResponse:
        linux = cri.LinuxRuntimeConfiguration(cgroup_driver=cri.CGROUPFS)
        return cri.RuntimeConfigResponse(linux=linux)

    def UpdateRuntimeConfig(self, request: Any, context: Any) -> cri.UpdateRuntimeConfigResponse:
        return cri.UpdateRuntimeConfigResponse()

    def ListContainerStats(self, request: Any, context: Any) -> cri.ListContainerStatsResponse:
        return cri.ListContainerStatsResponse()

    def ListPodSandboxStats(self, request: Any, context: Any) -> cri.ListPodSandboxStatsResponse:
        return cri.ListPodSandboxStatsResponse()

    # Pods.

    def RunPodSandbox(self, request: Any, context: Any) -> cri.RunPodSandboxResponse:
        sandbox = Sandbox(f"pod{next(self._numbers)}", request.config, time.time_ns())
        with self._lock:
            self._sandboxes[sandbox.id] = sandbox
        return cri.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    def StopPodSandbox(self, request: Any, context: Any) -> cri.StopPodSandboxResponse:
        sandbox = self._sandboxes.get(request.pod_sandbox_id)
        if sandbox is not None:
            sandbox.ready = False
            for made in self._of(sandbox.id):
                made.process.stop(0)
        return cri.StopPodSandboxResponse()

    def RemovePodSandbox(self, request: Any, context: Any) -> cri.RemovePodSandboxResponse:
        self.StopPodSandbox(request, context)
        for made in self._of(request.pod_sandbox_id):
            self._remove(made)
        with self._lock:
            self._sandboxes.pop(request.pod_sandbox_id, None)
        return cri.RemovePodSandboxResponse()

    def PodSandboxStatus(self, request: Any, context: Any) -> cri.PodSandboxStatusResponse:
        one = self._sandbox(request.pod_sandbox_id, context)
        network = cri.PodSandboxNetworkStatus(ip="127.0.0.1")
        status = cri.PodSandboxStatus(
            id=one.id, metadata=one.config.metadata, state=one.state, created_at=one.created,
            network=network, labels=one.config.labels, annotations=one.config.annotations,
        )  # fmt: skip
        return cri.PodSandboxStatusResponse(status=status)

    def ListPodSandbox(self, request: Any, context: Any) -> cri.ListPodSandboxResponse:
        with self._lock:
            found = [*self._sandboxes.values()]
        wanted = request.filter
        items = [
            cri.PodSandbox(
                id=one.id,
                metadata=one.config.metadata,
                state=one.state,
                created_at=one.created,
                labels=one.config.labels,
                annotations=one.config.annotations,
            )
            for one in found
            if wanted.id in ("", one.id)
            and (not wanted.HasField("state") or wanted.state.state == one.state)
            and _has(one.config.labels, wanted.label_selector)
        ]
        return cri.ListPodSandboxResponse(items=items)

    # Containers.

    def CreateContainer(self, request: Any, context: Any) -> cri.CreateContainerResponse:
        sandbox = self._sandbox(request.pod_sandbox_id, context)
        name = f"container{next(self._numbers)}"
        try:
            program = _program(request.config, _cdi_edits(self._cdi, request.config.CDI_devices))
        except LookupError as error:
            context.abort(grpc.StatusCode.UNKNOWN, f"CDI device injection failed: {error}")
        folder = self._folder / "containers" / name
        process = FakeContainer(program, folder, lambda code: made.ended(code))
        made = Made(name, sandbox, request.config, process, time.time_ns())
        with self._lock:
            self._containers[name] = made
        return cri.CreateContainerResponse(container_id=name)

    def StartContainer(self, request: Any, context: Any) -> cri.StartContainerResponse:
        made = self._container(request.container_id, context)
        made.started = time.time_ns()
        made.process.start()
        return cri.StartContainerResponse()

    def StopContainer(self, request: Any, context: Any) -> cri.StopContainerResponse:
        self._container(request.container_id, context).process.stop(request.timeout)
        return cri.StopContainerResponse()

    def RemoveContainer(self, request: Any, context: Any) -> cri.RemoveContainerResponse:
        made = self._containers.get(request.container_id)
        if made is not None:
            made.process.stop(0)
            self._remove(made)
        return cri.RemoveContainerResponse()

    def ListContainers(self, request: Any, context: Any) -> cri.ListContainersResponse:
        with self._lock:
            found = [*self._containers.values()]
        wanted = request.filter
        rows = [
            cri.Container(
                id=one.id,
                pod_sandbox_id=one.sandbox.id,
                metadata=one.config.metadata,
                image=one.config.image,
                image_ref=one.config.image.image,
                state=one.state,
                created_at=one.created,
                labels=one.config.labels,
                annotations=one.config.annotations,
            )
            for one in found
            if wanted.id in ("", one.id)
            and wanted.pod_sandbox_id in ("", one.sandbox.id)
            and (not wanted.HasField("state") or wanted.state.state == one.state)
            and _has(one.config.labels, wanted.label_selector)
        ]
        return cri.ListContainersResponse(containers=rows)

    def ContainerStatus(self, request: Any, context: Any) -> cri.ContainerStatusResponse:
        one = self._container(request.container_id, context)
        reason = "" if not one.finished else "Error" if one.code else "Completed"
        status = cri.ContainerStatus(
            id=one.id, metadata=one.config.metadata, state=one.state, created_at=one.created,
            started_at=one.started, finished_at=one.finished, exit_code=one.code,
            image=one.config.image, image_ref=one.config.image.image, reason=reason,
            labels=one.config.labels, annotations=one.config.annotations,
            mounts=one.config.mounts,
            log_path=f"{one.sandbox.config.log_directory}/{one.config.log_path}",
        )  # fmt: skip
        return cri.ContainerStatusResponse(status=status)

    def _of(self, sandbox: str) -> list[Made]:
        with self._lock:
            return [made for made in self._containers.values() if made.sandbox.id == sandbox]

    def _remove(self, made: Made) -> None:
        with self._lock:
            self._containers.pop(made.id, None)
        shutil.rmtree(made.process.folder, ignore_errors=True)

    def _sandbox(self, name: str, context: Any) -> Sandbox:
        found = self._sandboxes.get(name)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no pod {name}")
        assert found
        return found

    def _container(self, name: str, context: Any) -> Made:
        found = self._containers.get(name)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no container {name}")
        assert found
        return found


class FakeImages(cri_grpc.ImageServiceServicer):
    """Has every image."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ListImages(self, request: Any, context: Any) -> cri.ListImagesResponse:
        return cri.ListImagesResponse()

    def ImageStatus(self, request: Any, context: Any) -> cri.ImageStatusResponse:
        name = request.image.image
        return cri.ImageStatusResponse(image=cri.Image(id=name, repo_tags=[name], size=1))

    def PullImage(self, request: Any, context: Any) -> cri.PullImageResponse:
        return cri.PullImageResponse(image_ref=request.image.image)

    def RemoveImage(self, request: Any, context: Any) -> cri.RemoveImageResponse:
        return cri.RemoveImageResponse()

    def ImageFsInfo(self, request: Any, context: Any) -> cri.ImageFsInfoResponse:
        usage = cri.FilesystemUsage(
            timestamp=time.time_ns(), fs_id=cri.FilesystemIdentifier(mountpoint=str(self._folder)),
            used_bytes=cri.UInt64Value(value=1), inodes_used=cri.UInt64Value(value=1),
        )  # fmt: skip
        return cri.ImageFsInfoResponse(image_filesystems=[usage], container_filesystems=[usage])


def _has(labels: Any, wanted: Any) -> bool:
    return all(labels.get(name) == value for name, value in wanted.items())


def _program(config: cri.ContainerConfig, edits: Iterable[dict[str, Any]]) -> Program:
    """Returns what a container runs; CDI's variables take the place of its own."""
    variables = {row.key: row.value.decode() for row in config.envs}
    binds = [Bind(row.host_path, row.container_path, row.readonly) for row in config.mounts]
    for edit in edits:
        variables |= dict(row.split("=", 1) for row in edit.get("env") or [])
        binds += [
            Bind(row["hostPath"], row["containerPath"], "ro" in row.get("options", []))
            for row in edit.get("mounts") or []
        ]
    context = config.linux.security_context
    return Program(
        [*config.command, *config.args], variables, binds, config.working_dir,
        context.run_as_user.value, context.run_as_group.value,
    )  # fmt: skip


def _cdi_edits(folder: Path, devices: Any) -> list[dict[str, Any]]:
    """Returns what CDI says for devices; LookupError if a device is in no specification."""
    known = {}
    for file in sorted(folder.glob("*.json")):
        spec = json.loads(file.read_text())
        for device in spec["devices"]:
            known[f"{spec['kind']}={device['name']}"] = device["containerEdits"]
    unknown = [one.name for one in devices if one.name not in known]
    if unknown:
        raise LookupError(f"unresolvable CDI devices {', '.join(unknown)}")
    return [known[one.name] for one in devices]
