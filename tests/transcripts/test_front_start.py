"""A manager that starts while pods wait, and hears of the DeviceClasses last."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers.granting_link import shell_of
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import DeviceClass, ResourceClaim

from rgpu_cluster.kubernetes.front import Front
from transcripts.tape import read


def listed(plural: str) -> list[dict[str, Any]]:
    """Returns the objects that the real API server listed."""
    tape = read("a_gated_pod_gets_its_card")
    (said,) = [one["content"] for one in tape if f"/{plural}?" in one.get("ask", "")]
    return list(said["items"])


def test_nothing_is_refused_before_all_classes_are_known() -> None:
    async def work() -> None:
        shell, daemon = shell_of()
        front = Front(None, shell)  # type: ignore[arg-type]
        claim = ResourceClaim.from_dict(listed("resourceclaims")[0])
        pod = Pod.from_dict(listed("pods")[0])
        front.claims.store["story", "third"], front.pods.store["story", "train"] = claim, pod
        front.claims.synced.set()
        front.pods.synced.set()
        front._pod_changed(None, pod)
        assert not front._tasks
        assert daemon.ordered == []
        for content in listed("deviceclasses"):
            front.classes.store["", content["metadata"]["name"]] = DeviceClass.from_dict(content)
        front.classes.synced.set()
        front._look_at_all()
        assert daemon.ordered == ["grant"]

    asyncio.run(work())
