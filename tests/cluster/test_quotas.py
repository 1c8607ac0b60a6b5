"""Quotas of tenants in the whole cluster, and borrowing."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.samples import GIB, PERCENT, node, request
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Denied, Grant
from rgpu_cluster.core.card import Labels
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_cluster.core.request import Request
from rgpu_cluster.manager.config import load_manager_config
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.units import PPM


class Desk:
    """A manager with two cards. granted: the requests that were granted, in order."""

    def __init__(self, **quotas: TenantQuota) -> None:
        self.manager = Manager(quotas=Quotas(quotas))
        self.granted: list[str] = []
        self.denied: dict[str, str] = {}
        self._attempts: dict[str, tuple[str, int]] = {}
        self.tell(ev.NodeReported(node("n1", 2, 80 * GIB), {}))

    def tell(self, event: ev.Event) -> None:
        self._carry_out(self.manager.handle(event, SECOND))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Grant):
                self.granted.append(action.request.id)
                self._attempts[action.request.id] = (action.node, action.attempt)
                self.tell(ev.Granted(action.request.id, action.node, action.attempt, 1))
            elif isinstance(action, Denied):
                self.denied[action.id] = action.why

    def ask(self, number: int, tenant: str, *, wait: bool = True, **more: object) -> Request:
        asked = request(number, tenant=tenant, **more)
        self.tell(ev.Asked(asked, wait=wait))
        return asked

    def end(self, asked: Request) -> None:
        self.tell(ev.Withdrawn(asked.id))
        where, attempt = self._attempts[asked.id]
        self.tell(ev.Revoked(asked.id, where, attempt))


WHOLE = {"share_ppm": PPM, "memory_bytes": GIB}
ONE = TenantQuota(share_ppm=PPM)
BORROWS = TenantQuota(share_ppm=PPM, borrow=True)


def test_without_quotas_nobody_is_bound() -> None:
    desk = Desk()
    for number in range(2):
        desk.ask(number, "a", **WHOLE)
    assert len(desk.granted) == 2


def test_a_tenant_waits_at_its_quota_although_a_card_is_free() -> None:
    desk = Desk(a=ONE)
    first = desk.ask(1, "a", **WHOLE)
    desk.ask(2, "a", **WHOLE)
    assert desk.granted == [first.id]
    desk.ask(3, "b", **WHOLE)
    assert len(desk.granted) == 2
    desk.end(first)
    assert desk.granted[-1] == "run-2"


def test_a_request_beyond_the_quota_says_so() -> None:
    desk = Desk(a=ONE)
    desk.ask(1, "a", wait=True, cards=2, **WHOLE)
    says = (
        "tenant a may have shares of 1 card in all in this cluster; ask for less, or for a larger"
    )
    assert desk.denied == {"run-1": f"{says} quota"}
    desk.ask(2, "a", share_ppm=60 * PERCENT)
    desk.ask(3, "a", wait=False, share_ppm=60 * PERCENT)
    assert "wait for room with --wait" in desk.denied["run-3"]


def test_memory_counts_too() -> None:
    desk = Desk(a=TenantQuota(memory_bytes=10 * GIB))
    desk.ask(1, "a", share_ppm=0, memory_bytes=8 * GIB)
    desk.ask(2, "a", share_ppm=0, memory_bytes=8 * GIB)
    assert desk.granted == ["run-1"]


def test_who_borrows_has_what_others_leave_idle() -> None:
    desk = Desk(a=BORROWS, b=ONE)
    desk.ask(1, "a", **WHOLE)
    desk.ask(2, "a", **WHOLE)
    assert len(desk.granted) == 2


def test_nobody_borrows_while_another_waits_for_its_own() -> None:
    desk = Desk(a=BORROWS, b=BORROWS)
    lent = [desk.ask(number, "a", **WHOLE) for number in (1, 2)]
    desk.ask(3, "a", priority=9, **WHOLE)
    desk.ask(4, "b", **WHOLE)
    desk.end(lent[0])
    assert desk.granted[-1] == "run-4"
    desk.end(lent[1])
    # Now a has nothing, so its third request is within its quota.
    assert desk.granted[-1] == "run-3"


def test_a_star_is_for_every_other_tenant() -> None:
    desk = Desk(**{"*": ONE, "a": TenantQuota()})
    for number in range(2):
        desk.ask(number, "a", **WHOLE)
    assert len(desk.granted) == 2
    other = Desk(**{"*": ONE, "a": TenantQuota()})
    for number in range(2):
        other.ask(number, "z", **WHOLE)
    assert len(other.granted) == 1


def test_a_quota_is_read_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "manager.toml"
    file.write_text('[tenants.ann]\nshare = 2.5\nmemory = "10GiB"\nborrow = true\n')
    config = load_manager_config(file, {})
    assert config.tenants == {"ann": TenantQuota(2_500_000, 10 * GIB, borrow=True)}


def test_a_manager_that_would_let_nobody_in_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rgpu_server.identity.settings.default_tokens_file", lambda: tmp_path / "t")
    file = tmp_path / "manager.toml"
    file.write_text('listen = ["127.0.0.1:7710"]\n[identity]\nrequire = "always"\n')
    with pytest.raises(UsageError, match=r"lets nobody in, .*`rgpu token new nodes`"):
        load_manager_config(file, {})
    (tmp_path / "t").write_text("")
    assert load_manager_config(file, {}).identity.tokens == str(tmp_path / "t")


@pytest.mark.parametrize("text", ["[tenants.ann]\nshare = -1\n", "[tenants.ann]\nshares = 1\n"])
def test_a_wrong_quota_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "manager.toml"
    file.write_text(text)
    with pytest.raises((ConfigError, UsageError), match="tenants"):
        load_manager_config(file, {})


def test_a_priority_above_the_tenants_is_denied_before_leases_make_room() -> None:
    quotas = Quotas({"*": TenantQuota(max_priority=0), "a": TenantQuota(max_priority=7)})
    manager = Manager(quotas=quotas)
    manager.handle(ev.NodeReported(node("n1"), {}), 0)
    said = manager.handle(ev.Asked(request(1, priority=8)), 0)
    (denied,) = [one for one in said if isinstance(one, Denied)]
    assert denied.why == (
        "a priority of 8 was asked for, and tenant a may have 7 at most; lower --priority"
    )
    said = manager.handle(ev.Asked(request(2, tenant="b", priority=1)), 0)
    assert "tenant b may have 0 at most" in str(said)
    said = manager.handle(ev.Asked(request(3, priority=7)), 0)
    assert not [one for one in said if isinstance(one, Denied)]


def test_a_card_that_a_tenant_keeps_from_others_counts_as_a_whole() -> None:
    """Else small shares would keep all cards of the cluster."""
    for quota in (ONE, BORROWS):
        desk = Desk(a=quota)
        small = {"share_ppm": 10 * PERCENT, "memory_bytes": GIB}
        alone = {**small, "labels": Labels(exclusion="mine")}
        first = desk.ask(1, "a", **alone)
        desk.ask(2, "a", **alone)
        desk.ask(4, "b", **small)
        assert desk.granted == ["run-1", "run-4"]
        desk.ask(5, "a", wait=False, **alone)
        assert desk.denied["run-5"].startswith(
            "tenant a may have shares of 1 card in all in this cluster, and cards that it keeps "
            "from others by exclusion count as a whole"
        )
        desk.end(first)
        assert desk.granted == ["run-1", "run-4", "run-2"]


def test_leases_of_one_word_share_a_card_within_the_quota() -> None:
    desk = Desk(a=TenantQuota(share_ppm=2 * PPM))
    alone = {"share_ppm": 40 * PERCENT, "memory_bytes": GIB, "labels": Labels(exclusion="mine")}
    for number in (1, 2, 3):
        desk.ask(number, "a", **alone)
    cards = [sorted(desk.manager.pool.leases()[f"run-{n}"]) for n in (1, 2)]
    assert cards[0] == cards[1]
    assert desk.granted == ["run-1", "run-2", "run-3"]
    # Now both cards are its own, and the quota is full.
    desk.ask(4, "a", wait=False, share_ppm=10 * PERCENT, memory_bytes=GIB)
    assert "may have shares of 2 cards" in desk.denied["run-4"]


def test_memory_of_such_a_card_counts_as_a_whole() -> None:
    desk = Desk(a=TenantQuota(memory_bytes=100 * GIB))
    alone = {"share_ppm": 0, "memory_bytes": GIB, "labels": Labels(exclusion="mine")}
    desk.ask(1, "a", **alone)
    desk.ask(2, "a", wait=False, share_ppm=0, memory_bytes=30 * GIB)
    assert desk.granted == ["run-1"]
    assert "may have 100 GiB in all" in desk.denied["run-2"]
