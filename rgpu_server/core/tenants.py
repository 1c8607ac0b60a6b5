"""Limits how many sessions and granted leases a tenant may have, and how many tenants there may
be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.units import counted
from rgpu_server.core.model import DEFAULT_TENANT, Code, RefusedError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from rgpu_server.core.policy import TenantPolicy


def check_sessions(tenant: str, policy: TenantPolicy, running: int, most: int) -> None:
    """Refuses one more session beside `running` ones if the tenant has reached its ceiling.

    most: the ceiling of a tenant whose table names none, so that no tenant takes all sessions.
    """
    if policy.sessions is None and running >= most:
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {tenant!r} has {running} sessions, as many as one tenant may have here; end "
            "one, or ask the operator for more (sessions.per_tenant, or sessions in the tenant's "
            "table)",
        )
    if policy.sessions is not None and running >= policy.sessions:
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {tenant!r} has all of its sessions ({running} of {policy.sessions}); "
            "end one or ask the operator for more",
        )


def check_grants(
    tenant: str, policy: TenantPolicy, there: Sequence[str], most: int, *, operator: bool = False
) -> None:
    """Refuses one more granted lease if there are as many as allowed: each costs descriptors and
    memory.

    A granted lease is a promise and gives way to nobody, so room is left beforehand: a tenant whose
    table names no ceiling has no more leases than are free. However many tenants act together, each
    leaves as many as it takes, and another tenant finds some.

    there: the tenant of each granted lease. most: the ceiling over all tenants. operator: an
    operator or the cluster's manager asks, and answers for the others.
    """
    own = there.count(tenant)
    if policy.leases is not None and own >= policy.leases:
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {tenant!r} has all of its granted leases ({own} of {policy.leases}); revoke "
            "one or ask the operator for more",
        )
    if len(there) >= most:
        raise RefusedError(
            Code.SERVER_FULL,
            f"the server has granted {counted(len(there), 'lease')}, as many as it may "
            "(leases.max); revoke one that is not needed, or try again when one has ended",
        )
    if policy.leases is None and not operator and own >= most - len(there):
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {tenant!r} has {own} of {most} granted leases, and the {most - len(there)} "
            "that are free are left for other tenants; revoke one, or ask the operator for more "
            "(leases in the tenant's table)",
        )


def check_tenants(tenant: str, named: Container[str], there: Iterable[str], most: int) -> None:
    """Refuses one more tenant that the configuration does not name, because each tenant costs a
    process.
    """
    if tenant in named or tenant == DEFAULT_TENANT:
        return
    others = {name for name in there if name not in named and name != DEFAULT_TENANT}
    if tenant not in others and len(others) >= most:
        raise RefusedError(
            # Not SERVER_FULL, because tenants that the configuration names are still served.
            Code.TENANT_LIMIT,
            f"the server serves {counted(len(others), 'tenant')} that its configuration does not "
            "name, as many as it may (quota.max_tenants); use a tenant that it names, leave the "
            "name out, or try again when one has ended",
        )
