"""Claims of Kubernetes as requests of the core, and decisions as allocations."""

from __future__ import annotations

import copy
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from rgpu_cluster.core.card import Card, CardId
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Mode
from rgpu_cluster.kubernetes.allocation import Place, allocated, allocation, places_of, told
from rgpu_cluster.kubernetes.names import ordinal_of
from rgpu_cluster.kubernetes.parameters import PROFILES, Parameters, parameters_of
from rgpu_cluster.kubernetes.wishes import Wish, is_ours, quantity, wishes_of
from rgpu_common.sharing import SharePolicy

GIB = 1 << 30
UID = "0e8a8d3c-8ad4-4c2f-9a8e-111111111111"
SHIPPED = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "base" / "classes.yaml"
MODEL = 'device.attributes["rgpu.dev"].model == "A100"'
CLASSES = {
    **{one["metadata"]["name"]: one for one in yaml.safe_load_all(SHIPPED.read_text())},
    "a100.rgpu.dev": {"spec": {"selectors": [{"cel": {"expression": MODEL}}]}},
    "odd.rgpu.dev": {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
}
CLAIM = yaml.safe_load(f"""
metadata: {{name: third, namespace: team-a, uid: {UID}}}
spec:
  devices:
    requests:
    - name: gpu
      exactly:
        deviceClassName: rgpu.dev
        capacity: {{requests: {{core: "30", memory: 8Gi}}}}
        selectors:
        - cel: {{expression: 'device.attributes["rgpu.dev"].model == "H200"'}}
    config:
    - requests: [gpu]
      opaque:
        driver: rgpu.dev
        parameters:
          apiVersion: rgpu.dev/v1alpha1
          kind: GpuRequest
          policy: burst
          limit: 60%
          profile: training
          maxSlowdown: 5%
          affinity: teamA
          exclusion: teamA
""")


def claim(**exactly: Any) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(CLAIM)
    row = made["spec"]["devices"]["requests"][0]["exactly"]
    for name, value in exactly.items():
        if value is None:
            row.pop(name, None)
        else:
            row[name] = value
    return made


def asking(**parameters: Any) -> dict[str, Any]:
    made = claim()
    said = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", **parameters}
    made["spec"]["devices"]["config"][0]["opaque"]["parameters"] = said
    return made


def wish(made: dict[str, Any], **more: Any) -> Wish:
    (found,) = wishes_of(made, more.get("classes", CLASSES), more.get("pod"))
    return found


@pytest.mark.parametrize(
    ("text", "steps"),
    [("1m", 1), ("0.5", 1), ("1", 1), ("999999999m", 1), ("256Mi", 1), ("268435456500m", 2)],
)
def test_memory_is_rounded_up_to_a_step(text: str, steps: int) -> None:
    """A server takes no memory for its default, which is a quarter of a card."""
    asked = wish(claim(capacity={"requests": {"core": "30", "memory": text}}))
    assert asked.request.memory_bytes == steps * (256 << 20)


def test_a_selector_says_what_can_be_shown_to_others() -> None:
    for name in ("\x1b[2J", "a\nb", "a\u202eb"):
        selector = {"cel": {"expression": f'device.attributes["rgpu.dev"].model == "{name}"'}}
        assert refused(claim(selectors=[selector])).isprintable()


def refused(made: dict[str, Any], **more: Any) -> str:
    with pytest.raises(RequestError) as error:
        wish(made, **more)
    return str(error.value)


def test_the_claim_of_the_documentation() -> None:
    found = wish(claim())
    request = found.request
    assert (found.name, found.mode) == ("gpu", Mode.ANY)
    assert (request.id, request.tenant) == (UID, "team-a")
    assert (request.share_ppm, request.limit_ppm) == (300_000, 600_000)
    assert (request.memory_bytes, request.model) == (8 * GIB, "H200")
    assert (request.policy, request.max_slowdown_ppm) == (SharePolicy.BURST, 50_000)
    assert (request.labels.affinity, request.labels.exclusion) == ("teamA", "teamA")
    assert request.profile == PROFILES["training"]
    assert request.kept


def test_a_claim_that_names_nothing_gets_a_card() -> None:
    made = claim(capacity=None, selectors=None)
    del made["spec"]["devices"]["config"]
    request = wish(made).request
    assert (request.share_ppm, request.limit_ppm) == (1_000_000, 1_000_000)
    assert (request.memory_bytes, request.memory_ppm, request.cards) == (0, 1_000_000, 1)


def test_a_share_without_a_policy_is_its_own_limit() -> None:
    assert wish(asking()).request.limit_ppm == 300_000
    assert wish(asking(policy="fixed")).request.limit_ppm == 300_000
    assert wish(asking(policy="burst")).request.limit_ppm == 1_000_000


def test_memory_is_asked_for_in_the_steps_of_a_slice() -> None:
    made = claim(capacity={"requests": {"core": "10", "memory": "300Mi"}})
    assert wish(made).request.memory_bytes == 512 << 20


def test_several_cards_lie_on_one_node_unless_said_otherwise() -> None:
    made = claim(count=3)
    assert (wish(made).request.cards, wish(made).request.one_node) == (3, True)
    made["spec"]["devices"]["config"][0]["opaque"]["parameters"]["oneNode"] = False
    assert not wish(made).request.one_node


def test_a_class_has_defaults_and_the_claim_wins() -> None:
    said = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", "policy": "fixed", "weight": 7}
    config = [{"opaque": {"driver": "rgpu.dev", "parameters": said}}]
    classes = {"rgpu.dev": {"spec": {"config": config}}}
    request = wish(claim(), classes=classes).request
    assert (request.policy, request.weight) == (SharePolicy.BURST, 7)


def test_the_rack_of_a_pod_counts() -> None:
    pod = {"spec": {"nodeSelector": {"rgpu.dev/rack": "r3"}}}
    assert wish(claim(), pod=pod).request.client.rack == "r3"


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (claim(deviceClassName="other.rgpu.dev"), "no DeviceClass 'other.rgpu.dev'"),
        (claim(capacity={"requests": {"core": "101"}}), "core is 1 to 100"),
        (claim(capacity={"requests": {"core": "0"}}), "core is 1 to 100"),
        (claim(capacity={"requests": {"core": "1500m"}}), "core is 1 to 100"),
        (claim(capacity={"requests": {"core": "x"}}), "is no quantity"),
        (claim(capacity={"requests": {"core": "1", "memory": "100Ei"}}), "no card has memory"),
        (claim(capacity={"requests": {"memory": "-1"}}), "is no quantity"),
        (claim(capacity={"requests": {"cores": "1"}}), "no capacity 'cores'"),
        (claim(count=1025), "1025 cards were asked for"),
        (claim(allocationMode="All"), "write `count`"),
        (claim(adminAccess=True), "adminAccess needs no placement"),
        (claim(selectors=[{"cel": {"expression": "true"}}]), "does not know the selector 'true'"),
        (
            claim(selectors=[{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]),
            "does not know the selector",
        ),
        (
            claim(selectors=[{"cel": {"expression":
                'device.attributes["rgpu.dev"].model == "A" && device.attributes["rgpu.dev"].model == "B"'}}]),
            "both the model 'A' and 'B' are asked for",
        ),
        (
            claim(selectors=[{"cel": {"expression": 'device.attributes["rgpu.dev"].kind == "nic"'}}]),
            "does not know the selector",
        ),
        (asking(model="A100"), "both the model 'H200' and 'A100' are asked for"),
        (asking(policy="greedy"), "GpuRequest.policy: 'greedy' is not a policy"),
        (asking(limit="20%"), "above its limit"),
        (asking(colour="red"), "has no field 'colour'; it has affinity"),
        (asking(priority=101), "priority: 101 is no whole number of 0 to 100"),
        (asking(priority=True), "priority: True is no whole number"),
        (asking(mode="far"), "mode: 'far' is none of passthrough, local, near, any"),
        (asking(mode="passthrough"), "write `whole: true`"),
        (asking(whole=True), "a whole card was asked for with core 30"),
        (asking(whole="yes"), "neither true nor false"),
        (asking(affinity="a", antiAffinity="a"), "both name 'a'"),
        (asking(affinity="a" * 64), "at most 63"),
        (asking(maxSlowdown="x"), "GpuRequest.maxSlowdown: 'x' is not a slowdown; write 5%"),
        (asking(priority="5"), "write one without quotes"),
        (
            claim(deviceClassName="rgpu-whole.rgpu.dev", capacity={"requests": {"memory": "80Gi"}}),
            "a whole card was asked for with memory 80Gi",
        ),
        (claim(deviceClassName="rgpu-mig.rgpu.dev"), "write which profile, as `mig: 1g.10gb`"),
        (asking(mig="1g.10gb"), "DeviceClass 'rgpu.dev' has no MIG slices, and 1g.10gb was asked"),
        (claim(deviceClassName="odd.rgpu.dev"), "DeviceClass 'odd.rgpu.dev': the placer does not"),
        (claim(deviceClassName="a100.rgpu.dev"), "both the model 'A100' and 'H200' are asked for"),
        (asking(maxSlowdown=["5%"]), "is no text"),
        (asking(minShare="40%"), "above the share"),
        (asking(minMemory="9" * 34), "is more than the"),
        (asking(minMemory="256"), "did you mean 256MiB?"),
        (asking(minShare="9" * 30 + "vcore"), "is not a share"),
        (asking(kind="GpuClaim"), "write `apiVersion: rgpu.dev/v1alpha1`"),
    ],
)  # fmt: skip
def test_what_is_refused_says_why(made: dict[str, Any], says: str) -> None:
    assert says in refused(made)


