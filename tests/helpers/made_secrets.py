"""The Secrets that deploy/kubernetes/make-secrets.sh makes, as folders of files."""

from __future__ import annotations

import base64
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from helpers.command import rgpu_command
from helpers.kube_deploy import BASE
from rgpu_server.identity.tls_cli import Authority

SCRIPT = BASE.parent / "make-secrets.sh"
SECONDS = 60
# What the script asks of kubectl, with the Secrets of a cluster as folders.
_KUBECTL = f"""#!{sys.executable}
import base64, json, os, re, sys
from pathlib import Path
words = sys.argv[1:]
if words[0] == "get":
    name = words[2]
    key = re.search(r"jsonpath={{\\.data\\.(.+)}}$", words[-1])[1].replace("\\\\", "")
    file = Path(os.environ["SECRETS"]) / name / key
    if os.environ.get("UNREACHABLE"):
        sys.exit("the server does not answer")
    if file.exists():
        print(base64.b64encode(file.read_bytes()).decode(), end="")
    sys.exit()
assert words[:2] == ["create", "secret"] and "--dry-run=client" in words, words
given, options = {{}}, dict(w.lstrip("-").split("=", 1) for w in words if w.startswith("--") and "=" in w and not w.startswith("--from-file"))
for word in words:
    if word.startswith("--from-file="):
        key, _, file = word.removeprefix("--from-file=").rpartition("=")
        given[key or Path(file).name] = Path(file).read_bytes()
if words[2] == "tls":
    given = {{"tls.crt": Path(options["cert"]).read_bytes(), "tls.key": Path(options["key"]).read_bytes()}}
kind = "kubernetes.io/tls" if words[2] == "tls" else options.get("type", "Opaque")
namespace = words[words.index("--namespace") + 1]
print(json.dumps({{
    "apiVersion": "v1", "kind": "Secret", "type": kind,
    "metadata": {{"name": words[3], "namespace": namespace}},
    "data": {{key: base64.b64encode(text).decode() for key, text in given.items()}},
}}))
"""


class MadeSecrets:
    """`make` does what `make-secrets.sh WORDS | kubectl apply -f -` does. folder: has the Secrets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "secrets"
        self.folder.mkdir()
        self._bin = folder / "bin"
        self._bin.mkdir()
        kubectl = self._bin / "kubectl"
        kubectl.write_text(_KUBECTL)
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self._bin}:{Path(rgpu_command()).parent}:{os.environ['PATH']}"
        return subprocess.run(
            [str(SCRIPT), *words], capture_output=True, text=True, timeout=SECONDS, check=False,
            env={**os.environ, "PATH": path, "SECRETS": str(self.folder), **environment},
        )  # fmt: skip

    def make(self, *words: str) -> None:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        for one in yaml.safe_load_all(done.stdout):
            if one is not None:
                self.put(one)

    def put(self, secret: dict[str, object]) -> None:
        """Writes a Secret as the kubelet mounts it."""
        metadata, data = secret["metadata"], secret["data"]
        assert isinstance(metadata, dict)
        assert isinstance(data, dict)
        folder = self.folder / metadata["name"]
        folder.mkdir(exist_ok=True)
        (folder / ".type").write_text(f"{secret['type']} in {metadata['namespace']}")
        for key, text in data.items():
            (folder / key).write_bytes(base64.b64decode(text))

    def renew(self) -> None:
        """Puts another certificate of the GPU nodes into its Secret, and its key."""
        with tempfile.TemporaryDirectory() as folder:
            for key, name in (("tls.crt", "ca.pem"), ("tls.key", "ca.key")):
                there = self.folder / "rgpu-tls-authority" / key
                (Path(folder) / name).write_bytes(there.read_bytes())
            Authority(Path(folder)).server(["rgpu-gpu-node"])
            for key, name in (("tls.crt", "server.pem"), ("tls.key", "server.key")):
                (self.folder / "rgpu-tls" / key).write_bytes((Path(folder) / name).read_bytes())

    @property
    def variables(self) -> dict[str, str]:
        """By which programs and parts of rgpu know the servers."""
        authority = str(self.folder / "rgpu-tls" / "ca.crt")
        return {"RGPU_TLS_CA": authority, "RGPU_TLS_NAME": "rgpu-gpu-node"}

    def options(self, secret: str) -> tuple[str, ...]:
        """Returns the options of who serves with a certificate."""
        folder = self.folder / secret
        return "--tls-cert", str(folder / "tls.crt"), "--tls-key", str(folder / "tls.key")

    def files(self) -> dict[str, bytes]:
        """Returns the content of every file, by its path in the folder."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}
