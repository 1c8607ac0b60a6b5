"""The authority that pods are told with their server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from helpers import pki

from rgpu_cluster.kubernetes.authority import MOST_BYTES, with_authority
from rgpu_cluster.kubernetes.names import AUTHORITY, SERVER

TOLD = {SERVER: "tls:10.0.0.7:7700"}


def test_a_pod_is_told_the_authority_with_its_server() -> None:
    file = pki.folder() / "ca.pem"
    said = with_authority(TOLD, {"RGPU_TLS_CA": str(file)})
    assert said == {**TOLD, AUTHORITY: file.read_text()}
    assert with_authority({}, {"RGPU_TLS_CA": str(file)}) == {}
    assert with_authority(TOLD, {}) == TOLD


def test_another_file_in_its_place_counts_at_once(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    for name in ("ca", "stranger/ca"):
        file.write_bytes((pki.folder() / f"{name}.pem").read_bytes())
        assert with_authority(TOLD, {"RGPU_TLS_CA": str(file)})[AUTHORITY] == file.read_text()


@pytest.mark.parametrize("kind", ["missing", "key", "large", "other", "binary"])
def test_what_is_no_authority_is_told_to_no_pod(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    certificate = (pki.folder() / "ca.pem").read_bytes()
    text = {
        "key": certificate + (pki.folder() / "ca.key").read_bytes(),
        "large": certificate * (MOST_BYTES // len(certificate) + 1),
        "other": b"no certificate",
        "binary": certificate + b"\xff",
    }
    file = tmp_path / "ca.crt"
    if kind in text:
        file.write_bytes(text[kind])
    with caplog.at_level(logging.ERROR):
        assert with_authority(TOLD, {"RGPU_TLS_CA": str(file)}) == TOLD
    assert f"RGPU_TLS_CA: {file} " in caplog.text
    assert "PRIVATE" not in caplog.text
