"""A session for which the driver compiles is shown as such while it lasts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.command import rgpu_command
from helpers.server import Server
from helpers.waiting import wait_until

SHOWN = re.compile(r" compiling +driver +python[0-9.]* -c$", re.MULTILINE)
# Each kernel is another one, so none comes out of the cache, and takes a while to compile.
COMPILE = """
def kernel(number):
    lines = "\\n".join(
        f"ld.global.f32 %f1, [%rd1+{4 * i}]; fma.rn.f32 %f1, %f1, %f1, 0f{number + i:08x}; "
        f"st.global.f32 [%rd1+{4 * i}], %f1;" for i in range(400)
    )
    return f'''.version 7.0
.target sm_70
.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .f32 %f<2>; .reg .b64 %rd<2>;
ld.param.u64 %rd1, [p];
{lines}
ret; }}
'''.encode()
cuda.open()
place = cuda.alloc(4096)
print("open", flush=True)
wait_for_line()
for number in range(100000):
    cuda.launch(cuda.function(cuda.load(kernel(number)), "k"), 1, 1, place)
    cuda.synchronize()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:256MiB") as running:
        yield running


def rgpu(server: Server, *words: str) -> str:
    return subprocess.run(
        [rgpu_command(), *words, "--server", server.tcp],
        cwd="/", check=True, capture_output=True, text=True, timeout=60,
    ).stdout  # fmt: skip


def compiling(server: Server) -> tuple[bool, int]:
    """Returns whether the one session compiles by `rgpu ps`, and the number by `rgpu top`."""
    (session,) = json.loads(rgpu(server, "ps", "--json"))["sessions"]
    (lease,) = json.loads(rgpu(server, "top", "--json"))["leases"]
    return session["compiling"], lease["compiling"]


@pytest.mark.full
def test_a_session_is_seen_to_compile_as_long_as_it_does(server: Server) -> None:
    client = clients.start(server.tcp, COMPILE)
    try:
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline() == "open\n"
        assert compiling(server) == (False, 0)
        client.stdin.write("go\n")
        client.stdin.flush()
        wait_until(lambda: compiling(server)[0], 60)
        wait_until(lambda: compiling(server)[1] == 1, 60)
        wait_until(lambda: SHOWN.search(rgpu(server, "ps")) is not None, 60)
        wait_until(lambda: "1 compiling" in rgpu(server, "top", "--once"), 60)
    finally:
        client.kill()
        client.communicate()
    # A worker that ends while it compiles leaves no compiling session behind.
    wait_until(lambda: json.loads(rgpu(server, "top", "--json"))["leases"] == [], 60)
    with clients.start(
        server.tcp, "cuda.open()\nprint('open', flush=True)\nwait_for_line()"
    ) as after:
        assert after.stdout is not None
        assert after.stdout.readline() == "open\n"
        assert compiling(server) == (False, 0)
        after.communicate("\n")
