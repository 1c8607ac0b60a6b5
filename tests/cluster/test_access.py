"""Who gets the credential of a claim, and what a claim says of its lease."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.agent_world import NODE, UID, claim, first_fit, result, view
from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.access import (
    Caller,
    Denial,
    Paces,
    PodFacts,
    Why,
    caller_of,
    claim_denial,
    pod_denial,
    wrong,
)
from rgpu_cluster.kubernetes.agent.conditions import is_said, status_with
from rgpu_common.v1 import credentials_pb2

ACCOUNT = "rgpu-system/rgpu-node-plugin"
NODE_NAME = "authentication.kubernetes.io/node-name"
CLIENT = Caller(ACCOUNT, "client-a")


def request(**more: str) -> credentials_pb2.GetCredentialRequest:
    said = {"namespace": "team-a", "name": "third", "uid": UID, **more}
    return credentials_pb2.GetCredentialRequest(**said)


def review(**more: Any) -> dict[str, Any]:
    user = {
        "username": "system:serviceaccount:rgpu-system:rgpu-node-plugin",
        "extra": {NODE_NAME: ["client-a"]},
    }
    return {"authenticated": True, "audiences": ["rgpu.dev"], "user": user, **more}


def test_a_plugin_is_known_by_its_token() -> None:
    assert caller_of(review(), ACCOUNT) == CLIENT


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ({}, Why.UNAUTHENTICATED),
        (review(authenticated=False), Why.UNAUTHENTICATED),
        (review(audiences=["https://kubernetes.default.svc"]), Why.UNAUTHENTICATED),
        (review(audiences=None), Why.UNAUTHENTICATED),
        (review(user=None), Why.PERMISSION_DENIED),
        (
            review(user={**review()["user"], "username": "system:serviceaccount:team-a:default"}),
            Why.PERMISSION_DENIED,
        ),
        (review(user={**review()["user"], "extra": {}}), Why.PERMISSION_DENIED),
    ],
)
def test_a_stranger_is_refused(found: dict[str, Any], why: Why) -> None:
    denial = caller_of(found, ACCOUNT)
    assert isinstance(denial, Denial)
    assert denial.why is why


def test_a_claim_has_a_credential_once_it_has_its_lease() -> None:
    there = view(result())
    assert claim_denial(there, request(), True) is None
    rows = [
        (None, request(), True, Why.NOT_FOUND),
        (there, request(uid="another-uid"), True, Why.NOT_FOUND),
        (view(), request(), True, Why.NOT_FOUND),
        (view(result(pool="gpu8")), request(), True, Why.NOT_FOUND),
        (there, request(), False, Why.FAILED_PRECONDITION),
    ]
    for found, asked, leased, why in rows:
        denial = claim_denial(found, asked, leased)
        assert denial is not None
        assert denial.why is why


def test_a_claim_is_for_the_nodes_of_its_pods() -> None:
    there, mine = view(result()), PodFacts("uid-pod-1", "client-a", False)
    assert pod_denial(there, [None, mine], CLIENT) is None
    others = [
        None,
        PodFacts("uid-pod-1", "client-b", False),
        PodFacts("uid-pod-1", "", False),
        PodFacts("uid-pod-1", "client-a", True),
        # Another pod of the same name.
        PodFacts("uid-pod-2", "client-a", False),
    ]
    denial = pod_denial(there, others, CLIENT)
    assert denial is not None
    assert denial.why is Why.PERMISSION_DENIED


@pytest.mark.parametrize(
    "more",
    [{"namespace": ""}, {"name": "x" * 254}, {"uid": "x" * 65}, {"uid": "a\nb"}, {"name": "ä"}],
)
def test_what_no_plugin_asks_is_refused(more: dict[str, str]) -> None:
    assert wrong(request()) is None
    denial = wrong(request(**more))
    assert denial is not None
    assert next(iter(more)) in denial.sentence


def test_a_caller_is_slowed_alone() -> None:
    paces = Paces(rate=2.0, burst=3)
    assert [paces.may("a", 0.0) for _ in range(4)] == [True, True, True, False]
    assert paces.may("b", 0.0)
    assert not paces.may("a", 0.4)
    assert paces.may("a", 0.5)
    assert not paces.may("a", 0.5)


def test_callers_are_forgotten_before_they_fill_the_memory() -> None:
    paces = Paces(rate=1.0, burst=1, most=2)
    for name in "abc":
        assert paces.may(name, 0.0)
    assert len(paces._left) == 2


# Conditions


def said(content: dict[str, Any]) -> dict[str, tuple[str, str]]:
    (row,) = content["devices"]
    return {one["type"]: (one["status"], one["lastTransitionTime"]) for one in row["conditions"]}


def test_a_claim_says_that_it_has_its_lease() -> None:
    found = claim(first_fit())
    content = found.to_dict()["status"]
    done = status_with(content, view(first_fit()), NODE, names.LEASED, "", "12:00")
    assert said(done) == {"rgpu.dev/leased": ("True", "12:00")}
    (row,) = done["devices"]
    assert (row["driver"], row["pool"], row["device"]) == ("rgpu.dev", NODE, "gpu-0")
    assert row["shareID"] == "share-1"
    assert done["allocation"] == content["allocation"]


def test_a_refusal_takes_the_lease_back_and_keeps_what_others_said() -> None:
    content = claim(first_fit(), told="rgpu.dev/leased").to_dict()["status"]
    ready = {"type": "Ready", "status": "True", "reason": "x", "message": "", "lastTransitionTime": "09:00"}  # fmt: skip
    content["devices"][0]["conditions"].append(ready)
    content["devices"][0]["data"] = {"measured": 1}
    done = status_with(content, view(first_fit()), NODE, names.REFUSED, "no room", "12:00")
    assert said(done) == {
        "Ready": ("True", "09:00"),
        "rgpu.dev/leased": ("False", "12:00"),
        "rgpu.dev/refused": ("True", "12:00"),
    }
    (row,) = done["devices"]
    assert row["data"] == {"measured": 1}
    assert [one["message"] for one in row["conditions"]][1:] == ["no room", "no room"]
    again = status_with(done, view(first_fit()), NODE, names.REFUSED, "no room", "13:00")
    assert said(again)["rgpu.dev/refused"] == ("True", "12:00")


def test_a_lost_lease_is_said_until_there_is_another_one() -> None:
    content = claim(first_fit(), told="rgpu.dev/leased").to_dict()["status"]
    lost = status_with(content, view(first_fit()), NODE, names.LOST, "it has ended", "12:00")
    # The pods are bound: what kube-scheduler has waited for stays true.
    assert said(lost)["rgpu.dev/leased"][0] == "True"
    assert said(lost)["rgpu.dev/lost"] == ("True", "12:00")
    assert "rgpu.dev/refused" not in said(lost)
    again = status_with(lost, view(first_fit()), NODE, names.LEASED, "", "13:00")
    assert said(again)["rgpu.dev/lost"] == ("False", "13:00")
    assert not is_said(view(first_fit(), told="rgpu.dev/lost"), names.LEASED)
    assert is_said(view(first_fit(), told="rgpu.dev/lost"), names.LOST)
    assert is_said(view(first_fit(), told="rgpu.dev/leased"), names.LEASED)


def test_devices_of_other_nodes_keep_what_they_say() -> None:
    other = {"driver": "rgpu.dev", "pool": "gpu8", "device": "gpu-0", "shareID": "share-1"}
    done = status_with({"devices": [other]}, view(first_fit()), NODE, names.LEASED, "", "12:00")
    assert done["devices"][0] == other
    assert len(done["devices"]) == 2
