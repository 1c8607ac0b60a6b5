"""What containers get for a claim, as variables and mounts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from helpers import claims

from rgpu_cluster.kubelet.claims import ClaimName, allocated
from rgpu_cluster.kubelet.containers import Folders, devices_for
from rgpu_cluster.kubelet.credentials import Credential
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.pods import Use
from rgpu_cluster.kubelet.shelf import Held

UID = claims.uid()
NAME = ClaimName("team-a", "claim-1", UID)
DOCKERFILE = Path(__file__).parents[2] / "deploy" / "docker" / "Dockerfile"


def got(
    *devices: str, use: Use | None = None, authorities: bool = False
) -> dict[str, dict[str, str]]:
    """Returns the variables by request."""
    return {
        request: dict(row.split("=", 1) for row in edits["env"])
        for request, edits in edits_of(*devices, use=use, authorities=authorities).items()
    }


def edits_of(*devices: str, use: Use | None = None, authorities: bool = False) -> dict[str, Any]:
    found = allocated(NAME, claims.claim(1, *devices))
    held = [
        Held(pool, "agent:1", 0.0, Credential("t", 60.0, f"{pool}:7700", UID, "0"))
        for pool in found.pools
    ]
    folders = Folders("/lib/of/node", "/claims/of/node", authorities)
    return devices_for(found, use or Use(), held, folders)


def test_one_card() -> None:
    found = got("gpu:gpu7/gpu-3")[""]
    assert found["RGPU_SERVER"] == "gpu7:7700"
    assert found["RGPU_LEASE"] == UID
    assert found["RGPU_DEVICE"] == "3"
    assert found["RGPU_TOKEN_FILE"] == "/opt/rgpu.dev/credentials/0"
    assert found["LD_LIBRARY_PATH"] == "/opt/rgpu.dev/lib"
    assert "RGPU_TLS_CA" not in found


def test_mounts_are_read_only_folders() -> None:
    mounts = edits_of("gpu:gpu7/gpu-3")[""]["mounts"]
    assert {one["containerPath"]: one["hostPath"] for one in mounts} == {
        "/opt/rgpu.dev/lib": "/lib/of/node",
        "/opt/rgpu.dev/credentials": "/claims/of/node",
    }
    assert all("ro" in one["options"] for one in mounts)


def test_mounts_hide_nothing_of_rgpus_own_images() -> None:
    environment = re.search(r"python3 -m venv .*?(/\S+)", DOCKERFILE.read_text())
    assert environment
    for one in edits_of("gpu:gpu7/gpu-3")[""]["mounts"]:
        assert not Path(one["containerPath"]).is_relative_to(environment[1])


def test_several_cards_of_one_node() -> None:
    found = got("gpu:gpu7/gpu-3", "gpu:gpu7/gpu-1", "net:gpu7/net-mlx5-0")[""]
    assert (found["RGPU_SERVER"], found["RGPU_DEVICE"]) == ("gpu7:7700", "3,1")


def test_cards_of_several_nodes() -> None:
    found = got("gpu:gpu7/gpu-3", "gpu:gpu8/gpu-0")[""]
    assert "RGPU_SERVER" not in found
    assert "RGPU_TOKEN_FILE" not in found
    assert found["RGPU_DEVICE"] == "3@gpu7:7700,0@gpu8:7700"
    assert found["RGPU_LEASE"] == UID
    assert found["RGPU_TOKEN_FILES"] == (
        "gpu7:7700=/opt/rgpu.dev/credentials/0;gpu8:7700=/opt/rgpu.dev/credentials/1"
    )


def test_each_request_leads_to_its_own_card_and_lease() -> None:
    found = got("a:gpu7/gpu-3", "b:gpu8/gpu-0", "net:gpu7/net-0", use=Use(by_request=True))
    assert found.keys() == {"a", "b"}
    assert (found["a"]["RGPU_SERVER"], found["a"]["RGPU_LEASE"]) == ("gpu7:7700", UID)
    assert (found["b"]["RGPU_SERVER"], found["b"]["RGPU_LEASE"]) == ("gpu8:7700", f"{UID}.1")
    assert found["b"]["RGPU_TOKEN_FILE"] == "/opt/rgpu.dev/credentials/1"


def test_several_cards_of_a_later_request_are_refused() -> None:
    rows = ("a:gpu7/gpu-0", "b:gpu7/gpu-1", "b:gpu7/gpu-2")
    assert got(*rows)[""]["RGPU_DEVICE"] == "0,1,2"
    with pytest.raises(PrepareError, match="make it the first"):
        got(*rows, use=Use(by_request=True))
    assert got(rows[1], rows[2], rows[0], use=Use(by_request=True))["b"]["RGPU_DEVICE"] == "1,2"


def test_more_cards_than_a_program_can_have() -> None:
    with pytest.raises(PrepareError, match="at most 8 devices, not 9"):
        got(*(f"gpu:gpu7/gpu-{number}" for number in range(9)))


def test_what_the_containers_library_path_names_comes_behind_ours() -> None:
    found = got("gpu:gpu7/gpu-0", use=Use(libraries=("/a", "/opt/rgpu.dev/lib", "/b")))[""]
    assert found["LD_LIBRARY_PATH"] == "/opt/rgpu.dev/lib:/a:/b"


def test_authorities_for_servers_with_certificates() -> None:
    found = got("gpu:gpu7/gpu-0", authorities=True)[""]
    assert found["RGPU_TLS_CA"] == "/opt/rgpu.dev/credentials/ca.crt"
