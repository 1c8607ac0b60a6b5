"""Two tenants on one device: neither sees the other's processes, memory or use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.command import run_rgpu
from helpers.needs import needs
from helpers.nvml_client import MIB, ask, run, tenant
from helpers.server import Server
from helpers.waiting import wait_until
from nvml.test_onlookers import answer

from rgpu_common.wire.observe import Observe, Observed, encode_observe
from rgpu_common.wire.refused import Refused

pytestmark = needs("nvidia-ml-py")
VIEW = """
nvml.nvmlInit()
one = device()
memory = nvml.nvmlDeviceGetMemoryInfo(one)
show({"total": memory.total, "used": memory.used, "processes": processes(one),
      "use": nvml.nvmlDeviceGetUtilizationRates(one).gpu})
"""


CODE = 4096  # what the kernel of a program that works has of the lease
# What the functions about processes, memory and use answer to this process.
LISTS = """
def rows(found):
    if isinstance(found, str):
        return found
    return sorted([row.pid, getattr(row, "usedGpuMemory", None)] for row in found)
def everything(others):
    nvml.nvmlInit()
    one = device()
    answers = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        for version in ("", "_v2", "_v3"):
            name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
            answers[name] = rows(tried(name, one))
    for mode in (0, 1, 2):
        found = tried("nvmlDeviceGetRunningProcessDetailList", one,
                      nvml.nvmlProcessDetailList_v1, mode)
        answers[f"details of mode {mode}"] = rows(found)
    for name in ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"):
        found = tried(name, one, 0)
        while found == "error 6":  # there is no earlier answer to compare with
            found = tried(name, one, 0)
        answers[name] = [[row.pid, row.smUtil > 0] for row in found]
    plain, newer = (nvml.nvmlDeviceGetMemoryInfo(one, version)
                    for version in (None, nvml.nvmlMemory_v2))
    answers["memory"] = [[found.total, found.used, found.free] for found in (plain, newer)]
    answers["use"] = nvml.nvmlDeviceGetUtilizationRates(one).gpu > 0
    for name in ("AccountingMode", "AccountingPids", "AccountingBufferSize"):
        answers[name] = tried(f"nvmlDeviceGet{name}", one)
    answers["samples"] = [tried("nvmlDeviceGetSamples", one, kind, 0) for kind in range(7)]
    answers["others"] = [[tried("nvmlSystemGetProcessName", pid),
                          tried("nvmlDeviceGetAccountingStats", one, pid)] for pid in others]
    return answers
"""


def expected(pid: int, limit: int, used: int, works: bool) -> dict[str, Any]:
    """What `everything` answers to a tenant with one process, if nothing else is there."""
    mine, named, denied = [[pid, used]], [[pid, works]], "error 4"
    return {
        **{
            f"nvmlDeviceGet{kind}RunningProcesses{version}": mine if kind == "Compute" else []
            for kind in ("Compute", "Graphics", "MPSCompute")
            for version in ("", "_v2", "_v3")
        },
        "details of mode 0": mine, "details of mode 1": [], "details of mode 2": [],
        "nvmlDeviceGetProcessUtilization": named,
        "nvmlDeviceGetProcessesUtilizationInfo": named,
        "memory": [[limit, used, limit - used]] * 2,
        "use": works,
        "AccountingMode": denied, "AccountingPids": denied, "AccountingBufferSize": denied,
        "samples": [denied] * 7,
        "others": [["error 6", denied]],
    }  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Access tokens of alice and bob, and the file of both as `server`."""
    folder = tmp_path_factory.mktemp("tokens")
    known = folder / "tokens.toml"
    made = {"server": str(known)}
    for name in ("alice", "bob"):
        file = folder / f"{name}.token"
        done = run_rgpu("token", "new", name, "--tokens", str(known), "--file", str(file))
        assert done.returncode == 0, done.stderr
        made[name] = str(file)
    return made


