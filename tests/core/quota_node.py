"""A node for tests of quotas, and short ways to ask it."""

from __future__ import annotations

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Code, Device, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy

GIB = 1 << 30


POLICY = Policy(warm_workers=0, reclaim_seconds=10, claim_seconds=20, max_ttl_seconds=1e6)


def owns(share: float, gib: float, **more: object) -> TenantPolicy:
    amount = Amount(int(share * 1_000_000), int(gib * GIB))
    return TenantPolicy(quota={"m": amount}, **more)  # type: ignore[arg-type]


def node(policy: Policy = POLICY, devices: int = 1, **tenants: TenantPolicy) -> Node:
    named = {name.replace("everybody", "*"): tenant for name, tenant in tenants.items()}
    return Node([Device(n, "lib", 8 * GIB, GIB, "m") for n in range(devices)], policy, named)


def ask(
    n: Node, tenant: str, key: str, share: float, gib: float, now: float = 0.0, **more: object
) -> list[do.Action]:
    wish = Wish(memory_bytes=int(gib * GIB), share_request_ppm=int(share * 1_000_000), **more)  # type: ignore[arg-type]
    return n.handle(on.LeaseRequested(1, tenant, key, wish, 1e5), now)


def granted(actions: list[do.Action]) -> bool:
    return isinstance(actions[-1], do.Answer)


def refusal(actions: list[do.Action]) -> tuple[Code, str]:
    assert isinstance(actions[-1], do.Refuse), actions
    return actions[-1].refusal.code, actions[-1].refusal.sentence


def shares(n: Node) -> dict[str, float]:
    return {lease.key.name: lease.quota.share_request_ppm / 1e6 for lease in n.leases}
