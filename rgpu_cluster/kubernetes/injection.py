"""What a pod needs so that its programs find their server: variables and a token. Pure.

The admission policy (`deploy/kubernetes/base/policy.yaml`) adds the same where there is no webhook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubernetes.names import AUDIENCE, DEVICE, GATE, LEASE, SERVER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VOLUME = "rgpu-token"
MOUNT = "/var/run/secrets/rgpu.dev"
TOKEN_SECONDS = 3600
_VARIABLES = {"RGPU_SERVER": SERVER, "RGPU_LEASE": LEASE, "RGPU_DEVICE": DEVICE}


def with_variables(container: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the container with our variables and the token's mount, where it lacks them."""
    env = list(container.get("env") or [])
    mounts = list(container.get("volumeMounts") or [])
    known = {one.get("name") for one in env}
    for name, annotation in _VARIABLES.items():
        if name not in known:
            field = {"fieldPath": f"metadata.annotations['{annotation}']"}
            env.append({"name": name, "valueFrom": {"fieldRef": field}})
    if "RGPU_TOKEN_FILE" not in known:
        env.append({"name": "RGPU_TOKEN_FILE", "value": f"{MOUNT}/token"})
    if all(one.get("mountPath") != MOUNT for one in mounts):
        mounts.append({"name": VOLUME, "mountPath": MOUNT, "readOnly": True})
    return {**container, "env": env, "volumeMounts": mounts}


def with_token(volumes: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the volumes of a pod with that of its token."""
    found = list(volumes)
    if all(one.get("name") != VOLUME for one in found):
        token = {"audience": AUDIENCE, "path": "token", "expirationSeconds": TOKEN_SECONDS}
        sources = [{"serviceAccountToken": token}]
        found.append({"name": VOLUME, "projected": {"sources": sources}})
    return found


def with_gate(gates: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the scheduling gates of a pod with ours."""
    found = list(gates)
    if all(one.get("name") != GATE for one in found):
        found.append({"name": GATE})
    return found