def test_each_sees_its_own_memory_and_processes(server: Server) -> None:
    with (
        tenant(server.unix, 64 * MIB, RGPU_LEASE="a", RGPU_MEMORY="256MiB") as first,
        tenant(server.unix, 96 * MIB, RGPU_LEASE="b", RGPU_MEMORY="512MiB") as second,
    ):
        for lease, limit, used, process in (("a", 256, 64, first), ("b", 512, 96, second)):
            seen = ask(server.unix, VIEW, RGPU_LEASE=lease)
            assert seen["total"] == limit * MIB
            assert seen["used"] == used * MIB
            assert seen["processes"] == [[process.pid, used * MIB]]


def test_the_use_of_one_is_not_the_use_of_the_other(server: Server) -> None:
    with (
        tenant(server.unix, works=True, RGPU_LEASE="busy", RGPU_MEMORY="256MiB"),
        tenant(server.unix, RGPU_LEASE="idle", RGPU_MEMORY="256MiB"),
    ):
        wait_until(lambda: ask(server.unix, VIEW, RGPU_LEASE="busy")["use"] > 0)
        assert ask(server.unix, VIEW, RGPU_LEASE="idle")["use"] == 0


def test_processes_of_one_lease_see_each_other(server: Server) -> None:
    shared = {"RGPU_LEASE": "team", "RGPU_MEMORY": "256MiB"}
    with tenant(server.unix, **shared) as first, tenant(server.unix, 32 * MIB, **shared) as second:
        pids = sorted([[first.pid, 64 * MIB], [second.pid, 32 * MIB]])
        seen = ask(server.unix, VIEW, **shared)
        assert (seen["processes"], seen["used"]) == (pids, 96 * MIB)


def test_a_process_has_a_name_and_a_use(server: Server) -> None:
    source = """
        import time
        nvml.nvmlInit()
        one, rows = device(), []
        # The first answer has no earlier one to compare with.
        while not any(row[1] for row in rows):
            found = tried("nvmlDeviceGetProcessUtilization", one, 0)
            rows = [] if isinstance(found, str) else [[row.pid, row.smUtil] for row in found]
        show([[nvml.nvmlSystemGetProcessName(pid), pid, 0 < use <= 100] for pid, use in rows])
    """
    with tenant(server.unix, works=True, RGPU_LEASE="named", RGPU_MEMORY="256MiB") as process:
        [[name, pid, used]] = ask(server.unix, source, RGPU_LEASE="named")
        assert (pid, used) == (process.pid, True)
        assert "python" in name
        unknown = "nvml.nvmlInit(); show(tried('nvmlSystemGetProcessName', 1))"
        assert ask(server.unix, unknown, RGPU_LEASE="named") == "error 6"


def test_a_token_shows_the_leases_of_its_tenant_alone(tokens: dict[str, str]) -> None:
    """Bob names alice's lease: he sees a lease of his own that is not there yet."""
    with Server("--tokens", tokens["server"]) as server:
        own = {"RGPU_LEASE": "shared-name", "RGPU_MEMORY": "256MiB"}
        alice = {**own, "RGPU_TOKEN_FILE": tokens["alice"]}
        with tenant(server.tcp, **alice) as process:
            assert ask(server.tcp, VIEW, **alice)["processes"] == [[process.pid, 64 * MIB]]
            seen = ask(server.tcp, VIEW, **{**alice, "RGPU_TOKEN_FILE": tokens["bob"]})
            assert (seen["processes"], seen["used"], seen["use"]) == ([], 0, 0)


