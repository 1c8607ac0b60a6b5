"""Memory quotas over the wire: per lease, over all its processes, on every allocation path."""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.server import Server

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
