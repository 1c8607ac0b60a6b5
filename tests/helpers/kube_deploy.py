"""The manifests of deploy/kubernetes, applied to a control plane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from lightkube import Client, codecs

BASE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "base"


def apply(client: Client, *files: str, folder: Path = BASE) -> None:
    """Applies the objects of files, as `kubectl apply` does."""
    for file in files:
        with (folder / file).open() as text:
            for one in codecs.load_all_yaml(text):
                client.apply(one, field_manager="test", force=True)


def without_tls(objects: list[dict[str, Any]]) -> None:
    """Changes objects of `base` as `kubectl kustomize deploy/kubernetes/plain` does."""
    plain = BASE.parent / "plain"
    wanted = yaml.safe_load((plain / "kustomization.yaml").read_text())
    assert wanted["resources"] == ["../base"]
    for patch in wanted["patches"]:
        target = patch["target"]
        named = target["kind"], target["name"]
        for found in objects:
            if (found["kind"], found["metadata"]["name"]) == named:
                for change in yaml.safe_load((plain / patch["path"]).read_text()):
                    _change(found, change)


def _change(content: Any, change: dict[str, Any]) -> None:
    """Makes a change of RFC 6902 to what is there."""
    *path, last = change["path"].strip("/").split("/")
    for word in path:
        content = content[int(word) if isinstance(content, list) else word]
    place = int(last) if isinstance(content, list) else last
    _ = content[place]
    if change["op"] == "remove":
        del content[place]
    else:
        assert change["op"] == "replace"
        content[place] = change["value"]
