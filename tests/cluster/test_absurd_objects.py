"""Absurd values in all that rgpu reads of Kubernetes' objects: each is refused with one sentence.

The API server takes all of these. `RGPU_ABSURD=100000` tries as many objects of each kind.
"""

from __future__ import annotations

import os
import random
from datetime import datetime, timezone
from typing import Any

import pytest
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.usage import Use
from rgpu_cluster.kubernetes.agent.orders import order_of
from rgpu_cluster.kubernetes.agent.own_paths import OwnPaths
from rgpu_cluster.kubernetes.agent.views import view_of
from rgpu_cluster.kubernetes.allocation import allocated
from rgpu_cluster.kubernetes.gpu_quotas import quotas_of, status_of
from rgpu_cluster.kubernetes.node_paths import client_of, rows_in
from rgpu_cluster.kubernetes.objects import model_of
from rgpu_cluster.kubernetes.parameters import in_fields
from rgpu_cluster.kubernetes.reserved import Bounds, ReservedClaims
from rgpu_cluster.kubernetes.views import (
    claim_names,
    gang_of,
    is_gated,
    is_reserved,
    needed_of_pod,
)
from rgpu_cluster.kubernetes.wishes import is_ours, wishes_of
from rgpu_common.v1 import agent_pb2

TRIES = int(os.environ.get("RGPU_ABSURD", "3000"))
UID = "0e8a8d3c-8ad4-4c2f-9a8e-111111111111"
NOW = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)
LONG = "a" * 250
TIMES = (
    "2026-11-28T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-02-30T00:00:00Z", "", "now",
    "2026-11-28T00:00:00.999999999Z", "-1", "1e400", "2026-W48-5", LONG,
)  # fmt: skip
QUANTITIES = (
    "30", "100", "8Gi", "0", "-5", "1m", "1n", "500u", "9223372036854775807", "8E", "8Ei", "1e18",
    "1e99", "1e400", "NaN", "Infinity", "0x10", ".", "", "Ki", "1_000", "\u0663", LONG,
)  # fmt: skip
TEXTS = ("", "H200", LONG, "\x1b[2J", "a\nb", "\u202e", "\u0085", "nan", "1e400%", "-1", "100%")
NUMBERS = (0, 1, -1, 30, 1 << 31, 1 << 63, 10**300, 0.5, -0.0, 1e308, True)
THINGS: tuple[Any, ...] = (None, [], {}, [None], {"a": {"b": []}}, [[[]]])
FIELDS = (
    "policy", "limit", "priority", "weight", "profile", "maxSlowdown", "mode", "affinity", "whole",
    "antiAffinity", "exclusion", "model", "pool", "mig", "minShare", "minMemory", "maxPerNode",
    "maxPerRack", "maxPerZone", "oneNode", "bandwidth", "colour\x1b", "",
)  # fmt: skip
SOUND = ("burst", "50%", 1, "training", "5%", "any", "a", True, False, "10%", "2Gi")
CLASSES: dict[str, Any] = {
    "rgpu.dev": {"spec": {}},
    "empty.rgpu.dev": {},
    "odd.rgpu.dev": {"spec": {"config": [{"opaque": {"driver": "rgpu.dev"}}, {}]}},
}


