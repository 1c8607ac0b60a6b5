"""Asks the agents of GPU nodes for the credentials of claims."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict

from rgpu_client.device_names import parse_devices
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_common.aio_channels import open_aio_channel
from rgpu_common.channels import tls_refusal
from rgpu_common.credentials import MAX_ACCESS_TOKEN_BYTES
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint, parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.v1 import credentials_pb2, credentials_pb2_grpc

import grpc  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from rgpu_cluster.kubelet.claims import ClaimName

# The kubelet gives a plugin 45 s for a call.
CALL_SECONDS = 10.0
_MOST_TOKEN_FILE = 64 << 10
_MOST_SHOWN = 80
_LEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# The agent has not granted the lease yet, or has had too many calls. The kubelet's own next try
# would come many seconds later.
_SOON = (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED)
_TRIES, _PAUSE_SECONDS = 20, 0.5
_SILENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class Credential(Struct, frozen=True):
    """What opens sessions of a claim on one GPU node. token: "": the pod shows its own. expires: in
    seconds since 1970. server, lease, device: RGPU_SERVER, RGPU_LEASE and RGPU_DEVICE.
    """

    token: str
    expires: float
    server: str
    lease: str
    device: str

    def without_token(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "token"}


class Agents:
    """The agents of all GPU nodes.

    token_file: the ServiceAccount token of this plugin for the audience rgpu.dev, which Kubernetes
    replaces before it ends. environment: RGPU_TLS_CA and the like, for `tls:` addresses.
    """

    def __init__(self, token_file: Path, environment: Mapping[str, str]) -> None:
        self._token_file = token_file
        self._environment = environment

    async def credential(self, pool: str, address: str, claim: ClaimName) -> Credential:
        """Returns a credential of the claim on a GPU node.

        Raises:
            PrepareError: the agent cannot be reached, or gives none.
        """
        agent = f"the agent of GPU node {pool}"
        request = credentials_pb2.GetCredentialRequest(
            namespace=claim.namespace, name=claim.name, uid=claim.uid
        )
        metadata = (("authorization", f"Bearer {self._own_token()}"),)
        try:
            endpoint = parse_endpoint(address)
            if type(endpoint) not in (TcpEndpoint, TlsEndpoint):
                # Whoever writes a slice must not have this plugin call a socket of its own node.
                raise PrepareError(f"{agent} is at {address[:_MOST_SHOWN]!r}, and not at HOST:PORT")
            async with open_aio_channel(endpoint, self._environment) as channel:
                stub = credentials_pb2_grpc.CredentialServiceStub(channel)
                answer = await _patient(
                    lambda: stub.GetCredential(request, timeout=CALL_SECONDS, metadata=metadata)
                )
        except UsageError as error:
            raise PrepareError(f"{agent} cannot be asked: {error}") from None
        except grpc.RpcError as error:
            raise PrepareError(_refusal(agent, address, error)) from None
        return _checked(answer, agent)

    def _own_token(self) -> str:
        try:
            with self._token_file.open("rb") as file:
                token = file.read(_MOST_TOKEN_FILE).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise PrepareError(
                f"the plugin's own token {self._token_file} cannot be read ({why}): mount a "
                "ServiceAccount token for the audience rgpu.dev there, or name it with --token-file"
            ) from None
        return token


async def _patient(
    call: Callable[[], Awaitable[credentials_pb2.GetCredentialResponse]],
) -> credentials_pb2.GetCredentialResponse:
    """Calls again while the answer is that the credential will be there soon; grpc.RpcError."""
    for _ in range(_TRIES - 1):
        try:
            return await call()
        except grpc.RpcError as error:
            if error.code() not in _SOON:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
    return await call()


def _refusal(agent: str, address: str, error: grpc.RpcError) -> str:
    if error.code() in _SILENT:
        refusal = tls_refusal(parse_endpoint(address), str(error.details() or ""))
        return refusal or (
            f"{agent} does not answer at {address}: start `rgpu agent-node` there, or let this "
            "node reach that port (NetworkPolicy, firewall)"
        )
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        return f"at {address} is no agent that gives credentials: start `rgpu agent-node` there"
    return f"{agent} gives no credential: {error.details()}"


def _checked(answer: credentials_pb2.GetCredentialResponse, agent: str) -> Credential:
    """Returns the credential of an answer; PrepareError if no program could use it."""
    token = answer.token
    whole = 0 < len(token) <= MAX_ACCESS_TOKEN_BYTES and token.isascii() and token.isprintable()
    try:
        server = str(parse_endpoint(answer.server))
        devices = parse_devices(answer.device)
    except UsageError as error:
        raise PrepareError(f"{agent} has given a credential without use: {error}") from None
    if not whole or _LEASE.fullmatch(answer.lease) is None or any(d.server for d in devices):
        raise PrepareError(
            f"{agent} has given a credential without use: install the same release of rgpu on "
            "both nodes"
        )
    return Credential(token, answer.expires, server, answer.lease, answer.device)