def test_of_two_tenants_at_work_each_sees_itself_alone(
    tokens: dict[str, str], tmp_path: Path
) -> None:
    """Alice computes and bob does not, on one device, in leases of one name."""
    lease = {"RGPU_LEASE": "model"}
    alice = {**lease, "RGPU_MEMORY": "256MiB", "RGPU_TOKEN_FILE": tokens["alice"]}
    bob = {**lease, "RGPU_MEMORY": "512MiB", "RGPU_TOKEN_FILE": tokens["bob"]}
    with (
        Server("--tokens", tokens["server"]) as server,
        tenant(server.tcp, 64 * MIB, True, tmp_path / "of_alice.py", **alice) as hers,
        tenant(server.tcp, 96 * MIB, False, tmp_path / "of_bob.py", **bob) as his,
    ):
        wait_until(lambda: ask(server.tcp, VIEW, **alice)["use"] > 0)

        def seen(whose: dict[str, str], other: int) -> dict[str, Any]:
            found: dict[str, Any] = ask(
                server.tcp, f"{LISTS}\nshow(everything([{other}]))", **whose
            )
            return found

        busy, still = (
            expected(hers.pid, 256 * MIB, 64 * MIB + CODE, works=works) for works in (True, False)
        )

        def at_work() -> bool:
            """A program that waits for a processor uses nothing in that moment."""
            found = seen(alice, his.pid)
            assert found.keys() == busy.keys()
            for key, value in found.items():
                assert value in (busy[key], still[key]), key
            return found == busy

        wait_until(at_work)
        assert seen(bob, hers.pid) == expected(his.pid, 512 * MIB, 96 * MIB, works=False)
        check_what_travels(server, tokens, {"alice": hers.pid, "bob": his.pid})


def observed(server: Server, question: Observe) -> Observed | Refused:
    return answer(server, encode_observe(question))[1]


def check_what_travels(server: Server, tokens: dict[str, str], pids: dict[str, int]) -> None:
    """Whatever bob asks for, nothing of alice's comes, not even to a library of his own."""
    token = {name: Path(tokens[name]).read_text().strip() for name in pids}
    alices = observed(server, Observe(lease_key="model", access_token=token["alice"]))
    assert isinstance(alices, Observed)
    assert [(one.pid, "of_alice.py" in one.program) for one in alices.processes] == [
        (pids["alice"], True)
    ]
    for question in (
        Observe(lease_key="model"),
        Observe(lease_key="model", tenant="bob"),
        Observe(lease_key="model", tenant="alice"),
        Observe(lease_key="alice/model"),
        Observe(lease_key=alices.lease_id),
        Observe(container="model"),
        Observe(),
    ):
        seen = observed(server, question._replace(access_token=token["bob"]))
        assert "of_alice" not in repr(seen)
        if question.tenant == "alice":
            assert isinstance(seen, Refused)
            continue
        assert isinstance(seen, Observed)
        own = [pids["bob"]] if question.lease_key == "model" else []
        assert seen.tenant == "bob"
        assert seen.lease_id != alices.lease_id
        assert [one.pid for one in seen.processes] == own
        assert seen.memory_used_bytes == 96 * MIB * len(own)
        assert seen.share_ppm == 0


def test_nobody_sees_anything_without_an_access_token(
    tokens: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text(f'[identity]\ntokens = "{tokens["server"]}"\nrequire = "always"\n')
    with Server("--config", str(config)) as server:
        done = run(server.tcp, "print(tried('nvmlInit'))")
        assert done.stdout == "error 4\n"
        assert "access token" in done.stderr
        wrong = run(server.tcp, "print(tried('nvmlInit'))", RGPU_TOKEN="wrong", RGPU_TENANT="alice")
        assert wrong.stdout == "error 4\n"


def test_a_lease_that_holds_more_than_its_limit_has_nothing_free(server: Server) -> None:
    """Its limit was made smaller while a program holds memory."""
    view = (
        "nvml.nvmlInit()\nmemory = nvml.nvmlDeviceGetMemoryInfo(device())\n"
        "show([memory.total, memory.used, memory.free])"
    )
    with tenant(server.unix, 96 * MIB, RGPU_LEASE="shrunk", RGPU_MEMORY="256MiB"):
        done = run_rgpu("lease", "resize", "shrunk", "--memory", "64MiB", "--server", server.unix)
        assert done.returncode == 0, done.stderr
        wanted = [64 * MIB, 96 * MIB, 0]
        wait_until(lambda: ask(server.unix, view, RGPU_LEASE="shrunk")[0] == wanted[0])
        assert ask(server.unix, view, RGPU_LEASE="shrunk") == wanted
