"""Memory of cuMemCreate that processes of one lease share by file descriptors, over every
transport.
"""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.sharing import LEASE, MIB, START, Process, await_used, processes

MAPS = """
import os
from helpers.maps import GRANULE, Maps, READ
maps = Maps(cuda)

def shareable(size):
    handle, place = maps.create(size, handles=1), maps.reserve(size)
    maps.map(place, size, handle)
    maps.allow(place, size)
    return place, handle

def shown(handle, size):
    place = maps.reserve(size)
    maps.map(place, size, handle)
    maps.allow(place, size)
    return place
"""


@pytest.fixture
def lease(request: pytest.FixtureRequest) -> str:
    """A lease of the test's own."""
    return "shareable-" + "".join(c if c.isalnum() else "-" for c in request.node.name)[-50:]


def _descriptor(process: Process, handle: str = "h") -> str:
    """Exports memory; returns the path by which another process opens the same file."""
    return process.run(f"f = maps.export({handle})\nsay(f'/proc/{{os.getpid()}}/fd/{{f}}')")


def _start(*all_: Process) -> None:
    for process in all_:
        process.run(MAPS + "say(1)")


def test_memory_is_the_same_in_both_processes(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two):
        _start(one, two)
        one.run(
            "size = 2 * GRANULE\na, h = shareable(size)\nsame = shown(h, GRANULE)\n"
            "data = os.urandom(size)\ncuda.upload(a, data)\nsay(1)"
        )
        path = _descriptor(one)
        two.run(
            f"f = os.open({path!r}, os.O_RDONLY)\nh = maps.import_(f)\nos.close(f)\n"
            "assert maps.props_of(h).handles == 1\nb = shown(h, 2 * GRANULE)\nsay(1)"
        )
        sums = "import hashlib\nsay(hashlib.sha256(cuda.download({}, 2 * GRANULE)).hexdigest())"
        assert one.run(sums.format("a")) == two.run(sums.format("b"))
        for turn in range(20):  # a copy has reached the other process when it returns
            two.run(f"cuda.upload(b + 7, b'turn {turn:4}')\nsay(1)")
            assert one.run("say(cuda.download(same + 7, 9))") == str(f"turn {turn:4}".encode())
            one.run(f"cuda.upload(same, b'back {turn:4}')\nsay(1)")
            assert two.run("say(cuda.download(b, 9))") == str(f"back {turn:4}".encode())
        # A second import, and one by the exporter, are more references to the same memory.
        two.run(
            f"f = os.open({path!r}, os.O_RDONLY)\nassert maps.import_(f) == h\n"
            "maps.release(h)\nmaps.release(h)\nfails(1, maps.release, h)\n"
            "assert cuda.download(b, 4) == b'back'\nsay(1)"
        )
        one.run("assert maps.import_(f) == h\nmaps.release(h)\nmaps.release(h)\nsay(1)")
        one.run("maps.unmap(a, size)\nmaps.unmap(same, GRANULE)\ncuda.synchronize()\nsay(1)")
        assert two.run("say(used())") == str(4 * MIB)  # as long as another process has it
        two.run(f"f = maps.import_(os.open({path!r}, os.O_RDONLY))\nassert f == h\nsay(1)")
        two.run("maps.release(h)\nmaps.unmap(b, 2 * GRANULE)\nsay(1)")
        await_used(one, 0)
        two.run(f"fails(400, maps.import_, os.open({path!r}, os.O_RDONLY))\nsay(1)")


