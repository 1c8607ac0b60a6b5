"""The tests' helpers for a Kubernetes control plane, as benchmarks use them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))

from helpers.controlplane import find as find
from helpers.kube_deploy import apply as apply
from helpers.kubernetes import ControlPlane as ControlPlane
