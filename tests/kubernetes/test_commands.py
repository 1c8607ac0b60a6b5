"""The programs take the arguments and the configuration that deploy/kubernetes gives them."""

from __future__ import annotations

import os
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.command import WEAK_ISOLATION, rgpu_command
from helpers.ends import stopped
from helpers.kube_deploy import BASE, without_tls
from helpers.made_secrets import MadeSecrets
from helpers.manager import ManagerProcess
from helpers.needs import fixture_needs
from helpers.ports import free_port
from helpers.telling import Telling
from helpers.waiting import wait_until

from netprobe.prober import ProbeBudget
from netprobe.survey import survey

DEPLOY = BASE.parent
SECONDS = 60
NAMES = {"$(NODE_NAME)": "gpu7", "$(NODE_IP)": "127.0.0.1"}


def written(file: str, kind: str) -> dict[str, Any]:
    """Returns the one object of this kind of a file."""
    rows = yaml.safe_load_all((DEPLOY / file).read_text())
    (found,) = (one for one in rows if one and one["kind"] == kind)
    return dict(found)


class Serving(Telling):
    """`rgpu serve` as a GPU node runs it, but for ports, folders and the device.

    more: further arguments. config: takes the place of the manifests' own. plain: without TLS.
    """

    def __init__(
        self, folder: Path, manager: str, more: list[str], config: str, plain: bool
    ) -> None:
        node = written("base/gpu-node.yaml", "DaemonSet")
        if plain:
            without_tls([node])
        pod = node["spec"]["template"]["spec"]
        (server,) = (one for one in pod["containers"] if one["name"] == "server")
        config = config or written("base/gpu-node.yaml", "ConfigMap")["data"]["rgpu.toml"]
        self.port, self.metrics = free_port(), free_port()
        changes = {
            **NAMES, "tls:rgpu-manager.rgpu-system:7710": manager,
            "rgpu-manager.rgpu-system:7710": manager, ":7700": f":{self.port}",
            ":7709": f":{self.metrics}", "/run/secrets/": f"{folder}/secrets/",
            "/run/rgpu": str(folder), "/var/lib/rgpu": str(folder), "/etc/rgpu": str(folder),
        }  # fmt: skip
        (folder / "rgpu.toml").write_text(_changed(config, changes))
        changes["--device=cuda"] = "--device=emulated:1GiB"
        words = [_changed(one, changes) for one in (*server["args"][1:], *more)]
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [rgpu_command(), *words, WEAK_ISOLATION],
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **_set(server, changes)},
            )  # fmt: skip
        wait_until(
            lambda: self.process.poll() is not None or "rgpu: serving" in self.told(), SECONDS
        )

    def told(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        stopped(self.process, seconds=SECONDS)


def _set(container: dict[str, Any], changes: dict[str, str]) -> dict[str, str]:
    """Returns the variables that a container gets as they stand there."""
    mine = (one for one in container["env"] if "value" in one)
    return {one["name"]: _changed(one["value"], changes) for one in mine}


def _changed(text: str, changes: dict[str, str]) -> str:
    for one, other in changes.items():
        text = text.replace(one, other)
    return text


@pytest.fixture
@fixture_needs("openssl")
def folder(tmp_path: Path) -> Path:
    """What the volumes of a GPU node have."""
    (tmp_path / "pod-keys.json").write_text('{"keys": []}')
    MadeSecrets(tmp_path).make("rgpu-system", "rgpu")
    new_token(tmp_path / "secrets" / "rgpu", "prometheus")
    return tmp_path


def new_token(folder: Path, tenant: str) -> None:
    words = ("--file", f"{folder}/{tenant}.token", "--tokens", f"{folder}/tokens.toml")
    subprocess.run([rgpu_command(), "token", "new", tenant, *words], check=True, timeout=SECONDS)


@contextmanager
def serving(
    folder: Path, more: list[str], config: str, plain: bool = False
) -> Iterator[tuple[Serving, ManagerProcess]]:
    secrets = folder / "secrets"
    words = ["--tokens", f"{secrets}/rgpu/tokens.toml"]
    asks = {"RGPU_TOKEN_FILE": f"{secrets}/rgpu/prometheus.token"}
    if not plain:
        files = secrets / "rgpu-tls-manager"
        words += ["--tls-cert", f"{files}/tls.crt", "--tls-key", f"{files}/tls.key"]
        asks["RGPU_TLS_CA"] = f"{files}/ca.crt"
    scheme = "" if plain else "tls:"
    with (
        ManagerProcess(*words, scheme=scheme, **asks) as manager,
        # By the name of its host, as the manifests name that of its Service.
        Serving(
            folder, manager.address.replace("127.0.0.1", "localhost"), more, config, plain
        ) as server,
    ):
        assert server.process.poll() is None, server.told()
        yield server, manager


def test_a_gpu_node_of_the_manifests_serves_and_joins(folder: Path) -> None:
    with serving(folder, [], "") as (server, manager):
        manager.has("gpu7")
        assert f"on tls:0.0.0.0:{server.port}" in server.told()
        (node,) = manager.pool()["nodes"]
        assert node["address"] == f"tls:127.0.0.1:{server.port}"
        # The manager's name is that of its Service, and a GPU node's is one that all have.
        authority = {"RGPU_TLS_CA": f"{folder}/secrets/rgpu-tls/ca.crt"}
        shown = {**authority, "RGPU_TOKEN_FILE": f"{folder}/secrets/rgpu/prometheus.token"}
        found = devices(server, {**shown, "RGPU_TLS_NAME": "rgpu-gpu-node"})
        assert "not valid here" in found.stderr  # it knows pods alone
        assert "is not for '127.0.0.1'" in devices(server, shown).stderr
        # As another GPU node does that measures the path to this one.
        known = {**authority, "RGPU_TLS_NAME": "rgpu-gpu-node"}
        with pytest.MonkeyPatch.context() as patch:
            for name, text in known.items():
                patch.setenv(name, text)
            paths = survey(node["address"], budget=ProbeBudget(seconds=0.1)).paths
        measured = {one.uri.partition(":")[0] for one in paths if one.round_trip is not None}
        assert "tls" in measured
        # This server is on the same machine. No other path leads to one elsewhere.
        assert measured <= {"tls", "shm", "unix"}


def test_a_gpu_node_without_tls_serves_and_joins(folder: Path) -> None:
    with serving(folder, [], "", plain=True) as (server, manager):
        manager.has("gpu7")
        assert f"on 0.0.0.0:{server.port}" in server.told()


def devices(server: Serving, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [rgpu_command(), "devices", "--server", f"tls:127.0.0.1:{server.port}"]
    return subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip


def test_prometheus_reads_the_metrics_of_a_gpu_node(folder: Path) -> None:
    values = yaml.safe_load((DEPLOY / "autoscaling" / "values.yaml").read_text())
    mine = values["gpuNodes"]["server"]
    with serving(folder, mine["args"], mine["config"]) as (server, _):
        url = f"http://127.0.0.1:{server.metrics}/metrics"
        shown = (folder / "secrets" / "rgpu" / "prometheus.token").read_text().strip()
        ask = urllib.request.Request(url, headers={"Authorization": f"Bearer {shown}"})
        with urllib.request.urlopen(ask, timeout=SECONDS) as answer:
            assert b"rgpu_device_leases" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=SECONDS)


KUBECTL = """#!/bin/sh
case "$1" in
get) cat "$SECRET" ;;
patch) for last; do :; done; echo "$last" > "$PATCH" ;;
esac
"""


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that reads and keeps the Secret as files."""
    file = tmp_path / "bin" / "kubectl"
    file.parent.mkdir()
    file.write_text(KUBECTL)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    rgpu = Path(rgpu_command()).parent
    monkeypatch.setenv("PATH", f"{file.parent}:{rgpu}:{os.environ['PATH']}")
    monkeypatch.setenv("SECRET", str(tmp_path / "secret"))
    monkeypatch.setenv("PATCH", str(tmp_path / "patch"))
    return tmp_path


def add_token(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DEPLOY / "add-token.sh"), "team", str(folder / "team.token")], capture_output=True,
        text=True, timeout=SECONDS, check=False,
    )  # fmt: skip


def test_a_token_is_added_to_those_that_there_are(kubectl: Path) -> None:
    new_token(kubectl, "nodes")
    encode = ["base64", "-w0", str(kubectl / "tokens.toml")]
    done = subprocess.run(encode, capture_output=True, check=True, timeout=SECONDS)
    (kubectl / "secret").write_bytes(done.stdout)
    ended = add_token(kubectl)
    assert ended.returncode == 0, ended.stderr
    text = yaml.safe_load((kubectl / "patch").read_text())["data"]["tokens.toml"]
    decode = ["base64", "-d"]
    made = subprocess.run(decode, input=text.encode(), capture_output=True, check=True, timeout=60)
    tenants = [x for x in made.stdout.decode().splitlines() if x.startswith("tenant")]
    assert tenants == ['tenant = "nodes"', 'tenant = "team"']
    assert stat.S_IMODE((kubectl / "team.token").stat().st_mode) == 0o600


def test_no_token_is_lost_if_the_secret_cannot_be_read(kubectl: Path) -> None:
    (kubectl / "secret").touch()
    ended = add_token(kubectl)
    assert ended.returncode == 1
    assert "make it with make-secrets.sh" in ended.stderr
    assert not (kubectl / "patch").exists()
