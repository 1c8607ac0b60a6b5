"""The GPU words of other systems in pods, and the claims that they become."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgpu_cluster.core.card import Labels
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.request import Client, Mode
from rgpu_cluster.kubernetes.legacy.asked import Asked, claim_spec, request_of, template_name
from rgpu_cluster.kubernetes.legacy.vendors import SYSTEMS, Options
from rgpu_cluster.kubernetes.units import read, uses_old_words
from rgpu_cluster.kubernetes.wishes import wishes_of
from rgpu_common.units import PPM

GIB, MIB = 1 << 30, 1 << 20
CLASSES: dict[str, dict[str, Any]] = {"rgpu.dev": {"spec": {}}}
MANAGED = {"rgpu.dev/placement": "managed"}


def pod(
    limits: dict[str, Any], requests: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    resources = {"limits": limits} | ({"requests": requests} if requests is not None else {})
    container = {"name": "c", "image": "none", "resources": resources}
    return {"metadata": {"name": "old", **metadata}, "spec": {"containers": [container]}}


def one(limits: dict[str, Any], options: Options | None = None, **metadata: Any) -> Asked:
    (asked,) = read(pod(limits, **metadata), options).asked
    return asked


def refused(limits: dict[str, Any], **metadata: Any) -> str:
    with pytest.raises(RequestError) as caught:
        read(pod(limits, **metadata))
    return str(caught.value)


def wished(asked: Asked) -> Any:
    """The request that the manager's front makes of the claim."""
    claim = {"metadata": {"uid": "u" * 36, "namespace": "team"}, "spec": claim_spec(asked)}
    (found,) = wishes_of(claim, CLASSES)
    return found.request


T, A, Q, N, E = (
    "tencent.com/",
    "aliyun.com/",
    "tke.cloud.tencent.com/",
    "nvidia.com/",
    "elasticgpu.com/",
)
KUBESHARE = {
    "kubeshare/gpu_request": "0.5",
    "kubeshare/gpu_limit": "1.0",
    "kubeshare/gpu_mem": str(GIB),
}

EXPRESSED = [
    ("vcuda-part", {T + "vcuda-core": 40, T + "vcuda-memory": "32"}, {},
     Asked("c", "GPUManager", core=40, memory_bytes=8 * GIB)),
    ("vcuda-limit", {T + "vcuda-core": 40, T + "vcuda-memory": 1}, {"annotations": {T + "vcuda-core-limit": "70"}},
     Asked("c", "GPUManager", core=40, limit=70, memory_bytes=256 * MIB)),
    ("vcuda-whole", {T + "vcuda-core": "200", T + "vcuda-memory": 60}, {},
     Asked("c", "GPUManager", 2, whole=True)),
    ("vcuda-hundred", {T + "vcuda-core": 100}, {}, Asked("c", "GPUManager", whole=True)),
    ("gpushare", {A + "gpu-mem": 3}, {},
     Asked("c", "gpushare", core=1, limit=100, memory_bytes=3 * GIB)),
    ("gpushare-cards", {A + "gpu-mem": 8}, {"labels": {A + "gpu-count": "4"}},
     Asked("c", "gpushare", 4, core=1, limit=100, memory_bytes=2 * GIB)),
    ("gpushare-count", {A + "gpu-count": 2}, {}, Asked("c", "gpushare", 2, whole=True)),
    ("cgpu", {A + "gpu-mem": 6, A + "gpu-core.percentage": 25}, {},
     Asked("c", "cGPU", core=25, memory_bytes=6 * GIB)),
    ("qgpu", {Q + "qgpu-core": 30, Q + "qgpu-memory": 10}, {},
     Asked("c", "qGPU", core=30, limit=100, memory_bytes=10 * GIB)),
    ("qgpu-whole", {Q + "qgpu-core": 200}, {}, Asked("c", "qGPU", 2, whole=True)),
    ("qgpu-two-parts", {Q + "qgpu-core": 121, Q + "qgpu-memory": 31}, {},
     Asked("c", "qGPU", 2, core=60, limit=100, memory_bytes=15 * GIB)),
    ("qgpu-online", {Q + "qgpu-memory": 4}, {"annotations": {Q + "app-class": "online"}},
     Asked("c", "qGPU", core=1, limit=100, memory_bytes=4 * GIB, priority=1)),
    ("qgpu-offline", {Q + "qgpu-memory": 4, Q + "qgpu-core-greedy": 50}, {"annotations": {Q + "app-class": "offline"}},
     Asked("c", "qGPU", core=1, limit=100, memory_bytes=4 * GIB)),
    ("hami", {N + "gpu": 1, N + "gpumem": "3k", N + "gpucores": 30}, {},
     Asked("c", "HAMi", core=30, memory_bytes=3000 * MIB)),
    ("hami-memory", {N + "gpu": 2, N + "gpumem": 4096}, {},
     Asked("c", "HAMi", 2, core=1, limit=100, memory_bytes=4096 * MIB)),
    ("hami-percent", {N + "gpu": 1, N + "gpumem-percentage": 50, N + "gpucores": 30}, {},
     Asked("c", "HAMi", core=30, memory_percent=50)),
    ("hami-exclusive", {N + "gpu": 1, N + "gpucores": 100}, {}, Asked("c", "HAMi", whole=True)),
    ("hami-high", {N + "gpu": 1, N + "gpumem": 1024, N + "priority": 0}, {},
     Asked("c", "HAMi", core=1, limit=100, memory_bytes=GIB, priority=1)),
    ("nvidia-managed", {N + "gpu": 2}, {"labels": MANAGED}, Asked("c", "HAMi", 2, whole=True)),
    ("kubeshare", {}, {"annotations": {**KUBESHARE, "kubeshare/sched_affinity": "red",
                                       "kubeshare/sched_anti-affinity": "green",
                                       "kubeshare/sched_exclusion": "blue"}},
     Asked("", "KubeShare", core=50, limit=100, memory_bytes=GIB, labels=Labels("red", "green", "blue"))),
    ("elastic", {E + "gpu-core": 20, E + "gpu-memory": 512}, {},
     Asked("c", "Elastic GPU", core=20, memory_bytes=512 * MIB)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "metadata", "wanted"),
    [row[1:] for row in EXPRESSED],
    ids=[row[0] for row in EXPRESSED],
)
def test_old_words_are_one_description(
    limits: dict[str, Any], metadata: dict[str, Any], wanted: Asked
) -> None:
    assert one(limits, **metadata) == wanted


