"""The authenticator: decides which callers are admitted, and counts, logs and limits refusals."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from rgpu_common.clock import Clock, MonotonicClock
from rgpu_server.core.failures import Failures, network_of
from rgpu_server.core.identity import Evidence, Identity, IdentityRules, identify
from rgpu_server.observe.audit import audit
from rgpu_server.service.callers import LOCAL, is_own_uid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.model import Refusal
    from rgpu_server.identity.access_tokens import AccessTokens
    from rgpu_server.identity.claim_access import ClaimAccess
    from rgpu_server.service.callers import Caller


class Authenticator:
    """Asked for each session and API call. access_tokens, claims: None: such tokens are not known
    here; without both, access tokens are ignored.
    """

    def __init__(
        self,
        rules: IdentityRules | None = None,
        access_tokens: AccessTokens | None = None,
        claims: ClaimAccess | None = None,
        clock: Clock | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = rules or IdentityRules()
        self._access_tokens = access_tokens
        self._claims = claims
        self._clock = clock or MonotonicClock()
        self._wall_clock = wall_clock
        self._failures = Failures()
        # For the metrics: admissions by proof, refusals by kind of request, and refusals that got
        # no answer.
        self.admitted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unanswered = 0

    def admit(self, caller: Caller, access_token: str) -> Identity | Refusal:
        """Returns the caller's identity, or a refusal. Call `answers` before sending a refusal."""
        found = identify(self._rules, self._evidence(caller, access_token))
        if isinstance(found, Identity):
            self.admitted[found.proof.value] += 1
        return found

    def answers(self, caller: Caller, what: str, refusal: Refusal) -> bool:
        """Counts and logs a refusal. Returns False if its peer has had too many: then send nothing.

        what: "session", "lane", "observe", "api", "metrics" or "handshake".
        """
        self.refused[what] += 1
        if not self._failures.answered(network_of(caller.peer), self._clock.now()):
            self.unanswered += 1
            return False
        audit(
            "identity_refused",
            what=what,
            transport=caller.transport,
            peer=caller.peer,
            uid=caller.uid,
            reason=refusal.code.value,
        )
        return True

    def _evidence(self, caller: Caller, access_token: str) -> Evidence:
        tenant, requests = "", None
        if access_token and self._claims is not None:
            tenant, requests = self._claims.look(access_token, self._wall_clock())
        if access_token and not tenant and self._access_tokens is not None:
            row = self._access_tokens.row_of(access_token, self._wall_clock())
            tenant = row.tenant if row is not None else ""
        checked = self._access_tokens is not None or self._claims is not None
        return Evidence(
            # A connection through an HTTP proxy on this machine may come from any machine.
            local=caller.peer == LOCAL and caller.transport != "grpc",
            uid=caller.uid,
            own=caller.uid is not None and is_own_uid(caller.uid),
            certificate=caller.tenant if caller.authenticated else "",
            access_token=tenant,
            bad_access_token=bool(access_token and checked and not tenant),
            requests=requests,
        )
