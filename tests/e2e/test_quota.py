"""Memory quotas over the wire: per lease, over all its processes, on every allocation path."""

from __future__ import annotations

import os
import subprocess

import pytest
from helpers import clients
from helpers.server import Server, rgpu_command

MIB = 1 << 20

PATHS = {
    "cuMemAlloc": "cuda.alloc(SIZE)",
    "cuMemAllocPitch": """
        import ctypes
        p, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        cuda("cuMemAllocPitch_v2", ctypes.byref(p), ctypes.byref(pitch),
             ctypes.c_size_t(4096), ctypes.c_size_t(SIZE // 4096), 4)
    """,
    "cuMemAllocAsync": """
        import ctypes
        p = ctypes.c_uint64()
        cuda("cuMemAllocAsync", ctypes.byref(p), ctypes.c_size_t(SIZE), None)
    """,
    "cuMemAllocFromPoolAsync": """
        import ctypes
        p, pool = ctypes.c_uint64(), ctypes.c_void_p()
        cuda("cuDeviceGetDefaultMemPool", ctypes.byref(pool), 0)
        cuda("cuMemAllocFromPoolAsync", ctypes.byref(p), ctypes.c_size_t(SIZE), pool, None)
    """,
}


def test_the_program_sees_its_quota(server: Server, transport: str) -> None:
    code, output, errors = clients.run(
        server.address(transport),
        """
        import ctypes
        cuda.open()
        total = ctypes.c_size_t()
        cuda("cuDeviceTotalMem_v2", ctypes.byref(total), 0)
        print(total.value, *cuda.memory())
        cuda.alloc(64 << 20)
        print(*cuda.memory())
        """,
        RGPU_MEMORY="256MiB",
    )
    assert code == 0, errors
    (device_total, free, total), (free_after, _) = (
        [int(word) for word in line.split()] for line in output.splitlines()
    )
    assert device_total == total == 256 * MIB
    assert 0 <= free_after <= free - 64 * MIB <= total


@pytest.mark.parametrize("path", PATHS)
def test_over_the_limit_is_out_of_memory(server: Server, path: str) -> None:
    body = "\n".join("        " + line.strip() for line in PATHS[path].strip().splitlines())
    source = f"""
def allocate(SIZE):
{body}

cuda.open()
allocate(64 << 20)
try:
    allocate(128 << 20)
except CudaError as error:
    print(error.result)
allocate(32 << 20)
print("ok")
"""
    code, output, errors = clients.run(server.tcp, source, RGPU_MEMORY="128MiB")
    assert (code, output.split()) == (0, ["2", "ok"]), errors


def test_two_processes_of_one_lease_share_its_limit(server: Server) -> None:
    lease = {"RGPU_MEMORY": "128MiB", "RGPU_LEASE": "shared-by-two"}
    holder = clients.start(
        server.tcp,
        """
        cuda.open()
        address = cuda.alloc(96 << 20)
        print("holding")
        wait_for_line()
        cuda.free(address)
        cuda.synchronize()
        print("freed")
        wait_for_line()
        """,
        **lease,
    )
    other = """
    cuda.open()
    try:
        cuda.alloc(64 << 20)
        print("got it")
    except CudaError as error:
        print(error.result)
    """
    try:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == "holding\n"
        assert clients.run(server.tcp, other, **lease)[1] == "2\n"
        holder.stdin.write("go on\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "freed\n"
        assert clients.run(server.tcp, other, **lease)[1] == "got it\n"
    finally:
        _, errors = holder.communicate(timeout=60)
    assert holder.returncode == 0, errors


def resize(server: Server, lease: str, memory: str) -> None:
    command = [rgpu_command(), "lease", "resize", lease, "--memory", memory]
    environment = {**os.environ, "RGPU_SERVER": server.tcp}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_running_program_is_resized(server: Server) -> None:
    """Below use: nothing is free, nothing is taken away; above: usable by the next allocation."""
    program = clients.start(
        server.tcp,
        """
        import ctypes
        def pooled(size):
            p = ctypes.c_uint64()
            cuda("cuMemAllocAsync", ctypes.byref(p), ctypes.c_size_t(size), None)
        def outcome(allocate, size):
            try:
                allocate(size)
                return 0
            except CudaError as error:
                return error.result
        cuda.open()
        kept = cuda.alloc(96 << 20)
        print(*cuda.memory(), flush=True)
        wait_for_line()
        print(*cuda.memory(), outcome(cuda.alloc, 512), outcome(pooled, 512), flush=True)
        wait_for_line()
        print(outcome(cuda.alloc, 100 << 20), outcome(pooled, 100 << 20), flush=True)
        """,
        RGPU_MEMORY="128MiB",
        RGPU_LEASE="grows-and-shrinks",
    )
    try:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline().split() == [str(32 * MIB), str(128 * MIB)]
        for memory, expected in (("64MiB", ["0", str(64 * MIB), "2", "2"]), ("320MiB", ["0", "0"])):
            resize(server, "grows-and-shrinks", memory)
            program.stdin.write("go on\n")
            program.stdin.flush()
            assert program.stdout.readline().split() == expected
    finally:
        _, errors = program.communicate(timeout=60)
    assert program.returncode == 0, errors
