"""GpuQuota objects, the core's quotas, and what is shown of a namespace's use."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.quotas import TenantQuota
from rgpu_cluster.core.usage import Use
from rgpu_cluster.kubernetes.gpu_quotas import quota_of, quotas_of, status_of
from rgpu_common.units import PPM

GIB = 1 << 30


def quota(namespace: str = "team", name: str = "default", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "generation": 3}
    return {
        "apiVersion": "rgpu.dev/v1alpha1",
        "kind": "GpuQuota",
        "metadata": metadata,
        "spec": spec,
    }


def test_a_quota_of_a_namespace_is_one_of_a_tenant() -> None:
    found = quota_of(quota(cards="2.5", memory="200Gi", borrow=True, graceSeconds=30))
    assert found == TenantQuota(2_500_000, 200 * GIB, borrow=True, grace_seconds=30.0)
    assert quota_of(quota()) == TenantQuota()
    assert quota_of(quota(cards=0)).share_ppm == 0


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"card": 2}, "spec has no field 'card'; it has cards, memory, borrow, graceSeconds"),
        ({"cards": "two"}, "spec.cards is 'two', and no quantity; write it as 2.5"),
        ({"cards": 10**9}, "spec.cards is 1000000000; write 0 to 100000"),
        ({"memory": "-1"}, "spec.memory is '-1', and no quantity"),
        ({"borrow": "yes"}, "spec.borrow is 'yes'; write true or false"),
        ({"graceSeconds": -1}, "spec.graceSeconds is '-1'; write 0 to 86400"),
    ],
)
def test_a_wrong_quota_has_a_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError) as caught:
        quota_of(quota(**spec))
    assert str(caught.value).startswith(sentence)


def test_a_wrong_quota_leaves_the_others_in_force() -> None:
    good, bad = quotas_of(
        [quota("a", cards=1), quota("b", cards="x"), quota("c", "other", cards=1)]
    )
    assert good == {"a": TenantQuota(PPM)}
    assert bad.keys() == {"b"}


def test_the_status_says_what_is_used_and_borrowed() -> None:
    one = quota(cards=1, memory="8Gi")
    status = status_of(one, Use(1_300_000, 6 * GIB), 2, "2026-01-01T00:00:00Z")
    assert status["used"] == {"cards": "1.3", "memory": "6Gi"}
    assert status["borrowed"] == {"cards": "0.3", "memory": "0"}
    assert status["waiting"] == 2
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("Accepted", "True")
    later = status_of({**one, "status": status}, Use(), 0, "2026-01-02T00:00:00Z")
    assert later["conditions"] == [condition]
    assert later["used"] == {"cards": "0", "memory": "0"}
    wrong = status_of({**quota(cards="x"), "status": status}, Use(), 0, "2026-01-02T00:00:00Z")
    assert wrong["conditions"][0]["status"] == "False"
    assert wrong["conditions"][0]["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    assert "spec.cards" in wrong["conditions"][0]["message"]


@given(st.integers(0, 10**9), st.integers(0, 1 << 50), st.one_of(st.none(), st.integers(0, 1000)))
def test_what_is_borrowed_is_never_more_than_what_is_used(
    share: int, memory: int, cards: int | None
) -> None:
    found = status_of(quota(cards=cards), Use(share, memory), 0, "now")
    assert float(found["borrowed"]["cards"]) <= float(found["used"]["cards"])
    assert found["borrowed"]["memory"] == "0"
