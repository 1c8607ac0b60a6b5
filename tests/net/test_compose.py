"""docker-compose.yml and the Dockerfile must agree with each other, with this repository and with
the programs of the demo. No engine is used here: tests/containers builds and runs them.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.links import ROOT

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = DOCKER / "Dockerfile"
OWN_PROGRAMS = {
    "server": ("rgpu",),
    "client": ("rgpu", "netprobe", "python"),
    "client-demo": ("rgpu", "netprobe", "python"),
    "proxy": ("nginx",),
}
UID = "65532"
FILES = ("docker-compose.yml", "docker-compose.manager.yml")


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = body["services"]
    return found


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, lines joined, comments gone; "" has those before the first."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for line in filter(None, map(str.strip, text.splitlines())):
        word, rest = line.split(None, 1)
        if word == "FROM":
            found[rest.split(" AS ")[1]] = []
        found[list(found)[-1]].append((word, rest))
    return found


def pinned(image: str) -> bool:
    """A registry, a tag of one version, and the digest that the tag had."""
    return (
        re.fullmatch(r"docker\.io/[\w/]+:[\w.-]*\d[\w.-]*@sha256:[0-9a-f]{64}", image) is not None
    )


def test_the_demo_reads_every_word_of_it(services: dict[str, Any]) -> None:
    sys.path.insert(0, str(ROOT / "examples" / "cluster"))
    try:
        import compose
    finally:
        sys.path.pop(0)
    project = compose.read(ROOT / "docker-compose.yml", {})
    assert {one.name for one in project.order()} == set(services)
    assert all(one.user == int(UID) for one in project.services)
    bad = {
        "privileged": True, "ports": ["1:1"], "user": "0:0", "read_only": False, "cap_drop": [],
        "mem_limit": "much", "pids_limit": -1, "healthcheck": {},
    }  # fmt: skip
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


def services_of(file: str) -> dict[str, Any]:
    body: dict[str, Any] = yaml.safe_load((ROOT / file).read_text())
    return dict(body["services"])


@pytest.mark.parametrize("file", FILES)
def test_containers_have_no_right_that_they_do_not_need(file: str) -> None:
    for name, body in services_of(file).items():
        assert body["user"] == f"{UID}:{UID}", name
        assert body["read_only"] is True, name
        assert body["cap_drop"] == ["ALL"], name
        assert body["security_opt"] == ["no-new-privileges:true"], name
        assert not {"ports", "privileged", "cap_add", "devices", "pid", "ipc"} & set(body), name


@pytest.mark.parametrize("file", FILES)
def test_every_file_that_it_names_is_here(file: str) -> None:
    for name, body in services_of(file).items():
        if "build" in body:
            assert (ROOT / body["build"]["dockerfile"]).is_file(), name
        mounts = dict(mount.split(":")[1::-1] for mount in body.get("volumes", []))
        for source in mounts.values():
            assert not source.startswith(".") or (ROOT / source).exists(), source
        for word in (*body["command"], *body.get("entrypoint", [])):
            folder, _, script = word.rpartition("/")
            if script.endswith(".py"):
                assert (ROOT / mounts[folder] / script).is_file(), word


def test_secrets_come_as_files_to_those_who_need_them(services: dict[str, Any]) -> None:
    """A service that shows an access token has only that one, and no variable or argument holds one."""
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
    """Each service connects to a port at which the other service listens, on a network that both
    have.
    """
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


def test_every_service_has_a_health_check_and_limits(services: dict[str, Any]) -> None:
    for name, body in services.items():
        assert body["healthcheck"]["test"][0] == "CMD", name
        assert {"interval", "timeout", "retries"} <= set(body["healthcheck"]), name
        assert body["mem_limit"], name
        assert body["pids_limit"] > 0, name
        for other, how in body.get("depends_on", {}).items():
            assert how["condition"] == (
                "service_started" if other.startswith("client") else "service_healthy"
            ), name


def test_base_images_are_pinned_by_digest_and_replaceable(services: dict[str, Any]) -> None:
    default = next(rest for word, rest in stages()[""] if rest.startswith("BASE="))
    assert pinned(default.removeprefix("BASE="))
    for name, lines in stages().items():
        if name:
            base = lines[0][1].split(" AS ")[0]
            assert base == "${BASE}" or base in stages(), name
    others = {body["image"] for body in services.values() if "build" not in body}
    found = [re.fullmatch(r"\$\{RGPU_PROMETHEUS_IMAGE:-(.*)\}", image) for image in others]
    assert [match is not None and pinned(match[1]) for match in found] == [True]


@pytest.mark.parametrize("target", OWN_PROGRAMS)
def test_images_run_a_program_of_theirs_without_root(target: str, services: dict[str, Any]) -> None:
    lines = stages()[target]
    assert [rest for word, rest in lines if word == "USER"] == [f"{UID}:{UID}"]
    command = next(rest for word, rest in lines if word == "CMD")
    assert command.startswith(f'["{OWN_PROGRAMS[target][0]}"')
    used = [b for b in services.values() if b.get("build", {}).get("target") == target]
    assert used
    for body in used:
        assert body["command"][0] in OWN_PROGRAMS[target]
        assert body["image"] == f"rgpu-{target}"


def test_packages_have_a_layer_of_their_own() -> None:
    """The stages that install packages see the lists of packages and nothing else of this project."""
    lists = {"client-packages": "client", "server-packages": "server", "demo-packages": "demo"}
    for name, own in lists.items():
        copied = [rest for word, rest in stages()[name] if word == "COPY"]
        assert copied == [f"deploy/docker/{own}.txt /requirements/"], name
    for target, source in (
        ("client", "client-packages"), ("client-demo", "demo-packages"),
        ("server", "server-packages"),
    ):  # fmt: skip
        copied = [rest for word, rest in stages()[target] if word == "COPY"]
        assert copied == [
            f"--from={source} /opt/rgpu /opt/rgpu", "--from=rgpu /layer/opt/rgpu /opt/rgpu"
        ]  # fmt: skip


def test_what_is_copied_is_in_the_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    for lines in stages().values():
        for word, rest in lines:
            if word == "COPY" and not rest.startswith("--from="):
                source = rest.split()[0]
                assert (ROOT / source).exists(), rest
                assert not any(source.startswith(f"{one}/") for one in ignored), rest
    for needed in ("README.md", "LICENSE", "CMakeLists.txt", "rgpu_server", "cudaspec"):
        assert needed not in ignored


def test_the_pages_of_help_are_in_the_context() -> None:
    """A wheel that is built in the image installs them."""
    build = (ROOT / "CMakeLists.txt").read_text()
    listed = re.search(r"foreach\(page ([^)]*)\)", build)
    assert listed
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "docs/*" in lines
    kept = {line.removeprefix("!docs/") for line in lines if line.startswith("!docs/")}
    for page in listed[1].split():
        assert (ROOT / "docs" / f"{page}.md").exists()
        assert page.split("/")[0] in kept, page


def test_the_version_is_the_projects() -> None:
    project = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(rgpu VERSION (\S+) ", project, re.MULTILINE)
    assert version
    assert ("ARG", f"VERSION={version[1]}") in stages()[""]


def versions(name: str) -> dict[str, str]:
    """The packages of a list in deploy/docker, with their versions."""
    lines = (DOCKER / f"{name}.txt").read_text().splitlines()[1:]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", line) for line in lines), name
    pairs = (line.split("==") for line in lines)
    return {package.lower().replace("_", "-"): version for package, version in pairs}


def test_packages_are_those_of_the_project() -> None:
    """Each dependency in pyproject.toml has one pinned version."""
    project = (ROOT / "pyproject.toml").read_text()

    def asked(*fields: str) -> set[str]:
        found: set[str] = set()
        for field in fields:
            body = re.search(rf"^{field} = \[(.*?)\]$", project, re.MULTILINE | re.DOTALL)
            assert body, field
            found |= set(re.findall(r'"([\w-]+)', body[1]))
        return found - {"tomli", "rgpu-cuda"}

    assert asked("dependencies") <= versions("client").keys()
    assert asked("server", "emu") == versions("server").keys()
    assert asked("demo") <= versions("demo").keys()
    assert versions("server")["llvmlite"] == versions("demo")["llvmlite"]


def test_the_programs_are_installed_here() -> None:
    """The programs that the containers run are those that the demo runs."""
    folder = Path(sys.executable).parent
    for name in ("rgpu", "netprobe", "python"):
        assert (folder / name).exists(), name
