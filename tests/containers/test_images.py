"""The contents of the images that deploy/docker/Dockerfile makes."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from helpers.engine import ROOT, Engine

pytestmark = pytest.mark.timeout(1800)
IMAGES = ("server", "client", "client-demo", "kubernetes", "proxy")
MB = 1_000_000
MOST_BYTES = {"server": 350 * MB, "client": 250 * MB, "kubernetes": 400 * MB}
UID = "65532:65532"
# Prints, as JSON, the files that no image should have.
LOOK = """\
import json, os, stat
found = {"setuid": [], "tools": [], "caches": []}
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/dev")]
    for name in (*folders, *files):
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            found["setuid"].append(path)
        if folder.endswith("/bin") and name in ("pip", "pip3", "gcc", "g++", "cc", "make"):
            found["tools"].append(path)
        if folder.endswith("-packages") and name in ("pip", "setuptools"):
            found["tools"].append(path)
        if folder.startswith(("/var/lib/apt/lists", "/var/cache/apt", "/root/.cache")):
            found["caches"].append(path)
print(json.dumps(found))
"""
# Prints each requirement that is not met, for packages without extras.
NEEDS = """\
import re
from importlib.metadata import distributions
versions = {re.sub("[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in distributions()}
for package in distributions():
    for line in package.requires or ():
        name = re.match(r"[\\w.-]+", line)[0]
        if ";" not in line and re.sub("[-_.]+", "-", name).lower() not in versions:
            print(package.metadata["Name"], "needs", line)
"""


@pytest.mark.parametrize("name", MOST_BYTES)
def test_images_are_small(images: Engine, name: str) -> None:
    size = images.inspect(f"rgpu-{name}", "image")["Size"]
    print(f"rgpu-{name}: {size / MB:.0f} MB")
    assert size < MOST_BYTES[name]


@pytest.mark.parametrize("name", ["server", "client", "client-demo", "kubernetes"])
def test_images_hold_nothing_to_rise_or_to_build_with(images: Engine, name: str) -> None:
    words = ["run", "--rm", "--network=none", "--user=0:0", f"rgpu-{name}", "python3", "-c", LOOK]
    found = json.loads(images.podman(*words).stdout)
    assert found == {"setuid": [], "tools": [], "caches": []}


def test_the_proxy_holds_nothing_to_rise_with(images: Engine) -> None:
    look = ["find", "/", "-xdev", "-type", "f", "-perm", "/6000"]
    found = images.podman("run", "--rm", "--network=none", "--user=0:0", "rgpu-proxy", *look)
    assert found.stdout == ""


@pytest.mark.parametrize("name", IMAGES)
def test_images_say_what_they_are(images: Engine, name: str) -> None:
    config = images.inspect(f"rgpu-{name}", "image")["Config"]
    project = (ROOT / "CMakeLists.txt").read_text()
    version = re.search(r"^project\(rgpu VERSION (\S+) ", project, re.MULTILINE)
    assert version
    labels = {
        key.removeprefix("org.opencontainers.image."): value
        for key, value in config["Labels"].items()
        if key.startswith("org.opencontainers.image.")
    }
    assert labels.keys() >= {"description", "revision", "source"}
    assert labels["title"] == f"rgpu-{name}"
    assert labels["version"] == version[1]
    assert labels["licenses"] == "Apache-2.0"
    assert config["User"] == UID


@pytest.mark.parametrize("name", ["server", "client", "client-demo", "kubernetes"])
def test_every_package_has_what_it_needs(images: Engine, name: str) -> None:
    """The pinned versions are what rgpu and the packages themselves ask for."""
    words = ["run", "--rm", "--network=none", f"rgpu-{name}", "python3", "-c", NEEDS]
    assert images.podman(*words).stdout == ""


def test_a_change_of_rgpu_keeps_the_layer_of_its_packages(images: Engine, wheel: Path) -> None:
    before = images.inspect("rgpu-server", "image")
    name, version, rest = wheel.name.split("-", 2)
    changed = wheel.with_name(f"{name}-{version}-1changed-{rest}")
    shutil.copy(wheel, changed)
    try:
        with zipfile.ZipFile(changed, "a") as archive:
            archive.writestr("rgpu_server/changed.py", "CHANGED = True\n")
        images.build(["gpu-a"], changed)
        program = "import rgpu_server.changed, grpc, llvmlite"
        images.podman("run", "--rm", "--network=none", "rgpu-server", "python3", "-c", program)
        after = images.inspect("rgpu-server", "image")
    finally:
        changed.unlink()
        images.podman("tag", before["Id"], "localhost/rgpu-server:latest")
    assert after["RootFS"]["Layers"][:-1] == before["RootFS"]["Layers"][:-1]
    assert after["RootFS"]["Layers"][-1] != before["RootFS"]["Layers"][-1]


@pytest.mark.parametrize("command", ["manager", "gate-watchdog", "agent-node", "serve"])
def test_the_image_for_kubernetes_has_each_part(images: Engine, command: str) -> None:
    words = ["run", "--rm", "--network=none", "--read-only", "rgpu-kubernetes", "rgpu", command]
    assert f"usage: rgpu {command}" in images.podman(*words, "--help").stdout


def test_its_manager_says_how_to_reach_kubernetes(images: Engine) -> None:
    words = ["run", "--rm", "--network=none", "--read-only", "rgpu-kubernetes", "rgpu", "manager"]
    done = images.podman(*words, "--kubernetes", check=False)
    assert done.returncode != 0
    assert "name a kubeconfig file with --kubeconfig" in done.stderr
