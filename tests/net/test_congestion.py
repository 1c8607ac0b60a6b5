"""Sessions choose their congestion control by how far the server is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from helpers.clients import environment
from helpers.command import WEAK_ISOLATION, rgpu_command
from helpers.figures import figures
from helpers.links import GBIT, MS, Namespace, Network, Shape
from helpers.waiting import wait_until

pytestmark = pytest.mark.measures

PORT = "7700"
LOCAL = {"cubic", "reno"}
PROGRAM = """
from helpers.driver import Driver
cuda = Driver()
cuda.open()
print("open", flush=True)
input()
"""


@pytest.fixture(scope="module")
def allowed(client: Namespace) -> set[str]:
    """Returns the algorithms that any user may choose here."""
    path = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"
    return set(client.run("cat", path).split())


@pytest.fixture(scope="module")
def serving(server: Namespace) -> Iterator[None]:
    words = [rgpu_command(), "serve", "--device", "emulated:1GiB", "--insecure", WEAK_ISOLATION]
    words += ["--no-socket"]
    command = server.command(*words, "--listen", f"0.0.0.0:{PORT}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        try:
            yield
        finally:
            process.terminate()


def controls(space: Namespace, address: str) -> list[str]:
    """Returns the algorithms of the open connections of `address` in a namespace."""
    known = LOCAL | {"bbr"}
    words = space.run("ss", "-tinH", "state", "established", "src", address).split()
    return [word for word in words if word in known]


@pytest.mark.usefixtures("serving")
@pytest.mark.parametrize("far", [False, True])
def test_a_long_way_is_not_taken_for_a_full_one(
    far: bool, network: Network, client: Namespace, server: Namespace, allowed: set[str]
) -> None:
    shape = Shape("far", 10 * MS, GBIT) if far else Shape("near", 0.2 * MS, GBIT)
    link = network.link(client, server, shape)
    wanted = {"bbr"} if far and "bbr" in allowed else LOCAL
    with subprocess.Popen(
        client.command(sys.executable, "-c", PROGRAM),
        env=environment(f"tcp:{link.b}:{PORT}"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        found = set()
        # Both lanes, at both ends.
        for space, address in ((client, link.a), (server, link.b)):
            wait_until(lambda space=space, address=address: len(controls(space, address)) == 2)
            found |= set(controls(space, address))
        program.communicate("\n", timeout=60)
    assert program.returncode == 0
    with figures():
        assert found <= wanted  # the ends measure the way
