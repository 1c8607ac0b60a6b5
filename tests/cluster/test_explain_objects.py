"""`rgpu explain pod/NAME` and `claim/NAME`: what Kubernetes says, and where the manager is asked."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.command import run_rgpu_plain
from helpers.fake_api import FakeApi
from helpers.manager import ManagerProcess

from rgpu_cluster.kubernetes.explain_cli import subject_of
from rgpu_common.errors import UsageError

UID = "3d9a2b6e-8f0c-4a59-9a1e-00000000000{}"


@pytest.fixture(scope="module")
def manager() -> Iterator[ManagerProcess]:
    """A manager that has decided nothing."""
    with ManagerProcess() as one:
        yield one


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as one:
        yield one


def claim(name: str, number: int, class_name: str = "rgpu.dev", **more: Any) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": class_name}}
    return {
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": UID.format(number)},
        "spec": {"devices": {"requests": [request]}}, **more,
    }  # fmt: skip


def pod(*claims: str, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    named = [{"name": f"gpu{n}", "resourceClaimName": one} for n, one in enumerate(claims)]
    gates = [{"name": "rgpu.dev/placement"}]
    said = {"type": "rgpu.dev/Placed", "status": "False", "reason": "WaitsForGpu",
            "message": "no card has room\x1b[2J"}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "train", "namespace": "team", "uid": UID.format(9),
                     "labels": labels or {}},
        "spec": {"containers": [], "resourceClaims": named, "schedulingGates": gates},
        "status": {"phase": "Pending", "conditions": [said]}, **more,
    }  # fmt: skip


def allocated(**condition: str) -> dict[str, Any]:
    result = {"request": "gpu", "driver": "rgpu.dev", "pool": "gpu7", "device": "gpu-0"}
    told = {"driver": "rgpu.dev", "pool": "gpu7", "device": "gpu-0", "conditions": [
        {"type": "rgpu.dev/refused", "status": "True", "reason": "Refused",
         "lastTransitionTime": "2026-01-01T00:00:00Z", **condition}]}  # fmt: skip
    return {"allocation": {"devices": {"results": [result]}}, "devices": [told]}


def told(api: FakeApi, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    config = str(api.kubeconfig(folder))
    return run_rgpu_plain("explain", *words, "--kubeconfig", config)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("run-" + "0" * 32, None),
        ("pod/train", ("pod", "train")),
        ("Pods/a.b-c", ("pod", "a.b-c")),
        ("resourceclaim/third", ("claim", "third")),
    ],
)
def test_what_is_explained(text: str, subject: tuple[str, str] | None) -> None:
    assert subject_of(text) == subject


@pytest.mark.parametrize("text", ["node/a", "pod/", "pod/A", "pod/a/b", "claim/../x", "/x"])
def test_what_cannot_be_explained_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write the id of a request, pod/NAME or claim/NAME"):
        subject_of(text)


def test_without_a_manager_it_says_what_kubernetes_says_and_what_to_write(
    api: FakeApi, tmp_path: Path
) -> None:
    api.put("pods/team/train", pod("third", "nic", "gone"))
    api.put("claims/team/third", claim("third", 1, status=allocated(message="the card is full")))
    api.put("claims/team/nic", claim("nic", 2, "other.example"))
    done = told(api, tmp_path, "pod/train", "-n", "team")
    assert done.returncode == 2
    assert "name it with --manager HOST:PORT, or RGPU_MANAGER" in done.stderr
    assert "kubectl port-forward -n rgpu-system service/rgpu-manager 7710" in done.stderr
    assert done.stdout == (
        "pod team/train: Pending, waits for its cards\n"
        "  WaitsForGpu: no card has room?[2J\n"
        "  without the label rgpu.dev/placement: managed kube-scheduler chooses its cards\n"
        "\n"
        "claim team/third: has gpu7/gpu-0\n"
        "  rgpu.dev/refused (gpu7/gpu-0): the card is full\n"
        "\n"
        "claim team/nic: asks for no device class of rgpu\n"
        "\n"
        "claim team/gone: there is no ResourceClaim gone in the namespace team; make it, or name "
        "its namespace with --namespace\n"
    )


def test_the_manager_is_asked_for_each_claim_by_its_uid(
    api: FakeApi, manager: ManagerProcess, tmp_path: Path
) -> None:
    api.put("pods/team/train", pod("one", "two", labels={"rgpu.dev/placement": "managed"}))
    api.put("claims/team/one", claim("one", 1))
    api.put("claims/team/two", claim("two", 2))
    words = ("-n", "team", "--manager", manager.address)
    done = told(api, tmp_path, "pod/train", *words)
    assert done.returncode == 1
    for number in (1, 2):
        sentence = f"no decision: the manager knows no request {UID.format(number)!r}"
        assert sentence in done.stdout
    assert done.stdout.count("shows it to the tenant team alone: name the file of its token") == 2
    parts = json.loads(told(api, tmp_path, "claim/one", "--json", *words).stdout)["parts"]
    (part,) = parts
    assert (part["request_id"], part["decision"]) == (UID.format(1), None)
    assert "knows no request" in part["error"]


def test_a_pod_of_the_extender_is_its_own_request(
    api: FakeApi, manager: ManagerProcess, tmp_path: Path
) -> None:
    api.put("pods/team/train", pod(labels={"rgpu.dev/extender": "bound"}))
    done = told(api, tmp_path, "pod/train", "-n", "team", "--manager", manager.address)
    assert f"knows no request {UID.format(9)!r}" in done.stdout


def test_a_pod_without_a_claim_needs_no_manager(api: FakeApi, tmp_path: Path) -> None:
    api.put("pods/team/train", pod())
    done = told(api, tmp_path, "pod/train", "-n", "team")
    assert done.returncode == 0
    assert "it has no claim, so rgpu gives it no card" in done.stdout


def test_what_is_not_there_is_said_with_a_remedy(api: FakeApi, tmp_path: Path) -> None:
    done = told(api, tmp_path, "claim/third", "-n", "team")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no ResourceClaim third in the namespace team" in done.stderr
    api.code = 403
    assert "Kubernetes: answered with 403" in told(api, tmp_path, "pod/a", "-n", "team").stderr
    done = told(api, tmp_path, "pod/a", "-n", "a/../b")
    assert (done.returncode, "names no namespace" in done.stderr) == (2, True)


def test_without_kubernetes_it_says_how_to_name_it(tmp_path: Path) -> None:
    done = run_rgpu_plain("explain", "pod/train", "--kubeconfig", str(tmp_path / "none"))
    assert done.returncode == 2
    assert "name a kubeconfig file with --kubeconfig" in done.stderr
