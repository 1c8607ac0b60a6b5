"""Objects that are meant to blind a watcher: each costs what is known of that object, and no more.

A tenant may write all of these. The server writes U+0085 as it is, and Python takes it for the end
of a line.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.views import needed_of_pod
from rgpu_common.tasks import end
from transcripts.stage import SECONDS, Handler, Server

YEAR_0 = "0000-01-01T00:00:00Z"
# What the models cannot have, although it is no history of fields.
BAD = {"status": {"startTime": YEAR_0}}
NEL = "\u0085"


def pod(name: str, version: int = 1, uid: str = "", note: str = "", **more: Any) -> dict[str, Any]:
    metadata = {
        "name": name, "namespace": "team", "uid": uid or f"uid-of-{name}",
        "resourceVersion": str(version), "annotations": {"note": note},
        "managedFields": [{"manager": "x", "operation": "Update", "time": YEAR_0}],
    }  # fmt: skip
    return {"metadata": metadata, "spec": {"containers": []}, **more}


class Api:
    """An API server. It has a list, tells events once, and counts how often it is listed."""

    def __init__(self, listed: list[Any], events: list[tuple[str, Any]]) -> None:
        self.listed, self.events = listed, events
        self.lists = 0

    def answer(self, handler: Handler) -> None:
        if not handler.watches:
            self.lists += 1
            handler.say(200, {"metadata": {"resourceVersion": "5"}, "items": self.listed})
            return
        handler.begin()
        for kind, content in self.events:
            event = {"type": kind, "object": content}
            line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
            # In two parts, as a network may deliver them.
            for part in (line[: len(line) // 2], line[len(line) // 2 :]):
                handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.events = []
        handler.end()


def watched(
    api: Api, folder: Path, kind: Any = Pod, last: str = "end", **options: Any
) -> tuple[Informer[Any], list[tuple[str, str]]]:
    """Returns an informer that has heard of an object with the name `last`, and the changes before:
    the old name and version, and the new ones.
    """
    heard: list[tuple[str, str]] = []
    told = asyncio.Event()

    def changed(before: Any, after: Any) -> None:
        heard.append((_said(before), _said(after)))
        if after is not None and after.metadata.name == last:
            told.set()

    async def hear(server: Server) -> Informer[Any]:
        async with server.client(folder) as client:
            found: Informer[Any] = Informer(
                client, kind, namespace="*", on_change=changed, **options
            )
            running = asyncio.ensure_future(found.run())
            try:
                await asyncio.wait_for(told.wait(), SECONDS)
            finally:
                await end([running])
            return found

    with Server(lambda handler: api.answer(handler)) as server:
        return _run(hear(server)), heard[:-1]


def _run(work: Coroutine[Any, Any, Informer[Any]]) -> Informer[Any]:
    return asyncio.run(work)


def _said(one: Any) -> str:
    return "" if one is None else f"{one.metadata.name}:{one.metadata.resourceVersion}"


def test_the_history_of_fields_is_not_read(tmp_path: Path) -> None:
    """Who changes an object may write any time into it, also one of the year 0000."""
    found, heard = watched(Api([pod("one")], [("ADDED", pod("end", 6))]), tmp_path)
    assert heard == [("", "one:1")]
    assert found.store["team", "one"].metadata.managedFields is None


def test_an_object_that_cannot_be_read_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listed = [pod("bad", **BAD), pod("one")]
    events = [
        ("ADDED", pod("worse", 6, spec={"containers": 7})),
        ("MODIFIED", pod("one", 7, **BAD)),  # it stays as it was
        ("MODIFIED", pod("one", 8, **BAD)),
        ("MODIFIED", pod("bad", 9)),
        ("DELETED", pod("worse", 10, spec={"containers": 7})),
        ("ADDED", pod("end", 11)),
    ]
    api = Api(listed, events)
    found, heard = watched(api, tmp_path)
    assert heard == [("", "one:1"), ("", "bad:9")]
    assert found.store["team", "one"].metadata.resourceVersion == "1"
    assert api.lists == 1
    said = [one.getMessage() for one in caplog.records if "cannot be read" in one.getMessage()]
    assert [text.split(" cannot")[0] for text in said] == [
        "Pod team/bad", "Pod team/worse", "Pod team/one",
    ]  # fmt: skip


def test_an_unreadable_object_in_anothers_place_ends_that_one(tmp_path: Path) -> None:
    events = [("MODIFIED", pod("one", 7, "another", **BAD)), ("ADDED", pod("end", 8))]
    found, heard = watched(Api([pod("one")], events), tmp_path)
    assert heard == [("", "one:1"), ("one:1", "")]
    assert ("team", "one") not in found.store


def test_a_deletion_is_heard_though_the_object_cannot_be_read(tmp_path: Path) -> None:
    events = [("DELETED", pod("one", 7, **BAD)), ("ADDED", pod("end", 8))]
    _, heard = watched(Api([pod("one")], events), tmp_path)
    assert heard == [("", "one:1"), ("one:1", "")]


def test_no_character_ends_an_event_but_the_end_of_its_line(tmp_path: Path) -> None:
    events = [("MODIFIED", pod("one", 7, note=f"a{NEL}b")), ("ADDED", pod("end", 8))]
    api = Api([pod("one", note=NEL)], events)
    found, _ = watched(api, tmp_path)
    assert found.store["team", "one"].metadata.annotations == {"note": f"a{NEL}b"}
    assert api.lists == 1


def test_a_claim_keeps_all_but_its_history(tmp_path: Path) -> None:
    """The manager writes back what it has read."""
    claim = {**pod("one"), "spec": {"devices": {}}, "status": {"devices": [
        {"driver": "d", "pool": "p", "device": "x", "data": {"a": [1, None]}},
    ]}}  # fmt: skip
    found, _ = watched(
        Api([claim], [("ADDED", {**pod("end"), "spec": {}})]), tmp_path, ResourceClaim
    )
    kept = found.store["team", "one"].to_dict()
    assert kept["status"] == claim["status"]
    assert kept["metadata"]["annotations"] == {"note": ""}


def test_of_a_pod_only_what_is_needed_is_kept(tmp_path: Path) -> None:
    large = pod(
        "one", note="x" * 100_000,
        status={"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "rgpu.dev/Placed", "status": "False"},
        ], "startTime": YEAR_0},
        spec={
            "containers": [{"name": "main", "command": ["y" * 100_000]}],
            "schedulingGates": [{"name": "rgpu.dev/placement"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}],
        },
    )  # fmt: skip
    large["metadata"]["annotations"]["rgpu.dev/server"] = "gpu:7700"
    api = Api([large], [("ADDED", pod("end", 6))])
    found, heard = watched(api, tmp_path, needed=needed_of_pod)
    assert heard == [("", "one:1")]
    kept = found.store["team", "one"].to_dict()
    assert len(json.dumps(kept)) < 600
    assert kept["metadata"]["annotations"] == {"note": "", "rgpu.dev/server": "gpu:7700"}
    assert [one["type"] for one in kept["status"]["conditions"]] == ["rgpu.dev/Placed"]
    assert kept["spec"]["resourceClaims"] == large["spec"]["resourceClaims"]


def test_a_kind_that_the_server_does_not_have_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As the real one answers: a text, and no Status."""
    again = asyncio.Event()
    asked: list[str] = []

    def answer(handler: Handler) -> None:
        asked.append(handler.call)
        body = b"404 page not found\n"
        handler.send_response(404)
        handler.send_header("Content-Type", "text/plain; charset=utf-8")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        if len(asked) > 1:
            loop.call_soon_threadsafe(again.set)

    async def look(server: Server) -> None:
        async with server.client(tmp_path) as client:
            running = asyncio.ensure_future(Informer(client, ResourceClaim, namespace="*").run())
            try:
                await asyncio.wait_for(again.wait(), SECONDS)
            finally:
                await end([running])

    loop = asyncio.new_event_loop()
    with Server(answer) as server:
        loop.run_until_complete(look(server))
    loop.close()
    (said,) = [one.getMessage() for one in caplog.records if "not watched" in one.getMessage()]
    assert said == (
        "ResourceClaim are not watched now: the API server has no resourceclaims of "
        "resource.k8s.io/v1; Kubernetes 1.34 and later have them"
    )
