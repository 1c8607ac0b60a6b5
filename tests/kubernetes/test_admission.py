"""What becomes of pods with old words, by the text of AdmissionReviews."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path
from typing import Any

import pytest

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.admission import Way, allowed, change_of, refused, review_of
from rgpu_cluster.kubernetes.legacy.vendors import Options

GOLDEN = Path(__file__).parent / "golden"


def asked() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "review.json").read_text())
    return found


def applied(pod: dict[str, Any], answer: dict[str, Any]) -> dict[str, Any]:
    """The pod after the patch of an answer.  Only whole fields are set."""
    pod = copy.deepcopy(pod)
    for one in json.loads(base64.b64decode(answer["response"]["patch"])):
        assert one["op"] == "add"
        _, *path, last = one["path"].split("/")
        target = pod
        for name in path:
            target = target[name]
        target[last] = one["value"]
    return pod


def changed(
    message: dict[str, Any], way: Way = Way.CLAIMS
) -> tuple[dict[str, Any], dict[str, Any], Any]:
    review = review_of(message)
    assert review.pod is not None
    change = change_of(review.pod, way, Options())
    answer = allowed(review, change)
    return applied(message["request"]["object"], answer), answer, change


@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.value)
def test_the_pod_becomes_what_the_golden_file_says(way: Way) -> None:
    pod, answer, change = changed(asked(), way)
    told = {"pod": pod, "templates": change.templates}
    file = GOLDEN / f"pod-{way.value}.json"
    assert json.loads(file.read_text()) == json.loads(json.dumps(told)), json.dumps(told, indent=2)
    assert answer["response"]["uid"] == asked()["request"]["uid"]
    assert answer["response"]["allowed"] is True


def test_a_pod_that_was_changed_is_left_alone_the_second_time() -> None:
    """The API server asks again after other webhooks."""
    for way in Way:
        message = asked()
        message["request"]["object"], _, _ = changed(message, way)
        review = review_of(message)
        assert review.pod is not None
        again = change_of(review.pod, way, Options())
        if way is Way.CLAIMS:
            assert not again.patch
        else:
            assert applied(review.pod, allowed(review, again)) == review.pod


def test_an_init_container_uses_the_claim_of_a_container_that_starts_later() -> None:
    message = asked()
    spec = message["request"]["object"]["spec"]
    spec["initContainers"] = [
        {"name": "warm", "resources": {"limits": {"aliyun.com/gpu-mem": "2"}}}
    ]
    del message["request"]["object"]["metadata"]["annotations"]
    pod, _, change = changed(message)
    claims = [one["resources"]["claims"] for kind in ("initContainers", "containers")
              for one in pod["spec"][kind] if one["resources"].get("claims")]  # fmt: skip
    assert claims == [[{"name": "rgpu-0"}], [{"name": "rgpu-0"}]]
    assert [one["name"] for one in pod["spec"]["resourceClaims"]].count("rgpu-0") == 1
    assert len(change.templates) == 1


def test_a_sidecar_has_a_claim_of_its_own() -> None:
    message = asked()
    spec = message["request"]["object"]["spec"]
    spec["initContainers"] = [
        {
            "name": "beside",
            "restartPolicy": "Always",
            "resources": {"limits": {"aliyun.com/gpu-mem": "2"}},
        }
    ]
    del message["request"]["object"]["metadata"]["annotations"]
    pod, _, change = changed(message)
    claims = [one["resources"]["claims"] for kind in ("initContainers", "containers")
              for one in pod["spec"][kind] if one["resources"].get("claims")]  # fmt: skip
    assert claims == [[{"name": "rgpu-0"}], [{"name": "rgpu-1"}]]
    assert len(change.templates) == 2


def test_without_claims_one_container_asks() -> None:
    message = asked()
    spec = message["request"]["object"]["spec"]
    spec["containers"][1]["resources"] = {"limits": {"tencent.com/vcuda-core": 100}}
    with pytest.raises(RequestError, match="without claims a pod has one such container"):
        change_of(message["request"]["object"], Way.EXTENDER, Options())


def test_what_is_not_a_new_pod_goes_through() -> None:
    message = asked()
    message["request"]["operation"] = "UPDATE"
    review = review_of(message)
    assert review.pod is None
    assert not change_of({}, Way.CLAIMS, Options()).patch


def test_an_elastic_gpu_claim_that_nobody_reads_is_told() -> None:
    pod = {"metadata": {"annotations": {"elasticgpu.io/egpuc-app": "mine"}},
           "spec": {"containers": [{"name": "app"}]}}  # fmt: skip
    (warning,) = change_of(pod, Way.CLAIMS, Options()).warnings
    assert "it gets no card" in warning
    assert not change_of(pod, Way.CLAIMS, Options(elastic_claims=True)).warnings


def test_a_refusal_has_a_sentence() -> None:
    review = review_of(asked())
    answer = refused(review, "write 100 or 200")
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["message"] == "rgpu: write 100 or 200"


@pytest.mark.parametrize(
    "message",
    [None, [], 7, {}, {"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "1", "namespace": "x"}},
     {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "", "namespace": "x"}},
     {"apiVersion": "admission.k8s.io/v1", "request": {"uid": "1", "namespace": 3}},
     {"apiVersion": "admission.k8s.io/v1",
      "request": {"uid": "1", "namespace": "x", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": []}}],
)  # fmt: skip
def test_what_is_no_review_is_refused(message: Any) -> None:
    with pytest.raises(RequestError, match="AdmissionReview"):
        review_of(message)