@pytest.mark.parametrize(
    "wanted", [row[3] for row in EXPRESSED if not row[3].memory_percent],
    ids=[row[0] for row in EXPRESSED if not row[3].memory_percent],
)  # fmt: skip
def test_the_managers_front_reads_the_same_from_the_claim(wanted: Asked) -> None:
    """The claim is not only well formed: the placer gets what the old words said."""
    direct = request_of(wanted, "u" * 36, "team", Client(), Mode.ANY)
    found = wished(wanted)
    for name in (
        "share_ppm",
        "limit_ppm",
        "cards",
        "whole",
        "labels",
        "priority",
        "one_node",
        "model",
    ):
        assert getattr(found, name) == getattr(direct, name), name
    # Claims count memory in steps.
    step = 256 * MIB
    assert found.memory_on(80 * GIB) == -(-direct.memory_on(80 * GIB) // step) * step


REFUSED = [
    ({T + "vcuda-core": 150, T + "vcuda-memory": 1}, {}, "write 100 or 200"),
    ({T + "vcuda-core": 50}, {}, "needs both tencent.com/vcuda-core (1 to 99) and tencent.com/vcuda-memory"),
    ({T + "vcuda-memory": 50}, {}, "needs both"),
    ({T + "vcuda-core": 50, T + "vcuda-memory": 1}, {"annotations": {T + "vcuda-core-limit": "40"}},
     "write a number from 50"),
    ({T + "vcuda-core": 50, T + "vcuda-memory": 1, A + "gpu-mem": 3}, {}, "keep those of one"),
    ({T + "vcuda-core": "50m", T + "vcuda-memory": 1}, {}, "is a whole number, and not '50m'"),
    ({A + "gpu-mem": "5.5"}, {}, "is a whole number, and not '5.5'"),
    ({A + "gpu-mem": 7}, {"labels": {A + "gpu-count": "2"}}, "write a multiple of 2"),
    ({A + "gpu-mem": 8, A + "gpu-core.percentage": 30}, {"labels": {A + "gpu-count": "2"}},
     "write a claim with `count`"),
    ({A + "gpu-core.percentage": 30}, {}, "needs aliyun.com/gpu-mem beside it"),
    ({A + "gpu-mem": 8, A + "gpu-core.percentage": 130}, {}, "write 1 to 100"),
    ({A + "gpu-mem": "9e9"}, {}, "no card has so much"),
    ({Q + "qgpu-core": 30}, {}, "needs tke.cloud.tencent.com/qgpu-memory"),
    ({Q + "qgpu-memory": 3}, {}, "write tke.cloud.tencent.com/qgpu-core"),
    ({Q + "qgpu-core": 30, Q + "qgpu-core-greedy": 3, Q + "qgpu-memory": 1}, {}, "exclude each other"),
    ({N + "gpu": 1, N + "gpumem": 1, N + "gpumem-percentage": 50}, {}, "keep nvidia.com/gpumem"),
    ({N + "gpu": 1, N + "gpucores": 130}, {}, "write 0 to 100"),
    ({N + "gpu": 1, N + "gpumem": 1, N + "priority": 7}, {}, "write 0 for high or 1 for low"),
    ({N + "gpu": 1, N + "gpumem": 1}, {"annotations": {N + "use-gputype": "A100"}}, "rgpu.dev/model"),
    ({N + "gpu": 1, N + "gpumem": 1}, {"annotations": {N + "use-gpuuuid": "GPU-1"}}, "rgpu chooses the card"),
    ({}, {"annotations": {**KUBESHARE, "kubeshare/gpu_request": "0.333"}}, "write 0.33 or 0.34"),
    ({}, {"annotations": {**KUBESHARE, "kubeshare/gpu_limit": "0.4"}}, "raise kubeshare/gpu_limit"),
    ({}, {"annotations": {**KUBESHARE, "kubeshare/gpu_mem": "1Gi"}}, "write a number of bytes"),
    # Long numbers whose beginning is a small one.
    ({}, {"annotations": {**KUBESHARE, "kubeshare/gpu_mem": "0" * 19 + "1" * 5000}}, "write a number of bytes"),
    ({T + "vcuda-core": 50, T + "vcuda-memory": 1}, {"annotations": {T + "vcuda-core-limit": "000000050999"}},
     "write a number from 50"),
    ({T + "vcuda-core": 50, T + "vcuda-memory": 1}, {"annotations": {T + "vcuda-core-limit": "0" * 7000 + "50"}},
     "write a number from 50"),
    ({}, {"annotations": {**KUBESHARE, "kubeshare/GPUID": "abcde"}}, "write kubeshare/sched_affinity"),
    ({}, {"annotations": {"kubeshare/gpu_request": "0.5"}}, "kubeshare/gpu_limit is missing"),
    ({}, {"annotations": {**KUBESHARE, "kubeshare/sched_affinity": "a", "kubeshare/sched_anti-affinity": "a"}},
     "leave one of them out"),
    ({E + "gpu-core": 150, E + "gpu-memory": 1}, {}, "multiples of 100"),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "metadata", "sentence"), REFUSED)
