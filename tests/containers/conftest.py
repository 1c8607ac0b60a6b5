"""One engine for all tests here, with images that are built once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.engine import ROOT, Engine, require
from helpers.needs import fixture_needs

SERVICES = ("proxy", "gpu-a", "report", "client-lan")


@pytest.fixture(scope="session")
@fixture_needs("containers")
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    require()
    secrets = tmp_path_factory.mktemp("secrets")
    make = [sys.executable, str(ROOT / "examples" / "cluster" / "make_secrets.py"), str(secrets)]
    subprocess.run(make, check=True, timeout=60)
    kept = request.config.getoption("--engine")
    # The images take some 4 GB, and /tmp may lie in memory.
    folder = Path(kept or tempfile.mkdtemp(prefix="rgpu-engine-", dir="/var/tmp")).resolve()
    engine = Engine(folder, secrets)
    try:
        yield engine
    finally:
        engine.close()
        if not kept:
            shutil.rmtree(folder)


@pytest.fixture(scope="session")
def wheel(engine: Engine) -> Path:
    """The wheel of this checkout that goes into the images: RGPU_WHEEL names one in dist, else it is
    built there.
    """
    given = os.environ.get("RGPU_WHEEL")
    if given:
        return (ROOT / given).resolve()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "dist"]
    subprocess.run([*build, "."], cwd=ROOT, check=True, timeout=900)
    return next((ROOT / "dist").glob("rgpu_cuda-*.whl"))


@pytest.fixture(scope="session")
def images(engine: Engine, wheel: Path) -> Engine:
    """The engine, once it has all images."""
    engine.use_prometheus()
    engine.build(SERVICES, wheel)
    engine.build_target("kubernetes", wheel)
    return engine
