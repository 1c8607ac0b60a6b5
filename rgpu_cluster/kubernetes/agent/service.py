"""Gives credentials of claims to the plugins of client nodes."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import grpc
from lightkube.models.authentication_v1 import TokenReviewSpec
from lightkube.resources.authentication_v1 import TokenReview

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.access import (
    Caller,
    Denial,
    Paces,
    Why,
    caller_of,
    claim_denial,
    pod_denial,
    wrong,
)
from rgpu_cluster.kubernetes.api import CALL_ERRORS, sentence_of
from rgpu_common.claim_tokens import make
from rgpu_common.clusters import lease_key
from rgpu_common.turns import TurnPlaces
from rgpu_common.v1 import credentials_pb2, credentials_pb2_grpc
from rgpu_server.core.failures import network_of
from rgpu_server.service.callers import host_of

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context
    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.agent.access import PodFacts
    from rgpu_cluster.kubernetes.agent.views import ClaimView

log = logging.getLogger("rgpu.kubernetes")

_MOST_TOKEN = 8192
# A token that was accepted is not shown to the API server again for so long.
_KNOWN_SECONDS = 60.0
_MOST_KNOWN = 4096
# Reviews under way at once; the others wait, and addresses take turns.
_REVIEWS = 8
_DEADLINE_SECONDS = 12.0
# Of a claim, so many pods are asked for; it may be reserved for 256.
_MOST_PODS = 256


class Offers(Protocol):
    """What the service knows of the node's claims."""

    def claim(self, namespace: str, name: str) -> ClaimView | None:
        """Returns the claim as it was last heard of."""

    def address(self) -> str:
        """Returns the server's address for programs, "" while there is no server."""

    def is_leased(self, uid: str) -> bool:
        """Returns whether the claim has its lease."""

    async def pods(self, view: ClaimView, most: int) -> list[PodFacts | None]:
        """Asks the API server for pods of a claim."""


class CredentialService(credentials_pb2_grpc.CredentialServiceServicer):
    """key: that of this node. account: NAMESPACE/NAME of the plugin's ServiceAccount."""

    def __init__(
        self,
        client: AsyncClient,
        offers: Offers,
        key: bytes,
        account: str,
        lifetime_seconds: float,
    ) -> None:
        self._client = client
        self._offers = offers
        self._key = key
        self._account = account
        self._lifetime_seconds = lifetime_seconds
        # A node starts some pods a second; strangers are slowed before the API server is asked.
        self._nodes = Paces(rate=20.0, burst=100)
        self._peers = Paces(rate=20.0, burst=100)
        self._known: dict[bytes, tuple[Caller, float]] = {}
        self._reviews = TurnPlaces(_REVIEWS)

    async def GetCredential(
        self, request: credentials_pb2.GetCredentialRequest, context: Context
    ) -> credentials_pb2.GetCredentialResponse:
        try:
            found = await asyncio.wait_for(self._answer(request, context), _DEADLINE_SECONDS)
        except asyncio.TimeoutError:
            found = Denial(Why.UNAVAILABLE, "the API server does not answer in time; ask again")
        except CALL_ERRORS as error:
            found = Denial(Why.UNAVAILABLE, f"the API server: {sentence_of(error)}; ask again")
        if isinstance(found, Denial):
            await _refuse(found, context)
        return found

    async def _answer(
        self, request: credentials_pb2.GetCredentialRequest, context: Context
    ) -> credentials_pb2.GetCredentialResponse | Denial:
        denial = wrong(request)
        if denial is not None:
            return denial
        caller = await self._caller(context)
        if isinstance(caller, Denial):
            return caller
        if not self._nodes.may(caller.node, time.monotonic()):
            return _too_often(f"node {caller.node}")
        view = self._offers.claim(request.namespace, request.name)
        denial = claim_denial(view, request, self._offers.is_leased(request.uid))
        if denial is not None or view is None:
            return denial or Denial(Why.NOT_FOUND, "there is no such claim")
        denial = pod_denial(view, await self._offers.pods(view, _MOST_PODS), caller)
        if denial is not None:
            return denial
        return self._credential(view)

    def _credential(self, view: ClaimView) -> credentials_pb2.GetCredentialResponse | Denial:
        server = self._offers.address()
        if not server:
            return Denial(Why.UNAVAILABLE, "the server of this node does not answer; ask again")
        expires = int(time.time() + self._lifetime_seconds)
        return credentials_pb2.GetCredentialResponse(
            token=make(self._key, view.uid, view.namespace, expires),
            expires=expires,
            server=server,
            lease=lease_key(view.uid, view.first),
            device=",".join(str(share.ordinal) for share in view.shares),
        )

    async def _caller(self, context: Context) -> Caller | Denial:
        """Returns who calls, as the API server says."""
        token = _bearer(context)
        if not token:
            sentence = "show the ServiceAccount token of the plugin's pod as `authorization`"
            return Denial(Why.UNAUTHENTICATED, sentence)
        now = time.monotonic()
        print_ = hashlib.sha256(token.encode()).digest()
        known = self._known.get(print_)
        if known is not None and now < known[1]:
            return known[0]
        host = network_of(host_of(context.peer()))
        if not self._peers.may(host, now):
            return _too_often("this address")
        async with self._reviews.place(host):
            found = caller_of(await self._review(token), self._account)
        if isinstance(found, Caller):
            self._known.pop(print_, None)
            self._known[print_] = (found, now + _KNOWN_SECONDS)
            while len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        return found

    async def _review(self, token: str) -> dict[str, Any]:
        spec = TokenReviewSpec(audiences=[names.AUDIENCE], token=token)
        done = await self._client.create(TokenReview(spec=spec))
        return done.status.to_dict() if done.status is not None else {}


def _bearer(context: Context) -> str:
    """Returns the token that a call shows, "" if it is none."""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value.startswith("Bearer "):
            token = value.removeprefix("Bearer ")
            fits = 0 < len(token) <= _MOST_TOKEN and token.isascii() and token.isprintable()
            return token if fits else ""
    return ""


def _too_often(who: str) -> Denial:
    return Denial(Why.RESOURCE_EXHAUSTED, f"too many calls from {who}; ask again in a second")


async def _refuse(denial: Denial, context: Context) -> NoReturn:
    log.info("no credential for %s: %s", context.peer(), denial.sentence)
    await context.abort(grpc.StatusCode[denial.why.name], denial.sentence)
    raise AssertionError("abort does not return")