def test_one_request_for_each_claim() -> None:
    made = claim()
    made["spec"]["devices"]["requests"] *= 2
    assert "the claim has 2 requests" in refused(made)


def test_constraints_are_refused() -> None:
    made = claim()
    made["spec"]["devices"]["constraints"] = [{"matchAttribute": "rgpu.dev/numa"}]
    assert "does not know constraints" in refused(made)


def test_the_selectors_of_a_class_count() -> None:
    found = wish(claim(deviceClassName="a100.rgpu.dev", selectors=None)).request
    assert (found.model, found.mig) == ("A100", "")
    made = asking(mig="1g.10gb")
    made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "rgpu-mig.rgpu.dev"
    assert wish(made).request.mig == "1g.10gb"


def test_which_claims_are_ours() -> None:
    assert is_ours(claim())
    assert is_ours(claim(deviceClassName="rgpu-mig.rgpu.dev"))
    assert not is_ours(claim(deviceClassName="gpu.nvidia.com"))
    made = claim()
    made["spec"]["devices"]["requests"] = [
        {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "rgpu.dev"}]}
    ]
    assert is_ours(made)
    assert not is_ours({})


def test_parameters_without_a_layer_are_the_defaults() -> None:
    assert parameters_of() == Parameters()


def test_quantities() -> None:
    for text, value in (
        ("30", 30),
        ("8Gi", 8 << 30),
        ("1k", 1000),
        ("1e3", 1000),
        ("2M", 2_000_000),
    ):
        assert quantity(text) == value
    assert quantity("1500m") == Decimal("1.5")
    for text in ("", "8G i", "8gi", "Gi", "1e999", "1..2", "0x10", "nan", "1" * 50):
        with pytest.raises(RequestError):
            quantity(text)


