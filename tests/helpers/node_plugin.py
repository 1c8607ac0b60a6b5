"""A real `rgpu node-plugin` for tests, and a kubelet that speaks to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
from typing_extensions import Self

from helpers.command import rgpu_command
from helpers.ends import stopped
from helpers.waiting import wait_until
from rgpu_cluster.kubelet.api import dra_pb2, dra_pb2_grpc, registration_pb2, registration_pb2_grpc

DEADLINE_SECONDS = 90


class NodePlugin:
    """`with NodePlugin(folder, kubeconfig) as plugin:`; all of its folders lie in `folder`."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path | None,
        *words: str,
        node: str = "client-1",
        **environment: str,
    ) -> None:
        self.folder = folder
        self.kubelet = folder / "kubelet"
        self.socket = self.kubelet / "plugins_registry" / "rgpu.dev.sock"
        self.state, self.cdi = folder / "claims", folder / "cdi"
        self.token_file = folder / "plugin-token"
        self.write_token()
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self._words = [
            rgpu_command(), "node-plugin", "--node", node,
            "--kubelet-dir", str(self.kubelet), "--state", str(self.state),
            "--cdi-dir", str(self.cdi), "--library", str(folder / "lib"),
            "--token-file", str(self.token_file),
            *(["--kubeconfig", str(kubeconfig)] if kubeconfig else []), *words,
        ]  # fmt: skip
        self._environment = {**os.environ, **environment}
        self._log = folder / "plugin.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts it; returns when the kubelet could find it."""
        began = len(self.told())
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._words, cwd="/", env=self._environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        process = self._process
        wait_until(
            lambda: "rgpu: node plugin of" in self.told()[began:] or process.poll() is not None,
            DEADLINE_SECONDS,
        )
        assert process.poll() is None, self.told()

    def closing(self) -> NodePlugin:
        """Returns a plugin that only lets pods of this node go."""
        return NodePlugin(self.folder, None, "--unprepare-all")

    def write_token(self) -> None:
        """Writes its ServiceAccount token."""
        self.token_file.write_text("token-of-the-plugin\n")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it with a signal."""
        process, self._process = self._process, None
        if process is not None:
            stopped(process, (0, -number) if number == signal.SIGKILL else 0, number=number)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def told(self) -> str:
        """Returns what it has written."""
        return self._log.read_text() if self._log.exists() else ""

    def spec(self, uid: str) -> dict[str, Any] | None:
        """Returns the CDI specification of a claim."""
        file = self.cdi / f"rgpu.dev-claim-{uid}.json"
        found: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
        return found

    def prepared(self) -> list[str]:
        """Returns the UIDs of the claims of which something lies on the node."""
        specs = (one.stem.removeprefix("rgpu.dev-claim-") for one in self.cdi.glob("*.json"))
        return sorted({*specs, *(one.name for one in self.state.iterdir())})

    def environment_of(self, uid: str, request: str = "") -> dict[str, str]:
        """Returns the variables that containers of a claim get."""
        spec = self.spec(uid)
        assert spec, "the claim has no CDI specification"
        name = f"{uid}.{request}" if request else uid
        (device,) = (one for one in spec["devices"] if one["name"] == name)
        return dict(row.split("=", 1) for row in device["containerEdits"]["env"])

    def token(self, uid: str, number: int = 0) -> str:
        """Returns the credential of a claim as its containers see it."""
        return (self.state / uid / "credentials" / str(number)).read_text().strip()


class FakeKubelet:
    """What a kubelet does with a plugin: asks what it is, and prepares and unprepares claims."""

    def __init__(self, plugin: NodePlugin) -> None:
        self._channel = grpc.insecure_channel(f"unix:{plugin.socket}")
        self._registration = registration_pb2_grpc.RegistrationStub(self._channel)
        self._claims = dra_pb2_grpc.DRAPluginStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def register(self, error: str = "") -> registration_pb2.PluginInfo:
        """Returns what the plugin says that it is, and says that it is registered or why not."""
        info: registration_pb2.PluginInfo = self._registration.GetInfo(
            registration_pb2.InfoRequest(), timeout=60
        )
        status = registration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        self._registration.NotifyRegistrationStatus(status, timeout=60)
        return info

    def prepare(self, *claims: tuple[str, str, str]) -> list[dra_pb2.NodePrepareResourceResponse]:
        """Returns the answers for claims, each a namespace, a name and a UID."""
        asked = dra_pb2.NodePrepareResourcesRequest(claims=map(_claim, claims))
        answer = self._claims.NodePrepareResources(asked, timeout=45)
        assert set(answer.claims) == {uid for _, _, uid in claims}
        return [answer.claims[uid] for _, _, uid in claims]

    def prepared(self, *claims: tuple[str, str, str]) -> list[list[dra_pb2.Device]]:
        """Returns the devices of claims; each has been prepared."""
        answers = self.prepare(*claims)
        assert [one.error for one in answers] == [""] * len(claims)
        return [[*one.devices] for one in answers]

    def refused(self, claim: tuple[str, str, str]) -> str:
        """Returns why a claim has not been prepared."""
        (answer,) = self.prepare(claim)
        assert answer.error
        assert not answer.devices
        return answer.error

    def unprepare(self, *claims: tuple[str, str, str]) -> list[str]:
        """Returns the errors of claims; "" for none."""
        asked = dra_pb2.NodeUnprepareResourcesRequest(claims=map(_claim, claims))
        answer = self._claims.NodeUnprepareResources(asked, timeout=45)
        return [answer.claims[uid].error for _, _, uid in claims]


def _claim(claim: tuple[str, str, str]) -> dra_pb2.Claim:
    namespace, name, uid = claim
    return dra_pb2.Claim(namespace=namespace, name=name, uid=uid)
