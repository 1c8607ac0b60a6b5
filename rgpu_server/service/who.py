"""Decides whose session a HELLO opens, and whose lease an OBSERVE asks about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import Code, LeaseKey, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.wire.hello import Hello
    from rgpu_common.wire.observe import Observe
    from rgpu_server.core.identity import Identity


class Who(Struct, frozen=True):
    """Whose a session is. proved: a credential says so. bound: the credential is for some leases
    alone, so it makes none. operator: it is an operator's.
    """

    tenant: str
    proved: bool
    bound: bool
    operator: bool


def who(
    identity: Identity, hello: Hello | Observe, has_lease: Callable[[LeaseKey], bool]
) -> Who | Refusal:
    """Returns whose the session is. has_lease: tells whether there is an active lease of a key."""
    tenant = identity.speaks_for(hello.tenant)
    if isinstance(tenant, Refusal):
        return tenant
    bound = identity.requests is not None
    refusal = identity.may_use(hello.lease_key)
    if refusal is None and bound and not has_lease(LeaseKey(tenant, hello.lease_key)):
        sentence = (
            f"this server has no lease {hello.lease_key!r}: its claim was deallocated, or is "
            "on another server; start the pod again"
        )
        refusal = Refusal(Code.LEASE_ENDED, sentence)
    return refusal or Who(tenant, identity.tenant is not None, bound, identity.operator)


def container_of(peer: str, container: str) -> str:
    """Returns the container as it is part of a lease's key. The client chooses its container name,
    so the address it connects from is part of it.
    """
    return f"{peer}/{container}" if container else peer
