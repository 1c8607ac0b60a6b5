"""What the operator set, for all and for one tenant. Fields with `key` are keys of the file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.key_kinds import (
    Choice,
    Flag,
    Integer,
    MaybeDevices,
    MaybeInteger,
    MaybeMemory,
    Seconds,
    Share,
    Texts,
)
from rgpu_common.keys import Kind, key
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, SharePolicy
from rgpu_server.core.model import PPM, Amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.config import Table

_DAY = 86400
_MAX_COUNT = 100_000
_ABSENT = Choice({"unlimited": True, "none": False})


class Owned(Kind["Mapping[str, Amount] | None"]):
    """A table: model of a device -> what a tenant owns of these devices. None: the key is absent,
    and the tenant has no quota.
    """

    accepted = '`{"MODEL" = {share = 2.5, memory = "8GiB"}}`'

    def read(
        self, table: Table, name: str, default: Mapping[str, Amount] | None
    ) -> Mapping[str, Amount] | None:
        if not table.has(name):
            return default
        owned = {}
        for model, row in table.table(name).tables():
            owned[model] = Amount(row.optional_total_share("share") or 0, row.memory("memory", 0))
            row.done()
        return owned


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """The ceilings of one tenant over all its leases and sessions. None means no ceiling. The names
    of the keys are those of the tenant's table.
    """

    sessions: int | None = key(
        "sessions", MaybeInteger(0, _MAX_COUNT), None,
        "How many sessions the tenant may have at once.", unset="`sessions.per_tenant`",
    )  # fmt: skip
    memory_bytes: int | None = key(
        "memory", MaybeMemory(), None,
        "How much memory the tenant's leases may have together, over all devices. Nothing may pass "
        "this ceiling.", unset="no ceiling",
    )  # fmt: skip
    share_ppm: int | None = key(
        "share", MaybeDevices(), None,
        "How large the shares of the tenant's leases may be together, over all devices. Nothing "
        "may pass this ceiling.", unset="no ceiling",
    )  # fmt: skip
    max_priority: int = key(
        "max_priority",
        Integer(0, MAX_PRIORITY),
        0,
        "The highest priority that a lease may ask for.",
    )
    max_weight: int = key(
        "max_weight", Integer(1, MAX_WEIGHT), 1, "The highest weight that a lease may ask for."
    )
    pools: tuple[str, ...] = key(
        "pools", Texts(), (),
        "The pools whose devices the tenant may use: `public`, or names in `[pools]`.",
        unset="all pools",
    )  # fmt: skip
    quota: Mapping[str, Amount] | None = key(
        "quota", Owned(), None,
        "What the tenant owns of the devices of each model "
        "([quotas of tenants](../explanation/quotas-tenants.md)).", unset="no quota",
    )  # fmt: skip
    borrow: bool = key(
        "borrow", Flag(), False,
        "The tenant may hold more than its quota while other owners leave theirs idle.",
    )  # fmt: skip
    borrow_share_ppm: int | None = key(
        "borrow_share", MaybeDevices(), None,
        "How large a share of one model the tenant may borrow.", unset="no bound",
    )  # fmt: skip
    borrow_memory_bytes: int | None = key(
        "borrow_memory", MaybeMemory(), None,
        "How much memory of one model the tenant may borrow.", unset="no bound",
    )  # fmt: skip
    lend: bool = key("lend", Flag(), True, "Others may borrow what the tenant leaves idle.")
    leases: int | None = key(
        "leases", MaybeInteger(0, _MAX_COUNT), None,
        "How many granted leases the tenant may have at once.",
        unset="no more than are free",
    )  # fmt: skip

    @property
    def borrow_limit(self) -> tuple[int | None, int | None]:
        """The bounds of a loan of one model: share and memory."""
        return self.borrow_share_ppm, self.borrow_memory_bytes


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's settings for all tenants.

    slots: sessions that fit in one lease page.
    keep_place_seconds: how long a run that holds a lease keeps a place for its next session.
    max_claims: the most runs that hold leases at once, half of them of one tenant; None is twice
        max_sessions.
    max_waiting: the most claims that wait for room: in all, of one tenant, from one address.
    max_wait_seconds: the longest wait of a claim.
    member: the server is a node of a cluster. Only the cluster's manager and operators make leases
        here and let them grow, so that nobody gets past the manager's quotas.
    """

    slots: int = 56
    max_sessions: int = key(
        "sessions.max", Integer(1, _MAX_COUNT), 256,
        "How many sessions the server has at once. Its [open files](#open-files) may allow fewer.",
    )  # fmt: skip
    tenant_sessions: int | None = key(
        "sessions.per_tenant", MaybeInteger(1, _MAX_COUNT), None,
        "How many sessions one tenant may have at once, if its own table does not say.",
        unset="half of `sessions.max`",
    )  # fmt: skip
    default_share_request_ppm: int = key(
        "leases.share", Share(), 0, "The guaranteed share of a lease that does not ask for one."
    )
    default_share_limit_ppm: int = key(
        "leases.limit", Share(), PPM,
        "The largest share that a lease may use, if the lease does not ask for a limit: above 0 "
        "and not below `leases.share`.",
    )  # fmt: skip
    default_policy: SharePolicy = key(
        "leases.policy", Choice({policy.word: policy for policy in SharePolicy}), SharePolicy.NONE,
        "The [policy](units.md) of a lease that asks neither for a policy nor for sizes that "
        "contradict this one. `leases.share` and `leases.limit`, where they are set, may not "
        "contradict it.",
    )  # fmt: skip
    max_tenants: int = key(
        "quota.max_tenants", Integer(0, _MAX_COUNT), 64,
        "How many tenants without a table of their own may have sessions or granted leases at "
        "once.",
    )  # fmt: skip
    max_leases: int = key(
        "leases.max", Integer(0, _MAX_COUNT), 1024, "How many granted leases there may be at once."
    )
    max_idle_leases: int = key(
        "leases.max_empty", Integer(0, _MAX_COUNT), 16,
        "How many empty leases one tenant may leave behind, and how many one address may.",
    )  # fmt: skip
    absent_tenant_unlimited: bool = key(
        "quota.absent_tenant", _ABSENT, True,
        "What a tenant without a quota may have: everything, or nothing.",
    )  # fmt: skip
    absent_model_unlimited: bool = key(
        "quota.absent_model", _ABSENT, False,
        "What a tenant may have of a model that its quota does not name.",
    )  # fmt: skip
    reclaim_memory: bool = key(
        "quota.reclaim_memory", Flag(), True, "An owner gets memory back that others have borrowed."
    )
    reclaim_seconds: float = key(
        "quota.reclaim_seconds", Seconds(0, _DAY), 30.0,
        "How long before borrowed memory goes back to its owner the borrower is told.",
    )  # fmt: skip
    claim_seconds: float = key(
        "quota.claim_seconds", Seconds(0, _DAY), 60.0,
        "How long memory that was taken back is kept for its owner, and how long the first claim "
        "in line keeps others out of the room that it waits for.",
    )  # fmt: skip
    keep_place_seconds: float = 60.0
    max_claims: int | None = None
    max_waiting: tuple[int, int, int] = (256, 16, 64)
    max_wait_seconds: float = 86400.0
    member: bool = False
    ttl_seconds: float = key(
        "leases.ttl_seconds", Seconds(0.1, _DAY), 30.0,
        "How long a granted lease lives after its last keep-alive, if the grant does not say.",
    )  # fmt: skip
    max_ttl_seconds: float = float(_DAY)
    grace_seconds: float = key(
        "leases.grace_seconds", Seconds(0, 3600), 5.0,
        "How long a lease that came with a session stays after its last session. The own lease of "
        "a run ends at once.",
    )  # fmt: skip
    settle_seconds: float = key(
        "leases.settle_seconds", Seconds(0, 60), 1.0,
        "How long a session or a run waits for a lease in use to become empty, if it asks for "
        "other sizes than the lease has.",
    )  # fmt: skip
    memory_seconds: float = key(
        "leases.remember_seconds", Seconds(0, 7 * _DAY), 3600.0,
        "How long the key of a revoked or expired lease is refused by name.",
    )  # fmt: skip
    open_seconds: float = key(
        "sessions.open_seconds", Seconds(0.1, 600), 10.0,
        "How long the opening of a session may take.",
    )  # fmt: skip
    end_seconds: float = key(
        "sessions.end_seconds", Seconds(0.1, 60), 2.0,
        "How long a worker that was told to end may take, before the server kills it.",
    )  # fmt: skip
    warm_workers: int = key(
        "workers.warm", Integer(0, 1000), 2, "How many started workers wait for sessions."
    )
    start_seconds: float = key(
        "workers.start_seconds", Seconds(1, 600), 60.0,
        "How long a worker may take until it is ready for a session, before the server kills it.",
    )  # fmt: skip
    max_starting: int = 4
    max_start_failures: int = 4
    first_back_off_seconds: float = 0.1
    max_back_off_seconds: float = 30.0