def test_who_may_open_what(server: str, lease: str) -> None:
    with processes(server, lease) as (one, two), processes(server, lease + "x", 1) as (stranger,):
        _start(one, two, stranger)
        one.run("a, h = shareable(GRANULE)\nplain = maps.create(GRANULE)\nsay(1)")
        path = _descriptor(one)
        token = one.run("say(ipc.export(cuda.alloc(4096)))")
        stranger.run(f"fails(400, maps.import_, os.open({path!r}, os.O_RDONLY))\nsay(1)")
        two.run(
            f"""
good = os.pread(os.open({path!r}, os.O_RDONLY), 100, 0)
assert len(good) == 72

def file(data, seals=0xF):
    import fcntl
    made = os.memfd_create("x", os.MFD_ALLOW_SEALING)
    os.write(made, data)
    fcntl.fcntl(made, 1033, seals)
    return made

other = good[:30] + bytes([good[30] ^ 1]) + good[31:]
fails(400, maps.import_, file(other))
fails(400, maps.import_, file(good[:8] + bytes.fromhex({token!r})))
fails(400, ipc.open, good[8:].hex())
for wrong in (file(good[:-1]), file(good + b"x"), file(b"x" + good[1:]), file(good, 0),
              os.open("/dev/null", os.O_RDONLY), -1, 1 << 20):
    fails(1, maps.import_, wrong)
fails(1, maps.import_, file(good), 2)
assert maps.import_(file(good))
say(1)
"""
        )
        one.run(
            "fails(1, maps.export, plain)\nfails(1, maps.export, 77)\nfails(1, maps.export, h, 2)\n"
            "assert maps.props_of(plain).handles == 0\nsay(1)"
        )


def test_memory_outlives_the_exporter_and_stays_charged(server: str, lease: str) -> None:
    with processes(server, lease, 3) as (one, two, three):
        _start(one, two, three)
        total = int(three.run("say(cuda.memory()[1])"))
        one.run(f"size = {150 * MIB}\na, h = shareable(size)\ncuda.upload(a, b'first')\nsay(1)")
        path = _descriptor(one)
        two.run(
            f"h = maps.import_(os.open({path!r}, os.O_RDONLY))\nb = shown(h, {150 * MIB})\nsay(1)"
        )
        assert three.run("say(used())") == str(150 * MIB)
        kept = three.run(f"say(os.open({path!r}, os.O_RDONLY))")
        one.kill()
        await_used(three, 150 * MIB)
        assert two.run("say(cuda.download(b, 5))") == str(b"first")
        # A descriptor alone keeps no memory: it names an export of a process that has ended.
        three.run(
            "from helpers.waiting import wait_until\ndef is_gone():\n  try:\n"
            f"    maps.release(maps.import_({kept}))\n"
            "  except CudaError as error:\n    return error.result == 400\n  return False\n"
            "wait_until(is_gone, 60)\nsay(1)"
        )
        three.run(f"fails(2, cuda.alloc, {total - 149 * MIB})\nsay(1)")
        two.run(f"maps.unmap(b, {150 * MIB})\nmaps.release(h)\nsay(1)")
        await_used(three, 0)


def test_a_session_has_so_much_shareable_memory(server: str, lease: str) -> None:
    with processes(server, lease, 1) as (one,):
        _start(one)
        one.run(
            "made = []\nfor _ in range(90): made.append(maps.create(GRANULE, handles=1))\n"
            "files = [maps.export(h) for h in made]\n"
            "for h in made: maps.release(h)\ncuda.synchronize()\nsay(1)"
        )
        await_used(one, 0)


def test_a_program_and_its_child(server: str, lease: str) -> None:
    """The descriptor is inherited, as multiprocessing does it."""
    code, output, errors = clients.run(
        server,
        START
        + MAPS
        + """
import subprocess, sys
a, h = shareable(GRANULE)
cuda.upload(a, b"from parent")
child = '''
from helpers.driver import Driver
from helpers.maps import Maps, GRANULE
cuda = Driver()
cuda.open()
maps = Maps(cuda)
h = maps.import_(%d)
place = maps.reserve(GRANULE)
maps.map(place, GRANULE, h)
maps.allow(place, GRANULE)
assert cuda.download(place, 11) == b"from parent"
cuda.upload(place, b"from child ")
'''
f = maps.export(h)
subprocess.run([sys.executable, "-c", child % f], check=True, pass_fds=[f])
assert cuda.download(a, 11) == b"from child "
print("ok")
""",
        RGPU_LEASE=lease,
        RGPU_MEMORY=LEASE,
    )
    assert (code, output.strip()) == (0, "ok"), errors