def adaptive(*rows: dict[str, Any], config: list[Any] | None = None) -> dict[str, Any]:
    """A claim with alternatives: KubeGPU's, unless rows name others."""
    made = claim()
    usual = [
        {"name": "passthrough", "deviceClassName": "rgpu-whole.rgpu.dev"},
        {"name": "near", **part(50)},
        {"name": "any", **part(30)},
    ]
    made["spec"]["devices"] = {
        "requests": [{"name": "gpu", "firstAvailable": [*(rows or usual)]}],
        "config": [said(["gpu/near"], mode="near")] if config is None else config,
    }
    return made


def part(core: int) -> dict[str, Any]:
    sizes = {"requests": {"core": str(core), "memory": "4Gi"}}
    return {"deviceClassName": "rgpu.dev", "capacity": sizes}


def said(requests: list[str], **parameters: Any) -> dict[str, Any]:
    words = {"apiVersion": "rgpu.dev/v1alpha1", "kind": "GpuRequest", **parameters}
    return {"requests": requests, "opaque": {"driver": "rgpu.dev", "parameters": words}}


WHOLE = {"rgpu-whole.rgpu.dev": {"spec": {"config": [said([], whole=True, mode="passthrough")]}}}


def test_alternatives_are_wishes_in_the_order_written() -> None:
    whole, near, far = wishes_of(adaptive(), {**CLASSES, **WHOLE})
    assert (whole.name, near.name, far.name) == ("gpu/passthrough", "gpu/near", "gpu/any")
    assert (whole.mode, near.mode, far.mode) == (Mode.PASSTHROUGH, Mode.NEAR, Mode.ANY)
    assert whole.request.whole
    assert (near.request.share_ppm, far.request.share_ppm) == (500_000, 300_000)
    assert {one.request.id for one in (whole, near, far)} == {UID}


def test_an_allocation_has_what_counts_for_its_alternative_alone() -> None:
    whole, near, far = wishes_of(adaptive(), {**CLASSES, **WHOLE})
    found = allocation(near, PLACES[:1], "2026-11-27T00:00:00Z", lambda: "id")
    (row,) = found["devices"]["results"]
    assert (row["request"], row["consumedCapacity"]["core"]) == ("gpu/near", "50")
    (config,) = found["devices"]["config"]
    assert (config["source"], config["requests"]) == ("FromClaim", ["gpu/near"])
    assert not far.config
    # What its class says is in it too: an agent that grants the lease again reads it there.
    (config,) = whole.config
    assert config["source"] == "FromClass"
    assert config["opaque"]["parameters"]["whole"] is True


