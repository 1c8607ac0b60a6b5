"""One control plane for all tests here, and a namespace for each test."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import controlplane
from helpers.kube_objects import Space, device_class
from helpers.kubernetes import ControlPlane

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def built() -> Path:
    """The executable file with Kubernetes in it.  It is not built here: that takes minutes."""
    try:
        return controlplane.find()
    except controlplane.NoControlPlaneError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def plane(built: Path) -> Iterator[ControlPlane]:
    """A control plane as Kubernetes ships it: no feature gate is changed."""
    with ControlPlane(built) as plane:
        device_class(plane.client())
        yield plane


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
