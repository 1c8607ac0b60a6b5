"""Finds out who calls, and refuses strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn
from urllib.parse import unquote

import grpc

from rgpu_server.core.model import Code, Refusal
from rgpu_server.identity.guard import bearer
from rgpu_server.service.callers import LOCAL, Caller

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_server.core.identity import Identity
    from rgpu_server.identity.authenticator import Authenticator

_STATUS = {
    Code.NOT_IDENTIFIED: grpc.StatusCode.UNAUTHENTICATED,
    Code.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}


class Door:
    """Identifies callers as the server does. nodes: the tenant whose access tokens let nodes in."""

    def __init__(self, authenticator: Authenticator, nodes: str) -> None:
        self._authenticator = authenticator
        self._nodes = nodes

    async def admit(self, context: Context) -> Identity:
        """Returns who calls; ends the call of a stranger."""
        caller = caller_of(context)
        found = self._authenticator.admit(caller, bearer(context.invocation_metadata()))
        if isinstance(found, Refusal):
            await self._refuse(caller, found, context)
        return found

    async def admit_node(self, name: str, context: Context) -> None:
        """Ends the call of a caller that may not be the node with this name."""
        identity = await self.admit(context)
        if identity.operator or identity.tenant in (None, self._nodes, f"{self._nodes}:{name}"):
            return
        sentence = (
            f"tenant {identity.tenant!r} may not add the node {name}: make an access token for it "
            f"with `rgpu token new {self._nodes}:{name}` on the manager's machine, and name its "
            "file with --join-token"
        )
        await self._refuse(caller_of(context), Refusal(Code.NOT_ALLOWED, sentence), context)

    async def _refuse(self, caller: Caller, refusal: Refusal, context: Context) -> NoReturn:
        sentence = refusal.sentence
        if not self._authenticator.answers(caller, "api", refusal):
            sentence = "too many refused calls from this address; try again later"
        await context.abort(_STATUS[refusal.code], sentence)
        raise AssertionError("abort does not return")


def caller_of(context: Context) -> Caller:
    """Returns the caller as its connection shows it."""
    names = context.auth_context().get("x509_common_name") or ()
    tenant = names[0].decode(errors="replace") if names else ""
    transport = "tls" if tenant else "tcp"
    return Caller(transport, host_of(context.peer()), tenant=tenant, authenticated=bool(tenant))


def host_of(peer: str) -> str:
    """Returns the address in the name of a peer: "ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711"."""
    kind, _, where = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return "unknown"
    host = where.rpartition(":")[0].strip("[]").removeprefix("::ffff:")
    return LOCAL if host.startswith("127.") or host == "::1" else host
