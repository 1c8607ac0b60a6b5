"""A node for tests of claims, and helpers that read its answers."""

from __future__ import annotations

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Device, Refusal, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy

GIB = 1 << 30
POLICY = Policy(warm_workers=0, max_waiting=(6, 3, 4))


def node(policy: Policy = POLICY, devices: int = 1, **tenants: TenantPolicy) -> Node:
    return Node(
        [Device(n, "emulated", 8 * GIB, 2 * GIB, "model") for n in range(devices)], policy, tenants
    )


def claim(
    number: int,
    gib: int = 2,
    tenant: str = "alice",
    key: str = "",
    wait: float = 0.0,
    address: str = "here",
    proved: bool = False,
    **wish: int,
) -> on.ClaimRequested:
    return on.ClaimRequested(
        number,
        tenant,
        key or f"run-{number}",
        "box",
        Wish(memory_bytes=gib * GIB, **wish),
        address,
        own=not key,
        wait_seconds=wait,
        proved=proved,
    )


def session(number: int, key: str, gib: int = 0, tenant: str = "alice") -> on.SessionRequested:
    return on.SessionRequested(number, tenant, key, "box", Wish(memory_bytes=gib * GIB))


def refusal(actions: list[do.Action]) -> Refusal:
    return next(a.refusal for a in actions if isinstance(a, do.RefuseClaim | do.RefuseSession))


def granted(actions: list[do.Action]) -> list[int]:
    return [a.claim for a in actions if isinstance(a, do.GrantClaim)]


def places(actions: list[do.Action]) -> dict[int, tuple[int, int]]:
    return {a.claim: (a.place, a.waiting) for a in actions if isinstance(a, do.TellPlace)}
