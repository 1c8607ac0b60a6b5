"""Out of memory prints one line on stderr that says whose memory is used up and how much
is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.server import Server

FILLS = """
cuda.open()
for _ in range(3):
    try:
        while True:
            cuda.alloc(64 << 20)
    except CudaError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:2GiB") as running:
        yield running


def test_a_full_lease_is_named_once_with_what_it_has_and_what_was_asked_for(server: Server) -> None:
    code, output, errors = clients.run(server.unix, FILLS, RGPU_LEASE="small", RGPU_MEMORY="256MiB")
    assert code == 0
    assert output.count("gave CUresult 2") == 3
    assert errors == (
        "rgpu: lease small: 256 MiB of 256 MiB used, 64 MiB more asked for; free memory, or ask "
        "for a larger lease (--memory)\n"
    )


def test_a_full_lease_without_a_name_is_the_containers(server: Server) -> None:
    errors = clients.run(server.unix, FILLS, RGPU_MEMORY="100MiB")[2]
    assert errors.startswith("rgpu: the lease of this container: 64 MiB of 100 MiB used, 64 MiB ")
    assert errors.count("\n") == 1


def test_who_wants_no_log_is_told_nothing(server: Server) -> None:
    code, output, errors = clients.run(server.unix, FILLS, RGPU_MEMORY="100MiB", RGPU_LOG="off")
    assert (code, errors) == (0, "")
    assert "gave CUresult 2" in output


def test_each_process_says_it_once(server: Server) -> None:
    source = FILLS + (
        "import os\n"
        "if os.fork() == 0:\n"
        "    cuda.open()\n"
        "    try:\n"
        "        cuda.alloc(200 << 20)\n"
        "    except CudaError:\n"
        "        pass\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    errors = clients.run(server.unix, source, RGPU_LEASE="two", RGPU_MEMORY="100MiB")[2]
    assert len(re.findall("rgpu: lease two: ", errors)) == 2
