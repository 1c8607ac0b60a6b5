"""Credentials of claims: a client node's plugin asks the agent of the GPU node."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from helpers import clients, pki
from helpers.agent_node import AgentNode, allow
from helpers.kube_objects import Space, claim_spec, make, node
from helpers.kubernetes import ControlPlane
from helpers.ports import free_port
from helpers.server import Server
from helpers.waiting import wait_until
from lightkube.models.authentication_v1 import BoundObjectReference, TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Pod, ServiceAccount, ServiceAccountToken
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice

from rgpu_common.channels import open_channel
from rgpu_common.claim_tokens import read
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.v1 import credentials_pb2, credentials_pb2_grpc, orders_pb2, orders_pb2_grpc

pytestmark = pytest.mark.full

KEY = b"n" * 32
ALLOCATES = """
cuda.open()
at = cuda.alloc(1 << 20)
print(cuda.memory()[1], flush=True)
"""
SECONDS = 60


class Place:
    """A GPU node whose agent gives credentials, and two client nodes with a plugin each."""

    def __init__(self, space: Space, server: Server, port: int) -> None:
        self.space, self.server, self.port = space, server, port
        environment = {"RGPU_TLS_CA": f"{pki.folder()}/ca.pem"}
        self._channel = open_channel(parse_endpoint(f"tls:localhost:{port}"), environment)
        self._stub = credentials_pb2_grpc.CredentialServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def plugin(self, node: str, account: str = "plugin") -> str:
        """Makes a pod on a node; returns the token that it would find in its volume."""
        name = f"{account}-{node}"
        container = {"name": "c", "image": "none"}
        spec = {"containers": [container], "serviceAccountName": account, "nodeName": node,
                "terminationGracePeriodSeconds": 0}  # fmt: skip
        pod: Pod = self.space.make("v1", "Pod", name, spec=spec)
        assert pod.metadata
        return self.token(account, name, str(pod.metadata.uid))

    def token(self, account: str, pod: str, uid: str, audience: str = "rgpu.dev") -> str:
        bound = BoundObjectReference(apiVersion="v1", kind="Pod", name=pod, uid=uid)
        spec = TokenRequestSpec(audiences=[audience], boundObjectRef=bound, expirationSeconds=600)
        made: Any = self.space.client.create(
            ServiceAccountToken(metadata=ObjectMeta(), spec=spec),
            account,
            namespace=self.space.name,
        )
        return str(made.status.token)

    def ask(self, token: str, claim: ResourceClaim, **more: str) -> credentials_pb2.GetCredentialResponse:  # fmt: skip
        assert claim.metadata
        said = {
            "namespace": self.space.name,
            "name": claim.metadata.name,
            "uid": claim.metadata.uid,
        }
        request = credentials_pb2.GetCredentialRequest(**{**said, **more})
        metadata = (("authorization", f"Bearer {token}"),) if token else ()
        answer: credentials_pb2.GetCredentialResponse = self._stub.GetCredential(
            request, metadata=metadata, timeout=30
        )
        return answer

    def refused(self, *arguments: Any, **more: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self.ask(*arguments, **more)
        error: Any = caught.value
        return error.code(), error.details()


@pytest.fixture
def place(plane: ControlPlane, space: Space, tmp_path: Path) -> Iterator[Place]:
    for name in ("client-a", "client-b"):
        node(space.client, name)
    for account in ("plugin", "other"):
        make(space.client, {"apiVersion": "v1", "kind": "ServiceAccount",
                            "metadata": {"name": account, "namespace": space.name}})  # fmt: skip
        wait_until(lambda account=account: space.get(ServiceAccount, account) is not None, SECONDS)
    (tmp_path / "key").write_bytes(base64.b64encode(KEY))
    port, certificates = free_port(), pki.folder()
    options = ["--node-name", "gpu7", "--kubeconfig", allow(plane)]
    options += ["--listen", f"127.0.0.1:{port}", "--key-file", f"{tmp_path}/key"]
    options += [
        "--tls-cert",
        f"{certificates}/server.pem",
        "--tls-key",
        f"{certificates}/server.key",
    ]
    options += ["--plugin-account", f"{space.name}/plugin"]
    config = tmp_path / "rgpu.toml"
    config.write_text(f'[identity]\nrequire = "always"\nclaim_key = "{tmp_path}/key"\n')
    served = Server("--node-name", "gpu7", "--config", str(config))
    with served as server, AgentNode(*options, "--server", server.unix):
        made = Place(space, server, port)
        wait_until(lambda: space.get(ResourceSlice, "gpu7-rgpu") is not None, SECONDS)
        yield made
        made.close()


def test_a_plugin_gets_what_its_pods_need(place: Place) -> None:
    space = place.space
    claim = space.claim("third", claim_spec(30, "512Mi"))
    space.pod("train", claim="third", nodeSelector={"kubernetes.io/hostname": "client-a"})
    assert space.bound("train") == "client-a"
    here, there = place.plugin("client-a"), place.plugin("client-b")
    got = place.ask(here, claim)
    assert claim.metadata
    assert (got.server, got.lease, got.device) == (place.server.tcp, claim.metadata.uid, "0")
    told = read(KEY, got.token, time.time())
    assert told is not None
    assert (told.claim, told.tenant) == (claim.metadata.uid, space.name)
    assert 6 * 86400 < got.expires - time.time() <= 7 * 86400
    (device,) = space.get(ResourceSlice, "gpu7-rgpu").spec.devices
    assert device.attributes["agent"]["string"] == f"tls:127.0.0.1:{place.port}"

    said = {"RGPU_LEASE": got.lease, "RGPU_DEVICE": got.device, "RGPU_TOKEN": got.token}
    status, output, errors = clients.run(got.server, ALLOCATES, **said)
    assert (status, output.strip()) == (0, str(512 << 20)), errors

    code, sentence = place.refused(there, claim)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "no pod on node client-b uses the claim" in sentence
    assert place.refused(here, claim, uid="0" * 36)[0] is grpc.StatusCode.NOT_FOUND
    assert place.refused(here, claim, name="fourth")[0] is grpc.StatusCode.NOT_FOUND
    assert place.refused(here, claim, name="x" * 300)[0] is grpc.StatusCode.INVALID_ARGUMENT

    space.delete(Pod, "train")
    wait_until(lambda: not _leases(place), SECONDS)
    assert place.refused(here, claim)[0] is grpc.StatusCode.NOT_FOUND


def test_a_stranger_gets_nothing(place: Place) -> None:
    space = place.space
    claim = space.claim("third", claim_spec(30, "512Mi"))
    space.pod("train", claim="third", nodeSelector={"kubernetes.io/hostname": "client-a"})
    space.bound("train")
    assert place.refused("", claim)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert place.refused("x" * 9000, claim)[0] in (
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    )
    assert place.refused("no.valid.token", claim)[0] is grpc.StatusCode.UNAUTHENTICATED
    pod = place.plugin("client-a")
    assert place.ask(pod, claim).lease
    uid = str(space.get(Pod, "plugin-client-a").metadata.uid)
    wrong = place.token("plugin", "plugin-client-a", uid, "https://kubernetes.default.svc")
    code, sentence = place.refused(wrong, claim)
    assert code is grpc.StatusCode.UNAUTHENTICATED
    assert "rgpu.dev" in sentence
    code, sentence = place.refused(place.plugin("client-a", "other"), claim)
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert "--plugin-account" in sentence


def _leases(place: Place) -> list[Any]:
    with open_channel(parse_endpoint(place.server.unix), {}) as channel:
        stub = orders_pb2_grpc.NodeOrderServiceStub(channel)
        stream = stub.WatchReport(orders_pb2.WatchReportRequest(), timeout=60)
        report = next(stream)
        stream.cancel()
        return list(report.leases)
