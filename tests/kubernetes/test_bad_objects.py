"""Objects that tenants may write to blind rgpu's watchers, at the real API server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from helpers.kube_objects import Space, claim_spec
from helpers.kubernetes import ControlPlane
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.types import PatchType

from rgpu_cluster.kubernetes.api import open_client
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.objects import plain
from rgpu_common.tasks import end

SECONDS = 60
YEAR_0 = "0000-01-01T00:00:00Z"
HISTORY = {
    "manager": "evil", "operation": "Update", "time": YEAR_0, "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:evil": {}}}},
}  # fmt: skip


def change(space: Space, kind: Any, name: str, **metadata: Any) -> Any:
    """Changes an object as its tenant may. The answer is a dictionary, since no model can have it."""
    return space.client.patch(
        plain(kind), name, {"metadata": metadata}, namespace=space.name, patch_type=PatchType.MERGE
    )


def watched(plane: ControlPlane, space: Space, kind: Any, *acts: Any) -> list[str]:
    """Returns the changes that are heard while these things are done one after the other."""
    heard: list[str] = []

    async def work() -> None:
        told = asyncio.Event()

        def changed(before: Any, after: Any) -> None:
            notes = (after.metadata.annotations or {}) if after is not None else {}
            heard.append(f"{(after or before).metadata.name} {notes.get('note', '')}".strip())
            told.set()

        async with open_client(str(Path(plane.kubeconfig_file("admin")))) as client:
            found: Informer[Any] = Informer(client, kind, namespace=space.name, on_change=changed)
            running = asyncio.ensure_future(found.run())
            try:
                await asyncio.wait_for(found.synced.wait(), SECONDS)
                for act in acts:
                    told.clear()
                    await asyncio.to_thread(act)
                    await asyncio.wait_for(told.wait(), SECONDS)
            finally:
                await end([running])

    asyncio.run(work())
    return heard


def test_a_history_of_the_year_0_hides_no_claim(plane: ControlPlane, space: Space) -> None:
    for name in ("bad", "good"):
        space.claim(name, claim_spec(30))
    there = change(space, ResourceClaim, "bad", labels={"evil": "1"})
    mine = {**HISTORY, "apiVersion": "resource.k8s.io/v1"}
    every = [*there["metadata"]["managedFields"], mine]
    done = change(space, ResourceClaim, "bad", managedFields=every)
    # The API server keeps it, so this is no matter of taste.
    assert YEAR_0 in [one.get("time") for one in done["metadata"]["managedFields"]]
    try:
        heard = watched(
            plane, space, ResourceClaim,
            lambda: change(space, ResourceClaim, "good", annotations={"note": "1"}),
            lambda: change(space, ResourceClaim, "bad", annotations={"note": "2"}),
        )  # fmt: skip
    finally:
        # Who ends the namespace has to read it.
        change(space, ResourceClaim, "bad", managedFields=[{}])
    assert heard == ["bad", "good", "good 1", "bad 2"]


def test_an_annotation_with_the_end_of_a_line_costs_no_list(
    plane: ControlPlane, space: Space
) -> None:
    for name in ("bad", "good"):
        space.pod(name, containers=[{"name": "c", "image": "none"}], resourceClaims=[], gated=True)
    heard = watched(
        plane, space, Pod,
        lambda: change(space, Pod, "bad", annotations={"note": "a\u0085\u2028\u000bb"}),
        lambda: change(space, Pod, "good", annotations={"note": "1"}),
    )  # fmt: skip
    assert heard == ["bad", "good", "bad a\u0085\u2028\u000bb", "good 1"]
