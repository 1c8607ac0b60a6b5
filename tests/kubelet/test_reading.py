"""What the plugin reads from claims, pods and slices."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import claims
from helpers.claims import container, pod, published

from rgpu_cluster.kubelet.claims import ClaimName, allocated
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.offers import Offer, offer_of
from rgpu_cluster.kubelet.pods import Use, use_of

NAME = ClaimName("team-a", "claim-1", claims.uid())
TWO = ("a:gpu7/gpu-0", "b:gpu7/gpu-1")


def use(*pods: Any, devices: tuple[str, ...] = (), ours: tuple[str, ...] = ("claim-1",)) -> Use:
    users = tuple(one["metadata"]["uid"] for one in pods) or ("pod-1",)
    found = allocated(NAME, claims.claim(1, *devices, users=users))
    return use_of(found, pods, "client-1", ours)


def test_an_allocation_is_read_in_its_order() -> None:
    rows = ("a:gpu8/gpu-3", "b/near:gpu7/gpu-10", "net:gpu6/net-mlx5-0")
    found = allocated(NAME, claims.claim(1, *rows))
    assert [(part.request, part.ordinal) for part in found.parts] == [
        ("a", 3),
        ("b", 10),
        ("net", None),
    ]
    assert found.pools == ("gpu8", "gpu7")
    assert found.pods == {"pod-1"}


def test_devices_of_other_drivers_are_left_out() -> None:
    content = claims.claim(1, "gpu:gpu7/gpu-0", "nic:other/nic-0")
    content["status"]["allocation"]["devices"]["results"][1]["driver"] = "nic.example.com"
    assert len(allocated(NAME, content).parts) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (claims.claim(2), "was deleted and made again, with the UID"),
        (claims.claim(1, status={}), "has no card of rgpu.dev (any more)"),
        (claims.claim(1, "net:gpu6/net-0"), "has no card of rgpu.dev (any more)"),
        (claims.claim(1, users=()), "is reserved for no pod"),
    ],
)
def test_a_claim_that_cannot_be_prepared(content: Any, says: str) -> None:
    with pytest.raises(PrepareError, match=r"delete the pod") as error:
        allocated(NAME, content)
    assert says in str(error.value)


@pytest.mark.parametrize("uid", ["", "../x", "a/b", "x" * 65, ".", "a\n"])
def test_a_uid_that_is_none(uid: str) -> None:
    with pytest.raises(PrepareError, match="is no UID of a claim"):
        allocated(ClaimName("team-a", "claim-1", uid), claims.claim())


def test_a_container_without_a_user_runs_as_root() -> None:
    assert use(pod()) == Use(0, False, ())


def test_the_user_of_a_container_wins_over_that_of_its_pod() -> None:
    context = {"runAsUser": 1000}
    assert use(pod("p", securityContext=context)).user == 1000
    assert use(pod("p", container(user=2000), securityContext=context)).user == 2000
    assert use(pod("p", container(user=0), securityContext={"runAsNonRoot": True})).user == 0


def test_a_user_that_only_the_image_knows() -> None:
    with pytest.raises(PrepareError, match=r"set securityContext\.runAsUser"):
        use(pod("p", securityContext={"runAsNonRoot": True}))


def test_containers_of_several_users_cannot_share_a_claim() -> None:
    with pytest.raises(
        PrepareError, match=r"container a of pod p runs as user 1, and .* as user 2"
    ):
        use(pod("p", container("a", user=1), container("b", user=2)))
    # A container that does not name the claim does not matter.
    assert use(pod("p", container("a", user=1), container("b", "other", user=2))).user == 1


def test_init_containers_count() -> None:
    with pytest.raises(PrepareError, match="only one user"):
        use(pod("p", container("a", user=1), initContainers=[container("i", user=2)]))


def test_a_claim_of_a_template_has_the_name_that_the_status_says() -> None:
    content = pod("p", container(user=7))
    content["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "third"}]
    content["status"] = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "claim-1"}]}
    assert use(content).user == 7


def test_a_claim_made_for_an_extended_resource() -> None:
    content = pod("p", container("c", "other", user=7))
    content["spec"]["resourceClaims"] = []
    content["status"] = {"extendedResourceClaimStatus": {
        "resourceClaimName": "claim-1",
        "requestMappings": [{"containerName": "c", "resourceName": "rgpu.dev/gpu", "requestName": "r"}],
    }}  # fmt: skip
    assert use(content).user == 7


def test_only_pods_of_this_node_that_may_use_the_claim_count() -> None:
    with pytest.raises(PrepareError, match="reserved for no pod on node client-1"):
        use()
    found = allocated(NAME, claims.claim(1, users=("p",)))
    stranger = pod("stranger", container(user=9))
    assert use_of(found, [stranger, pod("p", container(user=7))], "client-1", ()).user == 7


def test_a_container_with_two_of_our_claims_is_refused() -> None:
    both = pod("p", container("c", "gpu", "second"), claims={"gpu": 1, "second": 2})
    assert use(both, ours=("claim-1",)).user == 0
    with pytest.raises(PrepareError, match="the claims claim-1 and claim-2, and a program has one"):
        use(both, ours=("claim-1", "claim-2"))


def test_requests_of_a_claim_are_named_by_all_containers_or_by_none() -> None:
    assert not use(pod(), devices=TWO).by_request
    each = pod("p", container("a", "gpu/a"), container("b", "gpu/b"))
    assert use(each, devices=TWO).by_request
    with pytest.raises(PrepareError, match="in all of them, or in none"):
        use(pod("p", container("a", "gpu/a"), container("b")), devices=TWO)
    with pytest.raises(PrepareError, match="several requests of claim team-a/claim-1 one by one"):
        use(pod("p", container("a", "gpu/a", "gpu/b")), devices=TWO)
    # The only request of a claim is the whole claim.
    assert not use(pod("p", container("a", "gpu/gpu"))).by_request


def test_the_libraries_of_containers_are_kept() -> None:
    rows = [{"name": "LD_LIBRARY_PATH", "value": "/a:/b"}]
    other = [{"name": "LD_LIBRARY_PATH", "value": "/b:/c"}]
    found = use(pod("p", container("a", env=rows), container("b", env=other)))
    assert found.libraries == ("/a", "/b", "/c")


def test_the_newest_slices_of_a_pool_say_where_server_and_agent_are() -> None:
    old, new = published(agent="old:1"), published(agent="new:1", generation=2)
    assert offer_of([old, published("gpu8", "other:1"), new], "gpu7") == Offer("gpu7:7700", "new:1")
    assert offer_of([published(agent="")], "gpu7") == Offer("gpu7:7700", "")
    assert offer_of([published("gpu8")], "gpu7") is None
    old["spec"]["driver"] = "other"
    assert offer_of([old], "gpu7") is None


def test_a_token_of_the_pod_is_there_if_all_containers_have_it() -> None:
    env = [{"name": "RGPU_TOKEN_FILE", "value": "/var/run/secrets/rgpu.dev/token"}]
    assert use(pod("p", container(env=env))).tokens
    assert not use(pod("p", container("a", env=env), container("b"))).tokens
