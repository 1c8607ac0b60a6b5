"""Writes CDI specifications: what a container runtime adds to the containers of a claim.

A claim has one file. It has one device for the claim as a whole, or one for each request, as the
containers of the claim name them; the kubelet passes the devices' names to the runtime.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubelet.claims import is_uid
from rgpu_cluster.kubelet.files import replace_file
from rgpu_cluster.kubernetes.names import DRIVER

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KIND = f"{DRIVER}/claim"
# The oldest version with all that is used here, so that older runtimes read it too.
_VERSION = "0.5.0"
_PREFIX, _SUFFIX = f"{DRIVER}-claim-", ".json"


def device_id(uid: str, request: str = "") -> str:
    """Returns the name of a claim's device, or of that of one request, for the kubelet."""
    return f"{KIND}={_name(uid, request)}"


def spec_of(uid: str, devices: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the specification of a claim. devices: what containers get, by request, "" for the
    claim as a whole.
    """
    return {
        "cdiVersion": _VERSION,
        "kind": KIND,
        "devices": [
            {"name": _name(uid, request), "containerEdits": edits}
            for request, edits in devices.items()
        ],
    }


def edits(variables: Mapping[str, str], mounts: Mapping[str, str]) -> dict[str, Any]:
    """Returns what a container gets. mounts: folders of this node, by their container paths."""
    return {
        "env": [f"{name}={value}" for name, value in variables.items()],
        "mounts": [
            {
                "hostPath": ours,
                "containerPath": theirs,
                "options": ["ro", "nosuid", "nodev", "bind"],
            }
            for theirs, ours in mounts.items()
        ],
    }


class CdiFolder:
    """The folder in which the container runtime looks for specifications.

    Raises:
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def put(self, uid: str, spec: Mapping[str, Any]) -> None:
        """Writes the specification of a claim; OSError."""
        replace_file(self._file(uid), json.dumps(spec, indent=1), 0o644)

    def remove(self, uid: str) -> None:
        """Removes the specification of a claim, if there is one; OSError."""
        self._file(uid).unlink(missing_ok=True)

    def uids(self) -> list[str]:
        """Returns the UIDs of all claims that have a specification."""
        names = (one.name for one in self._folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        return sorted(filter(is_uid, (n[len(_PREFIX) : -len(_SUFFIX)] for n in names)))

    def _file(self, uid: str) -> Path:
        return self._folder / f"{_PREFIX}{uid}{_SUFFIX}"


def _name(uid: str, request: str) -> str:
    return f"{uid}.{request}" if request else uid
