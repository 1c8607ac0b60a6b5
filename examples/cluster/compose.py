"""Reads docker-compose.yml: as much of it as the demo uses, and no word more, so that nothing that
it says is left out in silence.
"""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_TOP = {"name", "services", "networks", "volumes", "secrets"}
_SERVICE = {
    "build", "cap_drop", "command", "depends_on", "entrypoint", "environment", "healthcheck",
    "image", "init", "mem_limit", "network_mode", "networks", "pids_limit", "read_only", "secrets",
    "security_opt", "tmpfs", "user", "volumes",
}  # fmt: skip
# A container engine holds containers to these.  Namespaces cannot, so they are only looked at.
_LIMITS = {"mem_limit": re.compile(r"[1-9]\d*[mg]"), "pids_limit": re.compile(r"[1-9]\d*")}
# What every container is, with namespaces as with an engine.
_ALWAYS = {
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
    "tmpfs": ["/tmp"],
    "read_only": True,
    "init": True,
}
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}")


class ComposeError(Exception):
    """The file says what this reader does not do."""


@dataclass(frozen=True, slots=True)
class Mount:
    """source: a path, or the name of a volume (`volume`)."""

    source: str
    target: str
    read_only: bool
    volume: bool


@dataclass(frozen=True, slots=True)
class Service:
    """One container.  after: name of a service -> whether it must be healthy first."""

    name: str
    words: list[str]
    environment: dict[str, str]
    mounts: list[Mount]
    networks: list[str]
    secrets: list[str]
    after: dict[str, bool]
    health: list[str]
    user: int


@dataclass(frozen=True, slots=True)
class Network:
    """One network, which leads nowhere else.  subnet: of its IPv6 addresses."""

    name: str
    subnet: ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Project:
    """secrets: name -> file."""

    services: list[Service]
    networks: list[Network]
    volumes: list[str]
    secrets: dict[str, Path]

    def order(self) -> list[Service]:
        """The services, each behind those that it depends on; ComposeError for a circle."""
        left, done = list(self.services), dict[str, Service]()
        while left:
            ready = [one for one in left if all(name in done for name in one.after)]
            if not ready:
                raise ComposeError(f"{left[0].name} depends on itself or on what is not there")
            done.update((one.name, one) for one in ready)
            left = [one for one in left if one.name not in done]
        return list(done.values())


def read(path: Path, environment: dict[str, str] | None = None) -> Project:
    """Reads and checks a file; ComposeError with the service and the key."""
    variables = dict(os.environ) if environment is None else environment
    text = _VARIABLE.sub(lambda m: variables.get(m[1]) or m[2], path.read_text())
    top = yaml.safe_load(text)
    _refuse(path.name, {key for key in top if not key.startswith("x-")} - _TOP)
    root = path.parent
    return Project(
        [_service(name, body, root) for name, body in top["services"].items()],
        [_network(name, body) for name, body in top["networks"].items()],
        list(top["volumes"]),
        {name: root / body["file"] for name, body in top["secrets"].items()},
    )


def _refuse(where: str, keys: set[str]) -> None:
    if keys:
        raise ComposeError(f"{where}: {', '.join(sorted(keys))} is not done here")


def _network(name: str, body: dict[str, Any]) -> Network:
    match body:
        case {
            "internal": True,
            "enable_ipv6": True,
            "ipam": {"config": [{"subnet": str(subnet), **rest}], **others},
            **more,
        }:
            _refuse(name, {*rest, *others, *more})
            return Network(name, ipaddress.IPv6Network(subnet))
    raise ComposeError(f"{name}: a network must be internal, with one subnet of IPv6 addresses")


def _service(name: str, body: dict[str, Any], root: Path) -> Service:
    _refuse(name, set(body) - _SERVICE)
    for key, value in _ALWAYS.items():
        if body.get(key) != value:
            raise ComposeError(f"{name}: {key} must be {value!r}")
    for key, form in _LIMITS.items():
        if not form.fullmatch(str(body.get(key, ""))):
            raise ComposeError(
                f"{name}: {key} must be there, as 128 (pids_limit) or 256m (mem_limit)"
            )
    user, _, group = str(body.get("user", "")).partition(":")
    if not user.isdigit() or int(user) == 0 or group != user:
        raise ComposeError(f"{name}: user must be UID:UID, and not root")
    if body.get("network_mode", "none") != "none":
        raise ComposeError(f"{name}: network_mode must be none")
    health = list(body.get("healthcheck", {}).get("test", []))
    if health[:1] != ["CMD"]:
        raise ComposeError(f"{name}: healthcheck.test must begin with CMD")
    after = body.get("depends_on", {})
    return Service(
        name,
        [*body.get("entrypoint", []), *body["command"]],
        {key: str(value) for key, value in body.get("environment", {}).items()},
        [_mount(text, root) for text in body.get("volumes", [])],
        list(body.get("networks", [])),
        list(body.get("secrets", [])),
        {other: how["condition"] == "service_healthy" for other, how in after.items()},
        health[1:],
        int(user),
    )


def _mount(text: str, root: Path) -> Mount:
    source, target, *options = text.split(":")
    volume = not source.startswith((".", "/"))
    where = source if volume else str((root / source).resolve())
    return Mount(where, target, options == ["ro"], volume)