def test_what_cannot_be_expressed_is_refused_with_a_remedy(
    limits: dict[str, Any], metadata: dict[str, Any], sentence: str
) -> None:
    assert sentence in refused(limits, **metadata)


def test_requests_and_limits_have_to_agree() -> None:
    with pytest.raises(RequestError, match="different requests and limits"):
        read(pod({A + "gpu-mem": 3}, {A + "gpu-mem": 2}))
    assert (
        read(pod({}, {A + "gpu-mem": 3})).asked
        == read(pod({A + "gpu-mem": 3}, {A + "gpu-mem": "3"})).asked
    )


def test_a_pod_without_old_words_is_left_alone() -> None:
    for plain in (
        pod({}),
        pod({"cpu": "1"}),
        pod({N + "gpu": 1}),
        {},
        {"metadata": None, "spec": None},
    ):
        assert not uses_old_words(plain)
        assert read(plain).asked == ()


def test_the_cluster_says_how_it_counted() -> None:
    assert one({A + "gpu-mem": 3000}, Options(gpu_mem_bytes=MIB)).memory_bytes == 3000 * MIB
    assert one({Q + "qgpu-core": 30, Q + "qgpu-memory": 1}, Options(qgpu_burst=False)).limit is None


def test_annotations_of_ours_choose_model_and_pool() -> None:
    asked = one({A + "gpu-mem": 3}, annotations={"rgpu.dev/model": "H200", "rgpu.dev/pool": "lab"})
    assert (wished(asked).model, wished(asked).pool) == ("H200", "lab")
    assert "63 printable" in refused({A + "gpu-mem": 3}, annotations={"rgpu.dev/model": "x" * 64})


