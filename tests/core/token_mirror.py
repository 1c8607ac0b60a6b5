"""The state of leases and of the holder that a test of the token scheduler computes by itself, and
the shares and holds that it tries.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.share import Share

MS = 1_000_000
PARAMS = TokenParams()
requests = st.sampled_from([0, 0, 50_000, 100_000, 250_000, 400_000])
limits = st.sampled_from([0, 100_000, 300_000, PPM, PPM])
shares = st.builds(
    lambda r, more, w, p: Share(r, max(r, more) or PPM, w, p),
    requests,
    limits,
    st.integers(1, 4),
    st.integers(0, 1),
)
holds = st.integers(1, 60 * MS)


@dataclass
class Mirror:
    """The state of one lease.

    credit, at: the cap bucket in ns x PPM, and when it was last filled. capped_since: from when on
    the bucket pays for device time. served_from: the device clock when the lease last did not wait.
    debt: device time until the lease may be served from its request.
    """

    share: Share
    wants: bool = False
    paused: bool = False
    credit: int = PARAMS.bucket_ns * PPM
    at: int = 0
    capped_since: int = 0
    served_from: int = 0
    debt: int = 0

    def refill(self, now: int) -> None:
        earned = self.credit + self.share.limit_ppm * (now - self.at)
        self.credit = min(PARAMS.bucket_ns * PPM, earned)
        self.at = now


@dataclass
class Held:
    """One hold of the token. began: the time of its Grant. since: the start of the time that is not
    booked yet.
    """

    lease: str
    gen: int
    began: int
    since: int
    ends: bool
    recalled: bool = False
