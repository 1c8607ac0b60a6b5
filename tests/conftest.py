"""Tests run against the installed package: the source folders must not hide it."""

import os
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
# A shell that starts pytest in the background has it ignore SIGINT, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Every run uses the same examples, unless RGPU_TEST_RANDOM asks for new ones.
settings.register_profile("same", derandomize=True)
settings.load_profile("default" if os.environ.get("RGPU_TEST_RANDOM") else "same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--run-compat", action="store_true", help="also run what `make compat` needs")
    parser.addoption(
        "--run-containers", action="store_true", help="also run tests/containers, as root"
    )
    parser.addoption("--engine", help="a folder where tests/containers keep images for a next run")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves tests/compat out unless asked for, because its programs are not in the [test]
    extra.
    """
    if "compat" in collection_path.relative_to(ROOT).parts and not config.getoption("--run-compat"):
        return True
    return None
