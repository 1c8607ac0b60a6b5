"""Lets in whom the rules let in: tokens are looked up, failures counted, noted and bounded."""

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
    from rgpu_server.identity.tokens import Tokens
    from rgpu_server.service.callers import Caller


class Gate:
    """Asked for each session and each call of the API.  Without tokens, a token means nothing."""

    def __init__(
        self,
        rules: IdentityRules | None = None,
        tokens: Tokens | None = None,
        clock: Clock | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._rules = rules or IdentityRules()
        self._tokens = tokens
        self._clock = clock or MonotonicClock()
        self._wall_clock = wall_clock
        self._failures = Failures()
        # For the metrics: by proof, by what was asked for, and those not even answered.
        self.admitted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.unanswered = 0

    def admit(self, caller: Caller, token: str) -> Identity | Refusal:
        """Returns who it is, or why not; ask `answers` before a refusal is answered."""
        found = identify(self._rules, self._evidence(caller, token))
        if isinstance(found, Identity):
            self.admitted[found.proof.value] += 1
        return found

    def answers(self, caller: Caller, what: str, refusal: Refusal) -> bool:
        """Counts and notes a refusal; False: its peer has had too many, say nothing.

        what: "session", "lane", "api", "metrics" or "handshake".
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

    def _evidence(self, caller: Caller, token: str) -> Evidence:
        row = None
        if token and self._tokens is not None:
            row = self._tokens.row_of(token, self._wall_clock())
        return Evidence(
            # What a proxy of HTTP brings may come from anywhere.
            local=caller.peer == LOCAL and caller.transport != "grpc",
            uid=caller.uid,
            own=caller.uid is not None and is_own_uid(caller.uid),
            certificate=caller.tenant if caller.authenticated else "",
            token=row.tenant if row is not None else "",
            bad_token=bool(token) and self._tokens is not None and row is None,
        )
