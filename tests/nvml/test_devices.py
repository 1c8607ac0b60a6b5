"""What a program reads about its devices, without a session and without CUDA."""

from __future__ import annotations

import pytest
from helpers import clients
from helpers.needs import needs
from helpers.nvml_client import MIB, ask, run, tenant
from helpers.server import TRANSPORTS, Server
from helpers.waiting import wait_until

from rgpu_common import release

pytestmark = needs("nvidia-ml-py")
GIB = 1 << 30


FACTS = """
nvml.nvmlInit()
one = device()
pci = nvml.nvmlDeviceGetPciInfo(one)
memory = nvml.nvmlDeviceGetMemoryInfo(one)
second = nvml.nvmlDeviceGetMemoryInfo(one, version=nvml.nvmlMemory_v2)
show({
    "count": nvml.nvmlDeviceGetCount(), "name": nvml.nvmlDeviceGetName(one),
    "uuid": nvml.nvmlDeviceGetUUID(one), "bus": pci.busId, "index": nvml.nvmlDeviceGetIndex(one),
    "driver": nvml.nvmlSystemGetDriverVersion(), "cuda": nvml.nvmlSystemGetCudaDriverVersion(),
    "nvml": nvml.nvmlSystemGetNVMLVersion(), "mig": nvml.nvmlDeviceGetMigMode(one),
    "compute": nvml.nvmlDeviceGetCudaComputeCapability(one),
    "memory": [memory.total, memory.used, memory.free],
    "second": [second.total, second.reserved, second.used, second.free],
    "architecture": nvml.nvmlDeviceGetArchitecture(one) == nvml.NVML_DEVICE_ARCH_AMPERE,
    "use": nvml.nvmlDeviceGetUtilizationRates(one).gpu, "processes": processes(one),
    "by uuid": nvml.nvmlDeviceGetIndex(
        nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(one))),
    "by bus": nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)),
    "by short bus": nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(pci.busId[4:].lower())),
    "compute mode": nvml.nvmlDeviceGetComputeMode(one),
})
"""


def test_shows_the_device_and_the_lease_without_making_one(server: Server) -> None:
    # The lease of a test before ends a little later than its program.
    wait_until(lambda: "no leases" in server.sessions())
    facts = ask(server.unix, FACTS, RGPU_MEMORY="256MiB")
    quota = 256 * MIB
    assert facts.pop("uuid").startswith("GPU-")
    assert facts.pop("bus").endswith(":00.0")
    assert facts == {
        "count": 1, "name": "rgpu emulated device", "index": 0,
        "driver": f"rgpu {release()}", "cuda": 13000, "nvml": f"13.{release()}", "mig": [0, 0],
        "compute": [8, 0], "memory": [quota, 0, quota], "second": [quota, 0, 0, quota],
        "architecture": True, "use": 0, "processes": [], "by uuid": 0, "by bus": 0,
        "by short bus": 0, "compute mode": 0,
    }  # fmt: skip
    assert "no leases" in server.sessions()


def test_names_what_cuda_names(server: Server) -> None:
    """The UUID and the address on the bus are those that the driver library gives."""
    source = """
        import ctypes, uuid
        cuda.open()
        raw, bus = (ctypes.c_char * 16)(), ctypes.create_string_buffer(64)
        cuda.library.cuDeviceGetUuid(raw, 0)
        cuda.library.cuDeviceGetPCIBusId(bus, 64, 0)
        import pynvml as nvml
        nvml.nvmlInit()
        one = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid.UUID(bytes=bytes(raw))}")
        assert nvml.nvmlDeviceGetPciInfo(one).busId.lower() == "0000" + bus.value.decode()
        print("the same")
    """
    code, output, errors = clients.run(server.unix, source)
    assert (code, output) == (0, "the same\n"), errors


def test_takes_the_quota_in_parts_of_the_device(server: Server) -> None:
    source = "nvml.nvmlInit(); show(nvml.nvmlDeviceGetMemoryInfo(device()).total)"
    assert ask(server.unix, source, RGPU_MEMORY="25%") == 2 * GIB // 4


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_works_over_every_transport(server: Server, transport: str) -> None:
    address = server.address(transport)
    with tenant(address, RGPU_LEASE=transport, RGPU_MEMORY="128MiB"):
        source = "nvml.nvmlInit(); show(nvml.nvmlDeviceGetMemoryInfo(device()).used)"
        assert ask(address, source, RGPU_LEASE=transport) == 64 * MIB