def test_parameters_for_a_request_are_for_each_of_its_alternatives() -> None:
    first = said(["gpu"], priority=3, profile="training")
    config = [first, said(["gpu/b"], profile="bulk"), said(["other"], priority=9)]
    made = adaptive({"name": "a", **part(50)}, {"name": "b", **part(30)}, config=config)
    a, b = wishes_of(made, CLASSES)
    assert (a.request.priority, b.request.priority) == (3, 3)
    assert (a.request.profile, b.request.profile) == (PROFILES["training"], PROFILES["bulk"])


@pytest.mark.parametrize(
    ("row", "config", "says"),
    [
        ({"deviceClassName": "gpu.nvidia.com"}, [], "gpu/b is of another driver's DeviceClass"),
        ({"deviceClassName": "old.rgpu.dev"}, [], "gpu/b: there is no DeviceClass 'old.rgpu.dev'"),
        (part(200), [], "gpu/b: core is 1 to 100"),
        ({**part(20), "allocationMode": "All"}, [], "gpu/b: allocationMode All"),
        (part(20), [said(["gpu/b"], priority=2)], "write one `priority` for the request 'gpu'"),
        (part(20), [said(["gpu/b"], colour="red")], "gpu/b: GpuRequest has no field 'colour'"),
    ],
)
def test_what_is_wrong_with_an_alternative_names_it(
    row: dict[str, Any], config: list[Any], says: str
) -> None:
    rows = {"name": "a", **part(50)}, {"name": "b", **row}
    assert says in refused(adaptive(*rows, config=config))


def test_so_many_alternatives_are_refused() -> None:
    rows = [{"name": f"a{number}", **part(10)} for number in range(9)]
    assert "at most 8 alternatives" in refused(adaptive(*rows))


PLACES = [
    Place("gpu7", 0, 80 * GIB, "10.0.0.7:7700", "r3"),
    Place("gpu8", 2, 80 * GIB, "10.0.0.8:7700", "r3"),
]


def made(places: list[Place], **parameters: Any) -> dict[str, Any]:
    ids = count(1)
    asked = wish(asking(**parameters))
    return allocation(asked, places, "2026-11-27T00:00:00Z", lambda: f"id-{next(ids)}")


def test_an_allocation_says_what_is_taken_of_each_card() -> None:
    found = made(PLACES)
    rows = found["devices"]["results"]
    assert [(r["pool"], r["device"], r["shareID"]) for r in rows] == [
        ("gpu7", "gpu-0", "id-1"), ("gpu8", "gpu-2", "id-2"),
    ]  # fmt: skip
    assert {r["request"] for r in rows} == {"gpu"}
    assert rows[0]["consumedCapacity"] == {"core": "30", "memory": str(8 * GIB)}
    assert found["allocationTimestamp"] == "2026-11-27T00:00:00Z"
    assert found["devices"]["config"][0]["source"] == "FromClaim"
    assert allocated({"status": {"allocation": found}}) == [("gpu7", "gpu-0"), ("gpu8", "gpu-2")]
    assert allocated({"status": None}) == allocated({}) == []


@pytest.mark.parametrize(
    ("mode", "places", "key", "values"),
    [
        ("local", PLACES[:1], "kubernetes.io/hostname", ["gpu7"]),
        ("near", PLACES, "rgpu.dev/rack", ["r3"]),
        ("near", [Place("gpu7", 0, GIB, "a:1", "")], "kubernetes.io/hostname", ["gpu7"]),
    ],
)
def test_the_mode_says_where_pods_may_run(
    mode: str, places: list[Place], key: str, values: list[str]
) -> None:
    (term,) = made(places, mode=mode)["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": key, "operator": "In", "values": values}]
    assert "nodeSelector" not in made(places, mode="any")


def test_what_a_pod_is_told() -> None:
    assert told(UID, PLACES[:1]) == {
        "rgpu.dev/server": "10.0.0.7:7700", "rgpu.dev/lease": UID, "rgpu.dev/device": "0",
    }  # fmt: skip
    assert told(UID, PLACES)["rgpu.dev/device"] == "0@10.0.0.7:7700,2@10.0.0.8:7700"
    assert told(UID, PLACES)["rgpu.dev/server"] == ""


def test_a_card_that_has_left_its_node_has_no_place() -> None:
    pool = Pool()
    card = Card(CardId("gpu7", 0), "H100", 80 * GIB)
    pool.report(Node("gpu7", 1, (card,), "a:1"), {})
    assert places_of([CardId("gpu7", 0)], pool) == [Place("gpu7", 0, 80 * GIB, "a:1", "")]
    for gone in (CardId("gpu7", 1), CardId("gpu8", 0)):
        assert places_of([gone], pool) is None


def test_names_of_cards() -> None:
    assert [ordinal_of(x) for x in ("gpu-0", "gpu-12", "net-0", "gpu-", "0", "gpu-x")] == [
        0, 12, -1, -1, -1, -1,
    ]  # fmt: skip
