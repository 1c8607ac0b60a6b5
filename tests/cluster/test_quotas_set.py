"""Quotas that change while the manager works."""

from __future__ import annotations

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import actions as do
from rgpu_cluster.core import events as on
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_common.units import PPM

HALF = TenantQuota(share_ppm=50 * PERCENT)


def manager(**quotas: TenantQuota) -> Manager:
    made = Manager(quotas=Quotas(quotas))
    made.handle(on.NodeReported(node("gpu-1", cards=2)), SECOND)
    return made


def ask(core: Manager, number: int, wait: bool = True) -> list[type]:
    asked = on.Asked(request(number, share_ppm=40 * PERCENT, memory_bytes=GIB), wait)
    return [type(one) for one in core.handle(asked, (number + 1) * SECOND)]


def test_a_new_quota_binds_from_the_next_request_on() -> None:
    core = manager()
    assert do.Grant in ask(core, 1)
    core.handle(on.QuotasSet({"a": HALF}), 5 * SECOND)
    assert do.Grant not in ask(core, 6)
    assert core.quotas.of("a") == HALF


def test_a_request_that_waits_for_its_quota_goes_on_when_that_grows() -> None:
    core = manager(a=HALF)
    assert do.Grant in ask(core, 1)
    assert do.Waiting in ask(core, 2)
    actions = core.handle(on.QuotasSet({"a": TenantQuota(share_ppm=PPM)}), 5 * SECOND)
    assert [one.request.id for one in actions if isinstance(one, do.Grant)] == ["run-2"]


def test_without_quotas_all_is_free_again() -> None:
    core = manager(a=HALF)
    ask(core, 1)
    ask(core, 2)
    actions = core.handle(on.QuotasSet({}), 5 * SECOND)
    assert any(isinstance(one, do.Grant) for one in actions)
    assert not core.quotas
