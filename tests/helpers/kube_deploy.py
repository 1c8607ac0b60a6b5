"""The manifests of deploy/kubernetes, applied to a control plane."""

from __future__ import annotations

from pathlib import Path

from lightkube import Client, codecs

BASE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "base"


def apply(client: Client, *files: str, folder: Path = BASE) -> None:
    """Applies the objects of files, as `kubectl apply` does."""
    for file in files:
        with (folder / file).open() as text:
            for one in codecs.load_all_yaml(text):
                client.apply(one, field_manager="test", force=True)
