"""The pytest plugin: with `--rgpu-emulated` or `--rgpu-server`, the tests use a device of rgpu.

pytest loads this module in every run. It imports nothing else of rgpu before an option asks for a
device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rgpu_client.lease import Lease
    from rgpu_client.testing import TestDevice

_DEVICE: pytest.StashKey[TestDevice] = pytest.StashKey()
_NONE = (
    "this test needs a GPU: give pytest --rgpu-emulated for an emulated device, or "
    "--rgpu-server=ADDRESS for a server's"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("rgpu", "tests on a GPU of another node, or on an emulated one")
    group.addoption(
        "--rgpu-emulated",
        action="store_true",
        help="start an emulated CUDA device for this run, and end it with the run",
    )
    group.addoption(
        "--rgpu-server", metavar="ADDRESS", help="use a device of this server, as gpu-node:7700"
    )
    group.addoption(
        "--rgpu-memory",
        metavar="SIZE",
        help="memory limit of each test process, as 2GiB (default: 1GiB of an emulated device, "
        "else the server's)",
    )
    group.addoption(
        "--rgpu-wait",
        metavar="SECONDS",
        help="how long a test process waits in line if the server has no room (default: 0)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Connects before a conftest.py can import a CUDA package."""
    options = early_config.known_args_namespace
    if options.rgpu_emulated or options.rgpu_server is not None:
        from rgpu_client.testing import TestDevice

        device = early_config.stash[_DEVICE] = TestDevice(options)
        early_config.add_cleanup(device.close)
        device.open_early()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Starts the one server of a run whose tests run in several processes."""
    device = config.stash.get(_DEVICE, None)
    if device is not None:
        device.open(config)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Says which device the tests use."""
    device = config.stash.get(_DEVICE, None)
    return None if device is None else f"rgpu: {device.words()}"


@pytest.fixture(scope="session")
def rgpu_lease(request: pytest.FixtureRequest) -> Lease:
    """The lease of this test process, as `rgpu_client.connect()` returns it.

    A test that asks for it is skipped in a run without a device of rgpu.
    """
    device = request.config.stash.get(_DEVICE, None)
    if device is None or device.lease is None:
        pytest.skip(_NONE)
    return device.lease
