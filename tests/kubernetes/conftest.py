"""One control plane for all tests here, and a namespace for each test."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import controlplane
from helpers.kube_objects import Space, device_class, install_crds
from helpers.kubernetes import ControlPlane
from helpers.needs import fixture_needs

HERE = Path(__file__).parent
DEPLOY = HERE.parents[1] / "deploy" / "kubernetes"
_NUMBERS = itertools.count(1)
_RUNNING: list[ControlPlane] = []


@pytest.fixture(scope="session")
@fixture_needs("controlplane")
def built() -> Path:
    """The executable file with Kubernetes in it.  It is not built here: that takes minutes."""
    return controlplane.find()


@pytest.fixture(scope="session")
def plane(built: Path) -> Iterator[ControlPlane]:
    """A control plane as Kubernetes ships it: no feature gate is changed."""
    with ControlPlane(built) as plane:
        device_class(plane.client())
        _RUNNING.append(plane)
        yield plane


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Ends the control plane behind the last test here.  It takes a tenth of a processor from the
    tests of other folders, which this process runs next.
    """
    if nextitem is None or HERE not in nextitem.path.parents:
        for plane in _RUNNING:
            plane.close()
        _RUNNING.clear()


@pytest.fixture(scope="session")
def crds(plane: ControlPlane) -> None:
    """All CRDs that are shipped, and served.  They stay: one that is made again serves late."""
    install_crds(plane.client(), DEPLOY.glob("*/*crds*.yaml"), DEPLOY.glob("crds/*.yaml"))


@pytest.fixture
def space(plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Space]:
    """A namespace of the test.  A test that fails shows what the control plane said."""
    space = Space(plane.client(), f"test-{next(_NUMBERS)}")
    space.open()
    failed = request.session.testsfailed
    yield space
    if request.session.testsfailed > failed:
        sys.stderr.write(plane.told())
    space.close()
