"""docker-compose.yml and the Dockerfiles: what they say of each other, of this repository and of
what the demo runs must agree.  No engine is asked: `make demo-cluster` runs the same file.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.links import ROOT

DOCKER = ROOT / "deploy" / "docker"
OWN_PROGRAMS = {"server": ("rgpu",), "client": ("rgpu", "netprobe", "python"), "proxy": ("nginx",)}
FILES = [DOCKER / f"{name}.Dockerfile" for name in OWN_PROGRAMS]
UID = "65532"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = body["services"]
    return found


def steps(file: Path) -> list[tuple[str, str]]:
    """The instructions of a Dockerfile, lines joined, comments gone."""
    text = re.sub(r"^#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split()[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def stage(file: Path) -> list[tuple[str, str]]:
    """The instructions of the last stage."""
    found = steps(file)
    return found[max(i for i, (word, _) in enumerate(found) if word == "FROM") :]


def pinned(image: str) -> bool:
    """A tag with a version of three numbers, or of two where there are no more."""
    return re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z]+)*$", image) is not None


def test_the_demo_reads_every_word_of_it(services: dict[str, Any]) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "cluster"))
    try:
        import compose
    finally:
        sys.path.pop(0)
    project = compose.read(ROOT / "docker-compose.yml", {})
    assert {one.name for one in project.order()} == set(services)
    assert all(one.user == int(UID) for one in project.services)
    bad = {"privileged": True, "ports": ["1:1"], "user": "0:0", "read_only": False, "cap_drop": []}
    for key, value in bad.items():
        with pytest.raises(compose.ComposeError, match=key):
            compose._service("x", {**services["proxy"], key: value}, ROOT)


def test_networks_have_both_families_and_lead_nowhere(services: dict[str, Any]) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "cluster"))
    try:
        import compose
    finally:
        sys.path.pop(0)
    networks = compose.read(ROOT / "docker-compose.yml", {}).networks
    assert len({network.subnet for network in networks}) == len(networks) == 3
    assert all(network.subnet.is_private for network in networks)
    good = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["networks"]["lan"]
    for bad in ({"internal": False}, {"enable_ipv6": False}, {"driver": "macvlan"}, {"ipam": {}}):
        with pytest.raises(compose.ComposeError, match="lan"):
            compose._network("lan", {**good, **bad})
    for name in ("gpu-a", "gpu-b"):
        assert {"0.0.0.0:7700", "[::]:7700"} <= set(services[name]["command"])
    assert "listen [::]:8443" in (DOCKER / "nginx.conf").read_text()


def test_containers_have_no_right_that_they_do_not_need(services: dict[str, Any]) -> None:
    for name, body in services.items():
        assert body["user"] == f"{UID}:{UID}", name
        assert body["read_only"] is True, name
        assert body["cap_drop"] == ["ALL"], name
        assert body["security_opt"] == ["no-new-privileges:true"], name
        assert not {"ports", "privileged", "cap_add", "devices", "pid", "ipc"} & set(body), name


def test_every_file_that_it_names_is_here(services: dict[str, Any]) -> None:
    for name, body in services.items():
        if "build" in body:
            assert (ROOT / body["build"]["dockerfile"]).is_file(), name
        for mount in body.get("volumes", []):
            source = mount.split(":")[0]
            assert not source.startswith(".") or (ROOT / source).exists(), mount
        for word in (*body["command"], *body.get("entrypoint", [])):
            if word.startswith("/run/demo/"):
                assert (ROOT / "examples" / "cluster" / Path(word).name).is_file(), word


def test_secrets_come_as_files_to_those_who_need_them(services: dict[str, Any]) -> None:
    """Who shows a token has that one alone, and no variable or argument holds one."""
    for name, body in services.items():
        named = set(re.findall(r"/run/secrets/(\w+)", str(body)))
        for mount in body.get("volumes", []):
            source = ROOT / mount.split(":")[0]
            if mount.startswith("./") and source.is_file():
                named |= set(re.findall(r"/run/secrets/(\w+)", source.read_text()))
        assert named == set(body.get("secrets", [])), name
        assert "RGPU_TOKEN" not in body.get("environment", {}), name
    for name in ("gpu-a", "gpu-b"):
        assert "--insecure" not in services[name]["command"], name


def test_addresses_agree(services: dict[str, Any]) -> None:
    """Who connects where, and who listens there, on a network that both have."""
    listens: dict[str, set[str]] = {}
    for name, body in services.items():
        listens[name] = set(re.findall(r":(\d{4})\b", " ".join(body["command"])))
    listens["proxy"] = set(re.findall(r"listen (\d+)", (DOCKER / "nginx.conf").read_text()))
    asked = {
        "client-lan": [("gpu-b", "7700")],
        "client-outside": [("proxy", "8443")],
        "report": [("prometheus", "9090")],
        "proxy": re.findall(r"grpc://([\w-]+):(\d+)", (DOCKER / "nginx.conf").read_text()),
        "prometheus": re.findall(r"([\w-]+):(\d{4})", (DOCKER / "prometheus.yml").read_text()),
    }
    for name, targets in asked.items():
        assert targets, name
        for host, port in targets:
            assert port in listens[host], f"{name} asks {host}:{port}"
            assert set(services[name]["networks"]) & set(services[host]["networks"]), name
    assert services["client-local"]["network_mode"] == "none"
    assert set(services["client-outside"]["networks"]) == {"edge"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_images_are_pinned_and_without_root(file: Path, services: dict[str, Any]) -> None:
    for word, rest in steps(file):
        if word == "FROM":
            assert pinned(rest.split()[0]), rest
    last = stage(file)
    assert [rest for word, rest in last if word == "USER"] == [f"{UID}:{UID}"]
    assert last[-1][0] == "CMD"
    assert last[-1][1].startswith(f'["{OWN_PROGRAMS[file.stem][0]}"')
    used = [
        b for b in services.values() if b.get("build", {}).get("dockerfile", "").endswith(file.name)
    ]
    assert used
    for body in used:
        assert body["command"][0] in OWN_PROGRAMS[file.stem]


def test_other_images_are_pinned(services: dict[str, Any]) -> None:
    others = [body["image"] for body in services.values() if "build" not in body]
    assert others
    assert all(map(pinned, others))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_they_copy_is_in_the_context(file: Path) -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for word, rest in steps(file):
        if word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), rest
                assert not any(source.startswith(f"{one}/") for one in ignored), rest
    for needed in ("README.md", "LICENSE", "CMakeLists.txt", "rgpu_server", "cudaspec"):
        assert needed not in ignored


def test_packages_are_those_of_the_project() -> None:
    """The extras exist, and each package of theirs has one version that is written down."""
    project = (ROOT / "pyproject.toml").read_text()
    server = (DOCKER / "server.Dockerfile").read_text()
    extras = re.search(r"rgpu_cuda-\*\.whl\)\[([\w,]+)\]", server)
    assert extras
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, flags=re.MULTILINE), extra
    lines = (DOCKER / "constraints.txt").read_text().splitlines()[1:]
    versions = {re.split("==", line)[0].lower().replace("_", "-") for line in lines}
    assert all("==" in line for line in lines)
    wanted = re.findall(r"^(?:server|emu|dependencies) = \[([^\]]*)\]", project, flags=re.MULTILINE)
    names = re.findall(r'"([\w-]+)', " ".join(wanted))
    client = (DOCKER / "client.txt").read_text().splitlines()[1:]
    names += [re.split(r"[\[=<>]", line)[0] for line in client]
    assert set(names) - {"tomli"} <= versions


def test_the_programs_are_installed_here() -> None:
    """What the containers run is what the demo runs."""
    folder = Path(sys.executable).parent
    for name in ("rgpu", "netprobe", "python"):
        assert (folder / name).exists(), name
    path = f"{folder}:/usr/sbin:/usr/bin"
    missing = [name for name in ("nginx", "prometheus") if shutil.which(name, path=path) is None]
    assert not missing, f"install Debian's packages nginx-light and prometheus: no {missing}"
