"""The node's Python environment lies in a folder that only root may open, as root's home is. A
worker reads nothing from it after it has its own user.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.needs import needs
from helpers.server import Server, patient_server

pytestmark = pytest.mark.full

PROGRAMS = {
    "arrays": """
        import rgpu_client.cupy as cp
        print(float(cp.linalg.norm(cp.fft.ifft(cp.fft.fft(cp.asarray([3.0, 4.0]))).real)))
        random = cp.random.default_rng(1)
        print(random.standard_normal(9).shape, cp.random.rand(2, 3).shape)
        print(cp.polyfit(cp.arange(4.0), cp.arange(4.0), 1).round().tolist())
    """,
    "scipy": """
        import rgpu_client.cupy as cp
        from rgpu_client.cupyx.scipy import ndimage, signal, special
        print(ndimage.gaussian_filter(cp.ones((9, 9)), 1).shape)
        print(signal.fftconvolve(cp.ones(9), cp.ones(3)).shape, float(special.erf(cp.zeros(1))[0]))
    """,
    "kernel": """
        import rgpu_client.cupy as cp
        double = cp.ElementwiseKernel("T x", "T y", "y = x * 2", "twice")
        print(int(double(cp.arange(5)).sum()))
    """,
    "error": """
        import numpy as np
        import rgpu_client.cupy as cp
        try:
            float(cp.linalg.inv(cp.zeros((3, 3)))[0, 0])
        except np.linalg.LinAlgError as error:
            print(error)
    """,
    "torch": """
        import rgpu_client.torch, torch
        a = torch.eye(4, device="rgpu") * 2
        print(float(torch.linalg.det(a)), float((a @ a).exp().log().sum()))
        layer = torch.nn.Conv2d(1, 2, 3).to("rgpu")
        layer(torch.ones(1, 1, 8, 8, device="rgpu")).sum().backward()
        points = torch.rand(4, 2, device="rgpu", requires_grad=True)
        torch.cdist(points, points.detach() + 1).sum().backward()
        print(points.grad.shape, layer.weight.grad.shape, torch.randn(3, device="rgpu").shape)
    """,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="rgpu-test-") as folder:
        # mkdtemp gave it the mode 0700.
        home = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
        packages = home / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
        packages.rmdir()
        packages.symlink_to(sysconfig.get_path("purelib"))
        with patient_server(before=(str(home / "bin" / "python"),)) as one:
            yield one


@needs("root")  # only root can give a worker another user, who may not read a folder
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs("torch") if name == "torch" else ()) for name in PROGRAMS],
)
def test_programs_run(server: Server, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAMS[name])], cwd="/", text=True,
        env=clients.environment(server.unix), capture_output=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