def test_what_is_dropped_is_said() -> None:
    old = pod(
        {N + "gpu": 1, N + "gpumem": 1024}, annotations={"hami.io/gpu-scheduler-policy": "binpack"}
    )
    old["spec"]["schedulerName"] = "hami-scheduler"
    first, second = read(old).warnings
    assert "hami.io/gpu-scheduler-policy" in first
    assert "leave spec.schedulerName out" in second


def test_a_percentage_of_memory_is_no_claim() -> None:
    with pytest.raises(RequestError, match=r"write the memory in MiB \(nvidia.com/gpumem\)"):
        claim_spec(one({N + "gpu": 1, N + "gpumem-percentage": 50}))
    asked = one({N + "gpu": 1, N + "gpumem-percentage": 50})
    assert request_of(asked, "u" * 36, "team", Client(), Mode.ANY).memory_ppm == PPM // 2


def test_the_containers_of_a_sharepod_share_one_claim() -> None:
    shared = pod({}, annotations=KUBESHARE)
    shared["spec"]["containers"].append({"name": "side"})
    (asked,) = read(shared).asked
    assert asked.container == ""


def test_equal_claims_have_one_template() -> None:
    names = {template_name(claim_spec(row[3])) for row in EXPRESSED if not row[3].memory_percent}
    assert template_name(claim_spec(Asked("a", "x"))) == template_name(claim_spec(Asked("b", "y")))
    # HAMi's and NVIDIA's whole cards, and others, ask for the same.
    assert len(names) == len({str(claim_spec(r[3])) for r in EXPRESSED if not r[3].memory_percent})


_VALUES = st.one_of(
    st.integers(-5, 10_000), st.sampled_from(["", "1k", "3Gi", "0", "50m", "1e3", "1e99", "9" * 30, "x", "-1"]),
    st.none(), st.booleans(), st.floats(),
)  # fmt: skip
_NAMES = st.sampled_from([name for system in SYSTEMS for name in system.resources] + ["cpu"])
_ANNOTATIONS = st.dictionaries(
    st.sampled_from([*KUBESHARE, "kubeshare/sched_affinity", T + "vcuda-core-limit", Q + "app-class", "rgpu.dev/model"]),
    st.sampled_from(["", "0.5", "1.0", "-1", "NaN", "inf", "50", "online", "offline", "1" * 40, "\n", "\u0663"]),
)  # fmt: skip


@given(st.dictionaries(_NAMES, _VALUES, max_size=4), _ANNOTATIONS, _ANNOTATIONS, st.booleans())
def test_any_words_become_a_right_claim_or_one_sentence(
    limits: dict[str, Any], annotations: dict[str, str], labels: dict[str, str], managed: bool
) -> None:
    labels = {**labels, **(MANAGED if managed else {})}
    try:
        found = read(pod(limits, annotations=annotations, labels=labels))
        for asked in found.asked:
            if not asked.memory_percent:
                assert wished(asked).share_ppm >= PPM // 100
    except RequestError as error:
        assert 10 < len(str(error)) < 400  # noqa: PT017


@given(st.integers(1, 99), st.integers(1, 4000))
def test_gpumanagers_units_are_exact(core: int, memory: int) -> None:
    found = wished(one({T + "vcuda-core": core, T + "vcuda-memory": memory}))
    assert found.share_ppm == found.limit_ppm == core * 10_000
    assert found.memory_bytes == memory * 256 * MIB


def phased(*containers: tuple[str, int], main: tuple[int, ...] = ()) -> list[Asked]:
    """Reads a pod with init containers (name, GiB; a name that begins with "side" is a sidecar's)
    and containers, which ask for GiB of memory of a card.
    """

    def container(name: str, gib: int) -> dict[str, Any]:
        policy = {"restartPolicy": "Always"} if name.startswith("side") else {}
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": gib * 1024}
        return {"name": name, "resources": {"limits": limits}, **policy}

    spec = {
        "initContainers": [container(*one) for one in containers],
        "containers": [container(f"main-{n}", gib) for n, gib in enumerate(main)],
    }
    return list(read({"metadata": {"name": "old"}, "spec": spec}).asked)