def test_has_an_entry_for_each_device_of_the_program() -> None:
    with Server("--device", "emulated:1GiB") as server:
        source = """
            nvml.nvmlInit()
            show([nvml.nvmlDeviceGetMemoryInfo(device(i)).total
                  for i in range(nvml.nvmlDeviceGetCount())])
        """
        totals = ask(server.unix, source, RGPU_DEVICE="0,1", RGPU_LEASE="two", RGPU_MEMORY="100%")
        assert sorted(totals) == [GIB, 2 * GIB]


def test_refuses_what_a_tenant_must_not_see_or_change(server: Server) -> None:
    source = """
        nvml.nvmlInit()
        one = device()
        show([tried(name, one, *more) for name, *more in (
            ("nvmlDeviceGetSerial",), ("nvmlDeviceGetVbiosVersion",), ("nvmlDeviceGetMinorNumber",),
            ("nvmlDeviceSetPersistenceMode", 1), ("nvmlDeviceResetGpuLockedClocks",),
            ("nvmlDeviceGetTotalEnergyConsumption",), ("nvmlDeviceGetAccountingPids",),
            ("nvmlDeviceGetPowerUsage",), ("nvmlDeviceGetTemperature", 0),
            ("nvmlDeviceGetNvLinkState", 0), ("nvmlDeviceGetEncoderUtilization",),
        )])
    """
    permission, support = "error 4", "error 3"
    assert ask(server.unix, source) == [permission] * 7 + [support] * 4


def test_checks_handles_arguments_and_order(server: Server) -> None:
    source = """
        import ctypes
        before = tried("nvmlDeviceGetCount")
        nvml.nvmlInit()
        lib, one = nvml.nvmlLib, device()
        name = ctypes.create_string_buffer(64)
        wild = [lib.nvmlDeviceGetName(ctypes.c_void_p(place), name, 64) for place in (0, 1, 2**63)]
        beyond = lib.nvmlDeviceGetName(ctypes.c_void_p(ctypes.cast(one, ctypes.c_void_p).value + 1), name, 64)
        memory = nvml.c_nvmlMemory_v2_t()
        memory.version = 7
        version = lib.nvmlDeviceGetMemoryInfo_v2(one, ctypes.byref(memory))
        count = ctypes.c_uint(5)
        nvml.nvmlShutdown()
        show({
            "before": before, "wild": wild, "beyond": beyond,
            "index": lib.nvmlDeviceGetHandleByIndex_v2(9, ctypes.byref(count)),
            "after": lib.nvmlDeviceGetName(one, name, 64), "shut": lib.nvmlShutdown(),
            "version": version,
        })
    """
    assert ask(server.unix, source) == {
        "before": "error 1", "wild": [2, 2, 2], "beyond": 2, "index": 1, "after": 1, "shut": 1,
        "version": 25,
    }  # fmt: skip


def test_says_when_a_buffer_is_too_small(server: Server) -> None:
    source = """
        import ctypes
        nvml.nvmlInit()
        lib, one, name = nvml.nvmlLib, device(), ctypes.create_string_buffer(64)
        show([lib.nvmlDeviceGetName(one, name, n) for n in (0, 4, 20, 21)]
             + [lib.nvmlDeviceGetName(one, None, 64), lib.nvmlDeviceGetMemoryInfo(one, None)])
    """
    assert ask(server.unix, source) == [7, 7, 7, 0, 2, 2]


def test_survives_a_fork(server: Server) -> None:
    source = """
        import os
        nvml.nvmlInit()
        one = device()
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, nvml.nvmlDeviceGetName(one).encode())
            os._exit(0)
        os.wait()
        show(os.read(read, 64).decode())
    """
    assert ask(server.unix, source) == "rgpu emulated device"


def test_explains_why_nvidia_smi_cannot_run(server: Server) -> None:
    done = run(
        server.unix, "nvml.nvmlInit(); print(nvml.nvmlLib.nvmlInternalGetExportTable(None, None))"
    )
    assert done.stdout == "3\n"
    assert "rgpu smi" in done.stderr
