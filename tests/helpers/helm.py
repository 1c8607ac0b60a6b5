"""The command `helm`, of `tests/kubernetes/helm`.

`python -m helpers.helm` in `tests` builds it, as `make k8s` does, and prints where it is.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from helpers.go_programs import GoProgram

PROGRAM = GoProgram(
    "helm",
    "helm",
    "helm.sh/helm/v4",
    "helm.sh/helm/v4/cmd/helm",
    ("helm.sh/helm/v4/internal/version.version={version}",),
)
KUBERNETES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
CHART = KUBERNETES / "chart"
_SECONDS = 120


class Helm:
    """folder: for all that helm keeps. kubeconfig: how it reaches a cluster, if it is to."""

    def __init__(self, file: Path, folder: Path, kubeconfig: str = "/dev/null") -> None:
        self._file = file
        folders = ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HELM_", "KUBE"))}
        self._environment = {
            **clean,
            **dict.fromkeys(folders, str(folder)),
            "KUBECONFIG": kubeconfig,
        }

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command; the test looks how it ended."""
        return subprocess.run(
            [str(self._file), *words], cwd="/", env=self._environment, capture_output=True,
            text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip

    def template(self, *words: str, chart: Path = CHART, namespace: str = "default") -> list[Any]:
        """Returns the objects of the chart. words: as `--set a=b`."""
        done = self.run(
            "template", "rgpu", str(chart), "--namespace", namespace, "--kube-version", "1.37.0", *words
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return [one for one in yaml.safe_load_all(done.stdout) if one]

    def refusal(self, *words: str, version: str = "1.37.0") -> str:
        """Returns why helm does not print the objects."""
        done = self.run("template", "rgpu", str(CHART), "--kube-version", version, *words)
        assert done.returncode != 0
        return done.stderr


if __name__ == "__main__":
    PROGRAM.main()
