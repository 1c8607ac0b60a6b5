"""How many claims, sessions and connections the open files of the daemon are enough for.

Each of them costs descriptors, and a daemon without a free one can neither accept a connection nor
start a worker.  Where the limit of the system (`ulimit -Hn`) is too low for what the operator set,
each kind gets a part of the limit, so that no kind takes the descriptors of another one.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.config import ServerConfig

# Of the daemon itself: listeners, libraries, compilers, gateways, the metrics port's connections,
# newcomers to the API, clients that read why they were refused.
_OWN = 256


class _Kind(Struct, frozen=True):
    """name: in the log.  most: as configured.  cost: descriptors of one.  part: of the limit, in
    percent.
    """

    name: str
    most: int
    cost: int
    part: int

    def within(self, descriptors: int) -> int:
        """Returns how many there may be."""
        return min(self.most, max(descriptors * self.part // 100 // self.cost, 1))


def raise_limit() -> int | None:
    """Lets this process have as many open files as the system allows; None: without a limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard


def fitted(config: ServerConfig, limit: int | None) -> tuple[ServerConfig, str]:
    """Returns the configuration with no more of anything than `limit` open files are enough for,
    and a sentence that says what was lowered, "" if nothing was.
    """
    kinds = _kinds(config)
    need = _OWN + sum(kind.most * kind.cost for kind in kinds)
    if limit is None or need <= limit:
        return config, ""
    free = max(limit - _OWN, 0)
    counts = [kind.within(free) for kind in kinds]
    lower = [
        f"{count} {kind.name} instead of {kind.most}"
        for kind, count in zip(kinds, counts, strict=True)
        if count < kind.most
    ]
    sentence = (
        f"the system lets this server have {limit} open files and it may need {need}: it takes at "
        f"most {', '.join(lower)}; raise the hard limit (ulimit -Hn, LimitNOFILE= of systemd)"
    )
    return _with(config, counts), sentence


def _kinds(config: ServerConfig) -> tuple[_Kind, ...]:
    policy, limits = config.policy, config.limits
    claims = 2 * policy.max_sessions if policy.max_claims is None else policy.max_claims
    return (
        # A worker's control socket, process and log, the three of its lease's page, and while it
        # opens its client's connection and the page once more.
        _Kind("sessions", policy.max_sessions, 8, 40),
        # Its connection and the page of its lease.
        _Kind("runs that hold leases", claims, 4, 20),
        _Kind("waiting claims", policy.max_waiting[0], 1, 5),
        _Kind("granted leases", policy.max_leases, 3, 15),
        # The client's, and both ends of the way to the API.
        _Kind("connections to the API", limits.control_connections, 3, 15),
        _Kind("connections in their handshake", limits.handshakes, 1, 5),
    )


def _with(config: ServerConfig, counts: list[int]) -> ServerConfig:
    sessions, claims, waiting, leases, api, handshakes = counts
    policy = config.policy
    own = policy.tenant_sessions
    every, tenant, address = policy.max_waiting
    return replace(
        config,
        policy=replace(
            policy,
            max_sessions=sessions,
            tenant_sessions=None if own is None else min(own, sessions),
            max_claims=claims,
            max_waiting=(min(every, waiting), min(tenant, waiting), min(address, waiting)),
            max_leases=leases,
        ),
        limits=replace(config.limits, control_connections=api, handshakes=handshakes),
    )
