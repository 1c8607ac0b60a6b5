"""`make demo-cluster` as a user runs it, and its leftovers when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.cluster import check_table
from helpers.ends import descendants
from helpers.links import NEEDED, ROOT
from helpers.needs import needs
from helpers.waiting import wait_until

pytestmark = needs(*NEEDED, "nginx", "openssl", "prometheus")
DEMO = [sys.executable, str(ROOT / "examples" / "cluster")]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Returns variables that put the demo's folder into the test's, so that others' are not
    mistaken for it.
    """
    return {**os.environ, "TMPDIR": str(tmp_path)}


@pytest.mark.soak
def test_each_client_gets_its_path_and_its_share(variables: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        DEMO, capture_output=True, text=True, timeout=170, check=False, cwd="/", env=variables
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert list(tmp_path.iterdir()) == []
    check_table(said)


def test_nothing_is_left_when_it_is_killed(variables: dict[str, str]) -> None:
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, text=True, cwd="/", env=variables) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "client-lan runs" in line:
                break
        there = descendants(demo.pid)
        demo.send_signal(signal.SIGKILL)
    assert len(there) > 20, "the containers were not there"
    wait_until(lambda: not [pid for pid in there if os.path.exists(f"/proc/{pid}")])


def test_it_ends_everything_when_it_is_told_to(variables: dict[str, str], tmp_path: Path) -> None:
    with subprocess.Popen(
        DEMO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/", env=variables
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "gpu-a is healthy" in line:
                break
        there = descendants(demo.pid)
        demo.send_signal(signal.SIGTERM)
        rest = demo.stdout.read()
    assert demo.returncode == 1
    assert "everything has ended" in rest
    assert "stopped" in rest
    wait_until(lambda: not [pid for pid in there if os.path.exists(f"/proc/{pid}")])
    assert list(tmp_path.iterdir()) == []
