"""Turns a wish into the sizes, policy, priority and weight of a lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, SharePolicy
from rgpu_common.units import format_share
from rgpu_server.core.model import PPM, Code, Quota, RefusedError, Wish

if TYPE_CHECKING:
    from rgpu_server.core.model import Device
    from rgpu_server.core.policy import Policy, TenantPolicy


_ANOTHER_POLICY = "the lease keeps its policy unless another one is named: add --policy none"


class Change(Struct, frozen=True):
    """New sizes of a lease. A size that is None stays unchanged."""

    memory_bytes: int | None = None
    memory_ppm: int | None = None
    share_request_ppm: int | None = None
    share_limit_ppm: int | None = None
    policy: SharePolicy | None = None
    priority: int | None = None
    weight: int | None = None


def resolve(policy: Policy, tenant: TenantPolicy, wish: Wish, device: Device) -> Quota:
    """Returns the ceilings that a wish gives on a device.

    Raises:
        RefusedError: the wish contradicts itself, or exceeds what the tenant may ask for.
    """
    words = _policy_of(policy, wish)
    limit = wish.share_limit_ppm or None
    if words is SharePolicy.BEST_EFFORT:
        request = wish.share_request_ppm
    else:
        request = wish.share_request_ppm or policy.default_share_request_ppm
    if limit is None and words in (SharePolicy.NONE, SharePolicy.BEST_EFFORT):
        limit = max(policy.default_share_limit_ppm, request)
    request, limit = settle(words, request, limit)
    priority, weight = wish.priority or 0, 1 if wish.weight is None else wish.weight
    check_standing(tenant, priority, weight)
    memory = wish.memory_on(device) or device.default_memory_bytes
    return Quota(memory, request, limit, words, priority, weight)


def changed(old: Quota, change: Change, device: Device, tenant: TenantPolicy) -> Quota:
    """Returns the ceilings of a lease after a change; RefusedError as `resolve`.

    A limit that the policy dictates follows the share. Other sizes that are not named stay
    unchanged.
    """
    policy = old.policy if change.policy is None else change.policy
    request, limit = change.share_request_ppm, change.share_limit_ppm
    if request is None:
        best_effort = change.policy is SharePolicy.BEST_EFFORT
        request = 0 if best_effort else old.share_request_ppm
    if limit is None and not policy.dictates_limit:
        limit = old.share_limit_ppm
    elif limit == 0:
        limit = PPM
    request, limit = settle(policy, request, limit, kept=change.policy is None)
    priority = old.priority if change.priority is None else change.priority
    weight = old.weight if change.weight is None else change.weight
    check_standing(tenant, priority, weight)
    memory = old.memory_bytes if change.memory_bytes is None else change.memory_bytes
    if change.memory_ppm is not None:
        memory = Wish(memory_ppm=change.memory_ppm).memory_on(device)
    if memory <= 0:
        raise RefusedError(Code.BAD_REQUEST, "a lease needs more than 0 bytes of memory")
    return Quota(memory, request, limit, policy, priority, weight)


def settle(
    policy: SharePolicy, request: int, limit: int | None, *, kept: bool = False
) -> tuple[int, int]:
    """Returns request and limit under a policy. `limit` None leaves the limit to the policy.

    kept: the policy is the lease's present one and was not asked for.

    Raises:
        RefusedError: the sizes contradict each other or the policy.
    """
    if not 0 <= request <= PPM or not (limit is None or 0 < limit <= PPM):
        raise RefusedError(Code.BAD_REQUEST, "a share is a fraction of one device, from 0 to 1")
    if policy is SharePolicy.BEST_EFFORT and request:
        raise _contradiction(
            f"the policy best-effort guarantees nothing and the share is {format_share(request)}; "
            f"{_ANOTHER_POLICY if kept else 'leave one of them out'}"
        )
    if policy is SharePolicy.FIXED and not request:
        raise _contradiction(
            "the policy fixed needs a share: it is the limit as well; give one with --share or "
            "RGPU_SHARE"
        )
    dictated = {SharePolicy.FIXED: request, SharePolicy.BURST: PPM}.get(policy)
    if dictated is not None and limit not in (None, dictated):
        raise _contradiction(
            f"the policy {policy.word} makes the limit {format_share(dictated)} and asked for is "
            f"{format_share(limit or 0)}; "
            f"{_ANOTHER_POLICY if kept else 'leave the limit or the policy out'}"
        )
    limit = dictated or limit or PPM
    if request > limit:
        raise _contradiction(
            f"the share {format_share(request)} is above its limit {format_share(limit)}; "
            "raise the limit or ask for a smaller share"
        )
    return request, limit


def check_standing(tenant: TenantPolicy, priority: int, weight: int) -> None:
    """Refuses a priority or weight that is out of range, or above what the tenant may ask for."""
    for name, asked, low, high, may in (
        ("priority", priority, 0, MAX_PRIORITY, tenant.max_priority),
        ("weight", weight, 1, MAX_WEIGHT, tenant.max_weight),
    ):
        if not low <= asked <= high:
            raise _contradiction(f"a {name} is a number from {low} to {high}, not {asked}")
        if asked > may:
            raise RefusedError(
                Code.TENANT_LIMIT,
                f"this tenant's leases have a {name} of at most {may} and asked for is {asked}; "
                f"the operator allows more with max_{name} in the tenant's table",
            )


def _policy_of(policy: Policy, wish: Wish) -> SharePolicy:
    """Returns the policy of a wish. If it names none, and its sizes contradict the server's default
    policy, the policy is none.
    """
    if wish.policy is not None:
        return wish.policy
    default = policy.default_policy
    if wish.share_limit_ppm and default in (SharePolicy.FIXED, SharePolicy.BURST):
        return SharePolicy.NONE
    if wish.share_request_ppm and default is SharePolicy.BEST_EFFORT:
        return SharePolicy.NONE
    return default


def _contradiction(sentence: str) -> RefusedError:
    return RefusedError(Code.BAD_REQUEST, sentence)