class Absurd:
    """Values of a seeded chance, most of them sound, so that they get far."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def pick(self, *sound: Any, wild: tuple[Any, ...], part: float = 0.3) -> Any:
        return self.chance.choice(wild if self.chance.random() < part else sound)

    def some(self, make: Any, *counts: int) -> list[Any]:
        return [make() for _ in range(self.chance.choice(counts))]

    def parameters(self) -> Any:
        wild = (*TEXTS, *NUMBERS, *QUANTITIES, *THINGS)
        names = self.chance.sample(FIELDS, self.chance.choice((0, 1, 2, 4)))
        said = {name: self.pick(*SOUND, wild=wild) for name in names}
        kind = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest"}
        return self.pick({**kind, **said}, wild=({}, {**kind, "kind": 7}, said))

    def config(self) -> dict[str, Any]:
        opaque = {"driver": self.pick("rgpu.dev", wild=("x.y",)), "parameters": self.parameters()}
        named = self.pick([], ["gpu"], wild=(["gpu/one"], ["other"], [LONG]))
        return self.pick(
            {"requests": named, "opaque": opaque}, wild=({"requests": named},), part=0.1
        )

    def row(self) -> dict[str, Any]:
        names = ("core", "memory", self.pick("core", wild=("x.y/z", LONG)))
        asked = {name: self.pick("30", "8Gi", wild=QUANTITIES) for name in names}
        expression = 'device.attributes["rgpu.dev"].model == "{}"'.format(
            self.pick("H200", wild=TEXTS)
        )
        return {
            "deviceClassName": self.pick(
                "rgpu.dev", wild=("none.rgpu.dev", *CLASSES, LONG, "gpu.x")
            ),
            "count": self.pick(1, 2, wild=(0, -1, 1 << 62)),
            "allocationMode": self.pick("ExactCount", wild=("All",), part=0.1),
            "selectors": self.some(lambda: {"cel": {"expression": expression}}, 0, 0, 1, 2),
            "capacity": self.pick({"requests": asked}, wild=({}, {"requests": {}})),
        }

    def request(self) -> dict[str, Any]:
        if self.chance.random() < 0.5:
            return {"name": "gpu", "exactly": self.row()}
        names = iter(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
        several = self.some(lambda: {"name": next(names), **self.row()}, 0, 1, 2, 9)
        return {"name": "gpu", "firstAvailable": several}

    def result(self) -> dict[str, Any]:
        return {
            "request": self.pick("gpu", "gpu/one", wild=(LONG,)),
            "driver": self.pick("rgpu.dev", wild=("x.y",), part=0.1),
            "pool": self.pick("gpu7", wild=("gpu8", LONG)),
            "device": self.pick("gpu-0", "gpu-1", wild=("gpu-", "gpu--1", "gpu-\u0663", "gpu-" + "9" * 59, "net-eth0")),
            "shareID": self.pick("s", wild=("",)),
            "consumedCapacity": {"core": self.pick("30", wild=QUANTITIES), "memory": self.pick("8Gi", wild=QUANTITIES)},
            "bindingConditions": self.pick([], ["rgpu.dev/leased"], wild=([LONG],)),
        }  # fmt: skip

    def claim(self) -> dict[str, Any]:
        said = {"rgpu.dev/reserve-until": self.pick(TIMES[0], wild=TIMES)}
        users = [
            {"resource": "pods", "name": "p", "uid": "u"},
            {"resource": "reservations", "apiGroup": "rgpu.dev", "name": LONG, "uid": ""},
        ]
        condition = {"type": "rgpu.dev/leased", "status": "True", "reason": "R", "message": "",
                     "lastTransitionTime": "9999-12-31T23:59:59Z"}  # fmt: skip
        row = {"driver": "rgpu.dev", "pool": "gpu7", "device": "gpu-0", "conditions": [condition]}
        config = self.some(lambda: {"source": "FromClaim", **self.config()}, 0, 1, 2)
        devices = {"results": self.some(self.result, 0, 1, 1, 3), "config": config}
        status = {"allocation": {"devices": devices}, "reservedFor": users, "devices": [row]}
        return {
            "metadata": {
                "name": self.pick("third", wild=(LONG,)), "namespace": "team", "uid": UID,
                "resourceVersion": "1", "annotations": self.pick({}, said, wild=(said,)),
                "creationTimestamp": "2026-11-27T00:00:00Z",
            },
            "spec": {"devices": {
                "requests": self.some(self.request, 0, 1, 1, 1, 1, 2),
                "config": self.some(self.config, 0, 0, 1, 2),
            }},
            "status": self.pick({}, status, wild=({"allocation": {}}, {"devices": [row]})),
        }  # fmt: skip

    def pod(self) -> dict[str, Any]:
        labels = {
            "rgpu.dev/gang": self.pick("train", wild=("", LONG[:63])),
            "rgpu.dev/gang-size": self.pick("2", wild=("", "0", "-1", "9" * 63, "1e3", "two")),
        }
        uses = self.pick(
            {"resourceClaimName": "third"}, {"resourceClaimTemplateName": "t"}, wild=({},)
        )
        made = self.pick({"resourceClaimName": "made"}, wild=({}, {"resourceClaimName": ""}))
        return {
            "metadata": {"name": LONG, "namespace": "team", "uid": UID, "resourceVersion": "1",
                         "labels": self.pick({}, labels, wild=({"rgpu.dev/gang": "x"},))},
            "spec": {
                "containers": [],
                "schedulingGates": self.pick([{"name": "rgpu.dev/placement"}], wild=([],)),
                "resourceClaims": self.some(lambda: {"name": "gpu", **uses}, 0, 1, 2),
                "nodeSelector": self.pick({}, {"rgpu.dev/rack": LONG[:63]}, wild=({},)),
            },
            "status": self.pick(
                {}, {"resourceClaimStatuses": [{"name": "gpu", **made}]},
                wild=({"startTime": "9999-12-31T23:59:59Z", "phase": LONG},),
            ),
        }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_a_claim_is_read_or_refused_with_a_sentence(seed: int) -> None:
    says, read = Absurd(seed), 0
    reserved = ReservedClaims(Bounds())
    for _ in range(TRIES // 3):
        content, pod = says.claim(), says.pod()
        claim, model = model_of(ResourceClaim, content), model_of(Pod, needed_of_pod(pod))
        assert is_gated(model) in (True, False)
        assert all(name is None or name for name in claim_names(model))
        gang_of(model)
        reserved.note(("team", claim.metadata.name), claim)
        wanted = reserved.wants(claim, NOW)
        assert isinstance(wanted, bool) or wanted.isprintable()
        assert is_reserved(claim) in (True, False)
        kept = claim.to_dict()
        allocated(kept)
        try:
            is_ours(kept)
            wishes = wishes_of(kept, CLASSES, model.to_dict())
        except RequestError as error:
            sentence = in_fields(str(error))
            assert sentence
            assert sentence.isprintable(), sentence
            continue
        read += 1
        assert 1 <= len(wishes) <= 8
        for wish in wishes:
            assert wish.request.memory_bytes or wish.request.memory_ppm
    assert read > TRIES // 100


def test_an_agent_orders_or_refuses_with_a_sentence() -> None:
    says, ordered = Absurd(7), 0
    for _ in range(TRIES):
        view = view_of(model_of(ResourceClaim, says.claim()), "gpu7")
        if not view.shares:
            continue
        sentence = ""
        try:
            order_of(view, 1_000_000)
            ordered += 1
        except RequestError as error:
            sentence = in_fields(str(error))
        assert sentence.isprintable(), sentence
    assert ordered > TRIES // 100


def test_a_quota_is_read_or_refused_with_a_sentence() -> None:
    says = Absurd(8)
    for _ in range(TRIES):
        spec = {
            "cards": says.pick(1, "2.5", wild=(*QUANTITIES, *NUMBERS[:7], *TEXTS, None)),
            "memory": says.pick("8Gi", wild=(*QUANTITIES, *NUMBERS[:7], *TEXTS, None)),
            "borrow": says.pick(True, wild=(False, None, "true")),
            "graceSeconds": says.pick(30, wild=(None, -1, 1 << 63)),
        }
        known = says.pick(
            [],
            wild=([{"type": "Accepted", "status": "True", "lastTransitionTime": TIMES[3]}], None),
        )
        metadata = {"name": "default", "namespace": "team", "generation": 1}
        content = {"metadata": metadata, "spec": spec, "status": {"conditions": known}}
        quotas, wrong = quotas_of([content])
        assert len(quotas) + len(wrong) == 1
        status = status_of(content, Use(1, 1), 0, "2026-11-27T00:00:00Z")
        assert status["conditions"][0]["message"].isprintable()


def test_paths_that_cannot_be_are_left_out() -> None:
    says = Absurd(9)
    wild = (*NUMBERS, *TEXTS, *THINGS, *TIMES)
    for _ in range(TRIES):
        row = {
            "server": says.pick({"rack": "r1", "nic": ""}, wild=(*THINGS, {"rack": 7}, {"nic": LONG})),
            "transport": says.pick("tcp", wild=wild), "measuredAt": says.pick(TIMES[0], wild=wild),
            **{name: says.pick(1000, wild=wild) for name in (
                "roundTripNanoseconds", "jitterNanoseconds", "upBytesPerSecond", "downBytesPerSecond",
                "messagesPerSecond",
            )},
            "usual": says.pick({"roundTripNanoseconds": 5}, wild=wild),
        }  # fmt: skip
        client = says.pick({"rack": "r1", "nic": ""}, wild=(*THINGS, {"rack": None}))
        status = says.pick({"client": client, "paths": [row, row]}, wild=(*THINGS, {"paths": row}))
        content = {"metadata": {"name": "gpu7"}, "status": status}
        client_of(content)
        rows_in(content)
        if isinstance(status, dict):
            own = OwnPaths()
            own.found(content)
            own.wanted(agent_pb2.NodeReport(rack="r1"), NOW.timestamp())
            own.is_degraded(NOW.timestamp())
