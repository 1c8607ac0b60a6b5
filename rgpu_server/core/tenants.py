"""What one tenant may take over all its leases and sessions."""

from __future__ import annotations

from rgpu_common.units import format_bytes
from rgpu_server.core.model import Code, RefusedError, TenantPolicy


def check_sessions(tenant: str, policy: TenantPolicy, running: int) -> None:
    """Refuses one more session beside `running` ones if the tenant's ceiling is reached."""
    if policy.sessions is not None and running >= policy.sessions:
        raise RefusedError(
            Code.TENANT_LIMIT,
            f"tenant {tenant!r} has all of its sessions ({running} of {policy.sessions}); "
            "end one or ask the operator for more",
        )


def check_memory(tenant: str, policy: TenantPolicy, held_bytes: int, more_bytes: int) -> None:
    """Refuses `more_bytes` beside `held_bytes` if they pass the tenant's ceiling."""
    if policy.memory_bytes is None or held_bytes + more_bytes <= policy.memory_bytes:
        return
    free = max(policy.memory_bytes - held_bytes, 0)
    ceiling, left, asked = (format_bytes(n) for n in (policy.memory_bytes, free, more_bytes))
    raise RefusedError(
        Code.TENANT_LIMIT,
        f"tenant {tenant!r} may lease {ceiling}, and {left} of it is free: "
        f"{format_bytes(more_bytes - free)} too little for {asked} more",
    )
