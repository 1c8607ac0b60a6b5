"""A container engine for tests: Debian's podman, in its own namespaces and its own folder.

Every podman command enters the same mount, PID and network namespaces. A waiting process keeps
these namespaces alive. However that process ends, the namespaces end with it, and so do containers,
mounts, bridges and packet filter rules. Images stay in the engine's folder.

If no registry answers, the base images are stand-ins. debootstrap makes a Debian like the official
slim image, and this machine's Prometheus is copied onto it. Packages come from the same places as
this machine's packages: apt's sources, pip's settings and the certificate authority are mounted
into each build and are in no image.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile"
COMPOSE_FILE = ROOT / "docker-compose.yml"
MANAGER_FILE = ROOT / "docker-compose.manager.yml"
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
COMMAND_SECONDS = 120.0
BUILD_SECONDS = 1200.0
_NEEDED = {
    "podman": "podman", "runc": "runc", "catatonit": "catatonit", "iptables": "iptables",
    "debootstrap": "debootstrap", "nsenter": "util-linux", "ip": "iproute2",
    "/usr/lib/podman/netavark": "netavark", "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "prometheus": "prometheus", "promtool": "prometheus", "openssl": "openssl",
}  # fmt: skip
_PATH = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Folders that the official slim images leave out.
_NOT_SLIM = (
    "usr/share/doc/", "usr/share/man/", "usr/share/info/", "usr/share/locale/",
    "var/cache/apt/", "var/lib/apt/lists/", "var/log/",
)  # fmt: skip
_PIP_OPTIONS = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout")


def require() -> None:
    """Asserts that an engine can be made here; the message names what is missing."""
    assert os.geteuid() == 0, "a container engine of one's own needs root: run this with sudo"
    missing = {package for name, package in _NEEDED.items() if not shutil.which(name, path=_PATH)}
    assert not missing, f"apt-get install --no-install-recommends {' '.join(sorted(missing))}"
    assert shutil.which("podman-compose", path=_PATH), "python -m pip install '.[containers]'"


class Engine:
    """podman and podman-compose.

    folder: for images and settings; it may be kept for the next run. secrets: the folder in which
    make_secrets.py has made the demo's secrets.
    """

    def __init__(self, folder: Path, secrets: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._configure()
        self._environment = {
            **os.environ,
            "PATH": _PATH,
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "RGPU_SECRETS": str(secrets),
        }
        # bash reaps the processes that podman leaves to the first process of a PID namespace.
        inside = "ip link set lo up && echo ready && read"
        self._keeper = subprocess.Popen(
            ["unshare", "--fork", "--kill-child=KILL", "--mount", "--mount-proc", "--pid", "--net",
             "--", "bash", "-c", inside],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"ready\n", "namespaces cannot be made here"
        children = Path(f"/proc/{self._keeper.pid}/task/{self._keeper.pid}/children").read_text()
        self._enter = ["nsenter", f"--target={children.split()[0]}", "--pid", "--mount"]

    def close(self) -> None:
        """Ends all processes; images stay."""
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        try:
            self._keeper.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper.stdout.close()
        _remove_cgroups()

    def podman(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self._run([*self._enter, "--net", "--", "podman", *words], COMMAND_SECONDS, check)

    def compose(self, file: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs podman-compose with a compose file, unchanged."""
        command = [*self._enter, "--net", "--", "podman-compose", "-f", str(file)]
        return self._run([*command, *words], COMMAND_SECONDS, True)

    def inspect(self, name: str, kind: str = "container") -> dict[str, Any]:
        found: list[dict[str, Any]] = json.loads(
            self.podman("inspect", "--type", kind, name).stdout
        )
        return found[0]

    def interfaces(self) -> list[str]:
        """Returns the network interfaces in the namespace beside the containers' own."""
        shown = self._run([*self._enter, "--net", "--", "ip", "-json", "link"], 10, True)
        return [link["ifname"] for link in json.loads(shown.stdout)]

    def build(self, services: Sequence[str], wheel: Path) -> None:
        """Builds the images of services with podman-compose. wheel: a file below ROOT."""
        where = wheel.relative_to(ROOT)
        command = [*self._enter, "--", "podman-compose", "-f", str(COMPOSE_FILE), "--parallel=1"]
        command += [f"--podman-build-args={shlex.join(self._from_this_machine)}", "build"]
        command += ["--build-arg", f"BASE={self._base}", "--build-arg", f"WHEEL={where}"]
        self._run([*command, *services], BUILD_SECONDS, True)

    def build_target(self, target: str, wheel: Path) -> None:
        """Builds the image `rgpu-TARGET` of a target that docker-compose.yml does not name."""
        values = (f"BASE={self._base}", f"WHEEL={wheel.relative_to(ROOT)}")
        words = [word for value in values for word in ("--build-arg", value)]
        where = ("-f", str(DOCKERFILE), "--target", target, "-t", f"localhost/rgpu-{target}")
        self._build(*words, *where, str(ROOT))

    def use_prometheus(self) -> None:
        """Pulls the Prometheus image of docker-compose.yml, or builds and names a stand-in."""
        found = re.search(r"RGPU_PROMETHEUS_IMAGE:-([^}]+)\}", COMPOSE_FILE.read_text())
        assert found
        if self._pull(found[1]):
            return
        image = "localhost/rgpu-prometheus:stand-in"
        context = self._folder / "prometheus"
        context.mkdir(exist_ok=True)
        for name in ("prometheus", "promtool"):
            shutil.copy(shutil.which(name, path=_PATH) or name, context / name)
        steps = f"FROM {self._base}\nCOPY prometheus promtool /bin/\n"
        (context / "Dockerfile").write_text(steps)
        self._build("-t", image, str(context))
        self._environment["RGPU_PROMETHEUS_IMAGE"] = image

    @cached_property
    def _base(self) -> str:
        """The base image that the Dockerfile names, or a stand-in for it."""
        found = re.search(r"^ARG BASE=(\S+)", DOCKERFILE.read_text(), flags=re.MULTILINE)
        assert found
        if self._pull(found[1]):
            return found[1]
        image = f"localhost/debian:{SUITE}-stand-in"
        if self.podman("image", "exists", image, check=False).returncode != 0:
            archive = self._folder / "root.tar"
            _bootstrap(self._folder / "root", archive, _apt_sources())
            self.podman("import", "--change", 'CMD ["bash"]', str(archive), image)
            archive.unlink()
        return image

    def _pull(self, image: str) -> bool:
        command = [*self._enter, "--", "podman", "pull", "--quiet", image]
        return self._run(command, COMMAND_SECONDS, False).returncode == 0

    def _build(self, *words: str) -> None:
        command = [*self._enter, "--", "podman", "build", *self._from_this_machine, *words]
        self._run(command, BUILD_SECONDS, True)

    @cached_property
    def _from_this_machine(self) -> list[str]:
        """Options of `podman build`: this machine's network, and apt's and pip's settings. The
        docker format is needed for health checks.
        """
        shown = self._run(["apt-config", "dump", "Acquire"], 10, True).stdout
        proxies = [line for line in shown.splitlines() if re.match(r"Acquire::https?::Proxy", line)]
        pip = _pip_options()
        authority = pip.pop("cert", os.environ.get("SSL_CERT_FILE", ""))
        mounts = {}
        if authority:
            mounts["/run/authority.pem"] = Path(authority)
            pip["cert"] = "/run/authority.pem"
            proxies.append('Acquire::https::CAInfo "/run/authority.pem";')
        if sources := _apt_sources():
            mounts["/etc/apt/sources.list.d/debian.sources"] = self._folder / "debian.sources"
            (self._folder / "debian.sources").write_text("".join(map(_stanza, sources)))
        mounts["/etc/apt/apt.conf.d/99machine"] = self._folder / "apt.conf"
        (self._folder / "apt.conf").write_text("\n".join([*proxies, ""]))
        mounts["/etc/pip.conf"] = self._folder / "pip.conf"
        lines = [f"{key} = {value}" for key, value in pip.items()]
        (self._folder / "pip.conf").write_text("\n".join(["[global]", *lines, ""]))
        shared = [f"--volume={source}:{target}:ro" for target, source in mounts.items()]
        return ["--network=host", "--format=docker", *shared]

    def _run(
        self, command: list[str], seconds: float, check: bool
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False,
            env=self._environment, cwd=ROOT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert not check or done.returncode == 0, (
            f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
        )
        return done

    def _configure(self) -> None:
        """Configures a separate store, locks and networks.

        runc is used because crun 1.8 refuses a machine that has both versions of control groups.
        The limits of open files and processes are named because podman would otherwise raise them,
        which a root without CAP_SYS_RESOURCE may not do.
        """
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        processes = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        processes = most if processes == resource.RLIM_INFINITY else min(most, processes)
        folder = self._folder
        (folder / "containers.conf").write_text(f"""\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/run/libpod"
""")
        (folder / "storage.conf").write_text(f"""\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run/storage"
""")


def _apt_sources() -> list[tuple[str, str, str]]:
    """Returns where apt of this machine finds Debian, as (address, suite, component); nothing on
    another release.
    """
    wanted = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", wanted, "Created-By: Packages"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    found = (line.split() for line in dict.fromkeys(shown.splitlines()))
    suites = (SUITE, f"{SUITE}-updates", f"{SUITE}-security")
    return [(uri, suite, part) for uri, suite, part in found if suite in suites and part == "main"]


def _stanza(source: tuple[str, str, str]) -> str:
    address, suite, part = source
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    return (
        f"Types: deb\nURIs: {address}\nSuites: {suite}\nComponents: {part}\nSigned-By: {keys}\n\n"
    )


def _bootstrap(root: Path, archive: Path, sources: list[tuple[str, str, str]]) -> None:
    """Makes an archive of a Debian without the folders that the slim images leave out."""
    mirror = next((address for address, suite, _ in sources if suite == SUITE), MIRROR)
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(
        ["debootstrap", "--variant=minbase", SUITE, str(root), mirror],
        capture_output=True, text=True, check=False, timeout=BUILD_SECONDS,
        env={**os.environ, "PATH": _PATH},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr

    def slim(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        inside = entry.name.removeprefix("./")
        return None if inside.startswith(_NOT_SLIM) and not entry.isdir() else entry

    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".", filter=slim)
    shutil.rmtree(root)


def _pip_options() -> dict[str, str]:
    """Returns how pip of this machine reaches its index. A variable overrides a file."""
    shown = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    found = re.findall(r"^(:env:|global|install)\.([\w-]+)='(.*)'$", shown, flags=re.MULTILINE)
    found.sort(key=lambda row: row[0] == ":env:")
    return {key: value for _, key, value in found if key in (*_PIP_OPTIONS, "cert")}


def _remove_cgroups() -> None:
    """Removes the empty control groups that podman leaves. The system refuses for those in use."""
    for parent in Path("/sys/fs/cgroup").glob("**/libpod_parent"):
        for folder in [*sorted(parent.glob("**/"), reverse=True), parent]:
            with contextlib.suppress(OSError):
                folder.rmdir()