def sizes(asked: list[Asked]) -> list[int]:
    return [one.memory_bytes // GIB for one in asked]


def test_a_pod_asks_for_its_largest_init_container_and_not_for_their_sum() -> None:
    inits = (("a", 10), ("b", 10), ("c", 10))
    (claim,) = phased(*inits, main=(10,))
    assert (sizes([claim]), claim.container, claim.before) == ([10], "main-0", ("a", "b", "c"))
    assert sizes(phased(("a", 4), ("b", 12), main=(10,))) == [12]
    assert sizes(phased(("a", 4), ("b", 12))) == [12], "init containers share a claim of their own"


def test_an_init_container_uses_the_claim_that_grows_least() -> None:
    first, second = phased(("a", 7), main=(2, 8))
    assert (sizes([first, second]), first.before, second.before) == ([2, 8], (), ("a",))


def test_a_sidecar_runs_beside_the_init_containers_behind_it() -> None:
    side, main = phased(("a", 6), ("side", 4), ("b", 9), main=(8,))
    assert (side.container, side.before, main.before) == ("side", (), ("a", "b"))
    assert sizes([side, main]) == [4, 9]
    (alone,) = phased(("a", 6), ("side", 4))
    assert (sizes([alone]), alone.before) == ([6], ("a",)), "the sidecar starts when it has ended"
    behind, before = phased(("side", 4), ("b", 6))
    assert (behind.before, before.container) == ((), "b"), "both run at once"


def kubernetes_own(inits: list[tuple[str, int]], main: list[int]) -> int:
    """The rule of Kubernetes for one resource."""
    beside = most = 0
    for name, gib in inits:
        most = max(most, beside + gib)
        beside += gib if name.startswith("side") else 0
    return max(most, beside + sum(main))


def least(inits: list[tuple[str, int]], main: list[int]) -> int:
    """The smallest sum of claims of which each init container uses one, by trying all ways."""
    # Each claim with the place of the container that it is for; the last is for init containers.
    own = [(n, gib) for n, (name, gib) in enumerate(inits) if name.startswith("side")]
    own += [(len(inits), gib) for gib in main] + [(len(inits), 0)]
    before = [(n, gib) for n, (name, gib) in enumerate(inits) if not name.startswith("side")]
    choices = [[c for c, (place, _) in enumerate(own) if place > n] for n, _ in before]
    sums = []
    for chosen in itertools.product(*choices):
        claims = [gib for _, gib in own]
        for claim, (_, gib) in zip(chosen, before, strict=True):
            claims[claim] = max(claims[claim], gib)
        sums.append(sum(claims))
    return min(sums)


@given(
    st.lists(st.tuples(st.sampled_from(["side", "init"]), st.integers(1, 9)), max_size=4),
    st.lists(st.integers(1, 9), max_size=3),
)
def test_a_pod_asks_for_the_least_that_one_lease_for_each_container_allows(
    kinds: list[tuple[str, int]], main: list[int]
) -> None:
    """That may be more than by Kubernetes' rule, but by less than the largest init container."""
    inits = [(f"{kind}-{n}", gib) for n, (kind, gib) in enumerate(kinds)]
    got = sum(sizes(phased(*inits, main=tuple(main))))
    assert got == least(inits, main)
    largest = max((gib for name, gib in inits if name.startswith("init")), default=0)
    assert 0 <= got - kubernetes_own(inits, main) < max(largest, 1)
    assert got < 2 * kubernetes_own(inits, main) or got == 0


@pytest.mark.parametrize(
    ("inits", "main", "kubernetes", "ours"),
    [
        ([("a", 8)], [4, 4], 8, 12),
        ([("a", 9), ("side", 4), ("b", 5)], [], 9, 13),
        ([("a", 8)], [8, 1], 9, 9),
    ],
)
def test_leases_are_not_joined_for_an_init_container(
    inits: list[tuple[str, int]], main: list[int], kubernetes: int, ours: int
) -> None:
    """The figures of docs/how-to/migrating.md."""
    assert kubernetes_own(inits, main) == kubernetes
    assert sum(sizes(phased(*inits, main=tuple(main)))) == ours


def test_whole_cards_of_several_containers_are_not_joined_either() -> None:
    def container(name: str, cards: int) -> dict[str, Any]:
        limits = {T + "vcuda-core": 100 * cards}
        return {"name": name, "resources": {"limits": limits}}

    spec = {
        "initContainers": [container("a", 2)],
        "containers": [container("main-0", 1), container("main-1", 1)],
    }
    asked = read({"metadata": {"name": "old"}, "spec": spec}).asked
    assert sorted(one.cards for one in asked) == [1, 2]


@given(st.lists(st.integers(1, 9), max_size=5), st.integers(1, 9))
def test_the_request_of_one_container_is_kubernetes_own_rule(inits: list[int], main: int) -> None:
    asked = phased(*((f"i{n}", gib) for n, gib in enumerate(inits)), main=(main,))
    assert sum(sizes(asked)) == max([main, *inits])
