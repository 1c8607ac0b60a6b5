"""The terms for sharing a device's time, which client, wire, configuration and server all use."""

from __future__ import annotations

from enum import IntEnum

from rgpu_common.errors import UnitError

MAX_PRIORITY = 100
MAX_WEIGHT = 1000


class SharePolicy(IntEnum):
    """How the request and the limit of a share are related. The value travels in a HELLO.

    NONE: both are as the client asks. FIXED: the limit equals the request. BURST: the limit is the
    whole device. BEST_EFFORT: the request is 0.
    """

    NONE = 0
    FIXED = 1
    BURST = 2
    BEST_EFFORT = 3

    @property
    def word(self) -> str:
        """The word that users write: "best-effort"."""
        return self.name.lower().replace("_", "-")

    @property
    def dictates_limit(self) -> bool:
        """True if the policy determines the limit."""
        return self in (SharePolicy.FIXED, SharePolicy.BURST)


POLICIES = tuple(policy.word for policy in SharePolicy)


def parse_policy(text: str) -> SharePolicy:
    """Returns the policy with this name. UnitError: there is none."""
    if text not in POLICIES:
        raise UnitError(f"{text!r} is not a policy: write {', '.join(POLICIES)}")
    return SharePolicy(POLICIES.index(text))
