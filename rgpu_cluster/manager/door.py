"""Finds out who calls, and refuses strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import grpc

from rgpu_cluster.manager.certificates import tenant_of
from rgpu_server.core.model import Code, Refusal
from rgpu_server.identity.guard import bearer
from rgpu_server.service.callers import Caller, host_of
from rgpu_server.web.calls import OwnCall

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_server.core.identity import Identity
    from rgpu_server.identity.authenticator import Authenticator

_STATUS = {
    Code.NOT_IDENTIFIED: grpc.StatusCode.UNAUTHENTICATED,
    Code.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}


class Door:
    """Identifies callers as the server does.

    nodes: the tenant whose access tokens let nodes in. uri_prefix: what precedes the tenant in the
    URI of a certificate; "": the tenant is its common name.
    """

    def __init__(self, authenticator: Authenticator, nodes: str, uri_prefix: str = "") -> None:
        self._authenticator = authenticator
        self._nodes = nodes
        self._uri_prefix = uri_prefix

    async def admit(self, context: Context) -> Identity:
        """Returns who calls; ends the call of a stranger."""
        if isinstance(context, OwnCall):
            return context.identity  # another door of this process has identified the caller
        caller = self._caller(context)
        found = self._authenticator.admit(caller, bearer(context.invocation_metadata()))
        if isinstance(found, Refusal):
            await self._refuse(caller, found, context)
        return found

    async def admit_agent(self, context: Context) -> None:
        """Ends the call of a caller that may be no node at all, before its report is read."""
        identity = await self.admit(context)
        if not self._may_be_node(identity, ""):
            await self._refuse_node(identity, "", context)

    async def admit_node(self, name: str, context: Context) -> None:
        """Ends the call of a caller that may not be the node with this name."""
        identity = await self.admit(context)
        if not self._may_be_node(identity, name):
            await self._refuse_node(identity, name, context)

    def _may_be_node(self, identity: Identity, name: str) -> bool:
        """name: "": any node."""
        tenant, one = identity.tenant, f"{self._nodes}:"
        if identity.operator or tenant is None or tenant == self._nodes:
            return True
        return tenant == one + name if name else tenant.startswith(one)

    async def _refuse_node(self, identity: Identity, name: str, context: Context) -> NoReturn:
        what = f"not add the node {name}" if name else "add no node"
        sentence = (
            f"tenant {identity.tenant!r} may {what}: make an access token for it with "
            f"`rgpu token new {self._nodes}:{name or 'NAME'}` on the manager's machine, and name "
            "its file with --join-token"
        )
        await self._refuse(self._caller(context), Refusal(Code.NOT_ALLOWED, sentence), context)

    def _caller(self, context: Context) -> Caller:
        tenant = tenant_of(context.auth_context(), self._uri_prefix)
        transport = "tls" if tenant else "tcp"
        return Caller(transport, host_of(context.peer()), tenant=tenant, authenticated=bool(tenant))

    async def _refuse(self, caller: Caller, refusal: Refusal, context: Context) -> NoReturn:
        sentence = refusal.sentence
        if not self._authenticator.answers(caller, "api", refusal):
            sentence = "too many refused calls from this address; try again later"
        await context.abort(_STATUS[refusal.code], sentence)
        raise AssertionError("abort does not return")
