"""Answers browsers: the page's files, who the user is, what there is, and orders."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from rgpu_server.core.identity import Identity
from rgpu_server.core.model import Code, Refusal
from rgpu_server.identity.guard import Known
from rgpu_server.observe.audit import audit
from rgpu_server.web.calls import CallRefusedError
from rgpu_server.web.feed import Feed
from rgpu_server.web.http import JSON, Answer, Question, told
from rgpu_server.web.origin import (
    SECRET_HEADER,
    knows_secret,
    strange_host,
    strange_origin,
    was_forwarded,
)
from rgpu_server.web.static_files import static_files

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping, Sequence

    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.service.callers import Caller
    from rgpu_server.web.changes import State

# How often a view that goes on asks again who looks at it: an access token may be revoked.
_ADMIT_TURNS = 5
# A view on which nothing changes says so much, so that proxies and browsers know that it lives.
_ALIVE_TURNS = 5
_CARRIED_OUT, _REFUSED = "page_order_carried_out", "page_order_refused"
_ALIVE = b": alive\n\n"


class Pages(Protocol):
    """What the page shows and does. kind: "server" or "manager". title: names the machine."""

    kind: str
    title: str

    async def states(self, callers: Sequence[Known]) -> Sequence[State]:
        """Returns what each of the callers may see, now."""

    async def ask(self, caller: Known, what: str, query: Mapping[str, str]) -> Any:
        """Answers one question in JSON; CallRefusedError."""

    async def order(self, caller: Known, order: str, body: Mapping[str, Any]) -> str:
        """Carries an order out, and returns what has been done, as a sentence; CallRefusedError."""


class Site:
    """authenticator: decides about callers as everywhere. hosts: names of the page beside this
    machine's. release: of rgpu.
    """

    def __init__(
        self, pages: Pages, authenticator: Authenticator, hosts: Collection[str], release: str
    ) -> None:
        own = socket.gethostname().lower()
        self._hosts = {own, own.partition(".")[0], *(host.lower() for host in hosts)}
        self._pages = pages
        self._authenticator = authenticator
        self._release = release
        self._secret = secrets.token_urlsafe(24)
        self._files = static_files()
        self._feed = Feed(pages.states)

    async def close(self) -> None:
        """Ends all views."""
        await self._feed.close()

    async def answer(self, question: Question, caller: Caller) -> Answer:
        """Answers a question."""
        strange = strange_host(question.headers.get("host", ""), self._hosts)
        if strange:
            return told(421, strange)
        if not question.path.startswith("/api/"):
            return self._file(question)
        strange = strange_origin(question.headers)
        if strange:
            return told(403, strange)
        if was_forwarded(question.headers):
            # A proxy on this machine is no proof of who is behind it.
            caller = replace(caller, peer="behind a proxy", uid=None)
        token = _bearer(question.headers)
        found = self._authenticator.admit(caller, token)
        if isinstance(found, Refusal):
            return self._kept_out(caller, found, token)
        try:
            return await self._api(question, Known(caller, found), token)
        except CallRefusedError as error:
            return told(error.status, str(error))

    async def _api(self, question: Question, known: Known, token: str) -> Answer:
        what = question.path.removeprefix("/api/")
        if what == "order":
            return await self._order(question, known)
        if question.method not in ("GET", "HEAD"):
            return told(405, "this path takes GET")
        if what == "hello":
            return self._hello(known)
        if what == "live":
            return self._live(known, token)
        found = await self._pages.ask(known, what, question.query)
        return Answer(body=json.dumps(found, separators=(",", ":")).encode())

    def _file(self, question: Question) -> Answer:
        if question.method not in ("GET", "HEAD"):
            return told(405, "this path takes GET")
        file = self._files.get(question.path)
        if file is None:
            return told(404, f"there is nothing at {question.path[:100]}")
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if question.headers.get("if-none-match") == file.tag:
            return Answer(304, kind=file.kind, headers=headers)
        return Answer(body=file.content, kind=file.kind, headers=headers)

    def _kept_out(self, caller: Caller, refusal: Refusal, token: str) -> Answer:
        if not self._authenticator.answers(caller, "page", refusal):
            return told(429, "too many refused questions from this address; try again later")
        unknown, sentence = refusal.code is Code.NOT_IDENTIFIED, refusal.sentence
        if unknown and not token:
            # The refusal's own words are for a terminal: variables, and the server's socket.
            kind = self._pages.kind
            sentence = (
                f"this {kind} shows nothing without an access token; if you have none, ask the "
                f"{kind}'s operator for one"
            )
        answer = told(401 if unknown else 403, sentence)
        if answer.status == 401:
            answer.headers["www-authenticate"] = "Bearer"
        return answer

    def _hello(self, known: Known) -> Answer:
        identity = known.identity
        said = {
            "kind": self._pages.kind,
            "title": self._pages.title,
            "release": self._release,
            "secret": self._secret,
            "tenant": identity.tenant,
            "operator": identity.operator,
            "proof": identity.proof.value,
        }
        return Answer(body=json.dumps(said).encode())

    def _live(self, known: Known, token: str) -> Answer:
        return Answer(kind="text/event-stream", stream=self._views(known, token))

    async def _views(self, known: Known, token: str) -> AsyncGenerator[bytes, None]:
        turns = silent = 0
        async with contextlib.aclosing(self._feed.watch(known)) as watching:
            async for text in watching:
                turns, silent = turns + 1, 0 if text else silent + 1
                if turns % _ADMIT_TURNS == 0 and not self._still(known, token):
                    return
                if text or silent % _ALIVE_TURNS == 0:
                    yield text or _ALIVE

    def _still(self, known: Known, token: str) -> bool:
        found = self._authenticator.admit(known.caller, token)
        return isinstance(found, Identity) and found == known.identity

    async def _order(self, question: Question, known: Known) -> Answer:
        if question.method != "POST":
            return told(405, "this path takes POST")
        if question.headers.get("content-type", "").partition(";")[0].strip() != JSON:
            return told(415, "an order is JSON")
        if not knows_secret(question.headers, self._secret):
            sentence = (
                "the order does not come from a page of this server as it runs now; it was not "
                f"carried out: load the page again (header {SECRET_HEADER}, from /api/hello)"
            )
            return told(403, sentence)
        try:
            body = question.json()
            order = str(body["order"])
        except (ValueError, KeyError, RecursionError):
            return told(400, 'an order is a JSON object with the word "order"')
        return await self._carry_out(order, body, known)

    async def _carry_out(self, order: str, body: Mapping[str, Any], known: Known) -> Answer:
        try:
            # It is carried out although its browser may go away meanwhile.
            said = await asyncio.shield(self._pages.order(known, order, body))
        except CallRefusedError as error:
            _note(_REFUSED, order, body, known, str(error))
            raise
        _note(_CARRIED_OUT, order, body, known, said)
        self._feed.poke()
        return Answer(body=json.dumps({"message": said}).encode())


def _note(event: str, order: str, body: Mapping[str, Any], known: Known, sentence: str) -> None:
    """Writes an order down, with who gave it and what became of it.

    An order that was refused may name the lease of another tenant, whose log it must not enter.
    """
    rest = {name: value for name, value in body.items() if name != "order"}
    lease = str(rest.pop("lease", "")) if event == _CARRIED_OUT else ""
    audit(
        event,
        order=order[:64],
        lease=lease[:64] or None,
        tenant=None if lease else known.identity.tenant,
        sentence=sentence,
        values=json.dumps(rest)[:200] if rest else None,
        **known.noted,
    )


def _bearer(headers: Mapping[str, str]) -> str:
    kind, _, access_token = headers.get("authorization", "").partition(" ")
    return access_token.strip() if kind.lower() == "bearer" else ""
