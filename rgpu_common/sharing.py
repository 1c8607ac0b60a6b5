"""How a device's time is shared: the words that client, wire, configuration and server have in
common.
"""

from __future__ import annotations

from enum import IntEnum

from rgpu_common.errors import UnitError

MAX_PRIORITY = 100
MAX_WEIGHT = 1000


class SharePolicy(IntEnum):
    """What request and limit are to each other.  The value travels in a HELLO.

    NONE: both as asked for.  FIXED: the limit is the request.  BURST: the limit is the whole
    device.  BEST_EFFORT: the request is 0.
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
        """True if the limit follows from the policy."""
        return self in (SharePolicy.FIXED, SharePolicy.BURST)


POLICIES = tuple(policy.word for policy in SharePolicy)


def parse_policy(text: str) -> SharePolicy:
    """Returns the policy of this name; UnitError if there is none."""
    if text not in POLICIES:
        raise UnitError(f"{text!r} is not a policy: write {', '.join(POLICIES)}")
    return SharePolicy(POLICIES.index(text))
