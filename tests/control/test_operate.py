"""Commands of an operator against a real server: leases, drain, tenants; and the units of sizes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.asking import leases_of
from helpers.command import rgpu_command
from helpers.server import Server
from helpers.waiting import wait_until

RGPU = str(Path(sys.executable).parent / "rgpu")
MIB = 1 << 20
CONFIG = """
[leases]
memory = "64MiB"

[pools]
special = [1]

[tenants.alice]
max_priority = 10
max_weight = 5

[tenants.bob]
pools = ["special"]
share = 1.5
memory = "2GiB"

[tenants.owner]
quota = {"rgpu emulated device" = {share = 0.5, memory = "2GiB"}}
lend = false
"""
SHOW = """
import ctypes
cuda.open()
uuid = ctypes.create_string_buffer(16)
cuda("cuDeviceGetUuid_v2", uuid, 0)
print(cuda.memory()[1], uuid.raw.hex(), flush=True)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    config = tmp_path_factory.mktemp("operate") / "rgpu.toml"
    config.write_text(CONFIG)
    more = ("--device", "emulated:1GiB", "--config", str(config))
    with Server(*more, device="emulated:1GiB") as running:
        yield running


def rgpu(server: Server, *arguments: str, status: int = 0) -> str:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RGPU_")}
    done = subprocess.run(
        [RGPU, *arguments],
        env={**clean, "RGPU_SERVER": server.tcp},
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def listed(server: Server, key: str) -> dict[str, object]:
    leases = json.loads(rgpu(server, "lease", "list", "--json"))["leases"]
    found = [lease for lease in leases if lease["key"] == key]
    assert len(found) == 1, leases
    return dict(found[0])


# Units


@pytest.mark.parametrize(
    ("memory", "expected"),
    [("25%", 256 * MIB), ("1vmem", 256 * MIB), ("0.5GB", 500_000_000), ("96mib", 96 * MIB)],
)
def test_sizes_mean_the_same_to_the_command_and_to_the_library(
    server: Server, memory: str, expected: int
) -> None:
    run = rgpu(
        server, "run", "--memory", memory, "--lease", f"cli-{memory}", "--",
        sys.executable, "-c", "import os; print(os.environ['RGPU_MEMORY'])",
    )  # fmt: skip
    for number, text in enumerate((memory, run.strip())):
        code, output, errors = clients.run(
            server.tcp, SHOW, RGPU_MEMORY=text, RGPU_LEASE=f"units-{memory}-{number}"
        )
        assert code == 0, errors
        assert int(output.split()[0]) == expected


def test_policy_priority_and_weight_travel_from_the_library(server: Server) -> None:
    client = clients.start(
        server.tcp,
        "cuda.open()\nprint('open', flush=True)\nwait_for_line()",
        RGPU_TENANT="alice",
        RGPU_LEASE="policies",
        RGPU_SHARE="30vcore",
        RGPU_POLICY="fixed",
        RGPU_PRIORITY="7",
        RGPU_WEIGHT="3",
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        quota = listed(server, "policies")["quota"]
    finally:
        client.communicate(timeout=60)
    assert isinstance(quota, dict)
    assert quota["policy"] == "SHARE_POLICY_FIXED"
    assert (quota["share_request_ppm"], quota["share_limit_ppm"]) == (300_000, 300_000)
    assert (quota["priority"], quota["weight"]) == (7, 3)


@pytest.mark.parametrize(
    ("variables", "result", "text"),
    [
        ({"RGPU_MEMORY": "2X"}, 1, "RGPU_MEMORY=2X is not a size with its unit, such as 2GiB"),
        ({"RGPU_SHARE": "200vcore"}, 1, "RGPU_SHARE=200vcore is not a share such as 0.4"),
        ({"RGPU_POLICY": "greedy"}, 1, "RGPU_POLICY=greedy is not fixed, burst"),
        ({"RGPU_PRIORITY": "high"}, 1, "RGPU_PRIORITY=high is not a number from 0 to 100"),
        ({"RGPU_WEIGHT": "0"}, 1, "RGPU_WEIGHT=0 is not a number from 1 to 1000"),
        ({"RGPU_RESUME": "maybe"}, 1, "RGPU_RESUME=maybe is not 0 or 1"),
        ({"RGPU_COMPRESSION": "zstd"}, 1, "RGPU_COMPRESSION=zstd is not 0 or 1"),
        ({"RGPU_TENANT": "x" * 257}, 1, "x is not 1 to 256 printable characters"),
        ({"RGPU_TENANT": "a\nb"}, 1, "RGPU_TENANT=a?b is not 1 to 256 printable characters"),
        ({"RGPU_POLICY": "fixed"}, 46, "the policy fixed needs a share"),
        ({"RGPU_PRIORITY": "50"}, 46, "a priority of at most 0 and asked for is 50"),
        ({"RGPU_TENANT": "bob", "RGPU_DEVICE": "0"}, 46, "device 0 is in 'public'"),
    ],
)
def test_what_the_library_is_refused(
    server: Server, variables: dict[str, str], result: int, text: str
) -> None:
    source = "try:\n    cuda.open()\nexcept CudaError as error:\n    print(error.result)"
    code, output, errors = clients.run(server.tcp, source, RGPU_LEASE="wrong", **variables)
    assert (code, output.strip()) == (0, str(result)), errors
    assert text in errors


def test_two_different_access_tokens_are_refused_by_the_library(
    server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("in-the-file\n")
    source = "try:\n    cuda.open()\nexcept CudaError as error:\n    print(error.result)"
    both = {"RGPU_TOKEN": "in-the-variable", "RGPU_TOKEN_FILE": str(file)}
    code, output, errors = clients.run(server.tcp, source, **both)
    assert (code, output.strip()) == (0, "1"), errors
    named = f"RGPU_TOKEN and the access token file {file} (RGPU_TOKEN_FILE)"
    assert f"{named} hold different access tokens" in errors
    assert "in-the" not in errors
    assert clients.run(server.tcp, source, **{**both, "RGPU_TOKEN": "in-the-file"})[0] == 0


# Devices


def test_a_device_has_the_uuid_that_programs_see(server: Server) -> None:
    devices = json.loads(rgpu(server, "devices", "--json"))["devices"]
    assert [device["pool"] for device in devices] == ["public", "special"]
    assert devices[0]["uuid"] != devices[1]["uuid"]
    for device in devices:
        lease = {"RGPU_DEVICE": str(device["ordinal"]), "RGPU_LEASE": f"u{device['ordinal']}"}
        code, output, errors = clients.run(server.tcp, SHOW, **lease)
        assert code == 0, errors
        assert f"GPU-{output.split()[1]}" == device["uuid"].replace("-", "").replace("GPU", "GPU-")


# Leases


def test_the_life_of_a_lease(server: Server) -> None:
    granted = rgpu(
        server, "lease", "grant", "life", "--tenant", "alice", "--memory", "25%", "--share",
        "40vcore", "--policy", "burst", "--weight", "2", "--ttl", "60",
    )  # fmt: skip
    assert re.fullmatch(r"lease-\d+: 256 MiB of device \d, share 40%, limit 100%\n", granted)
    assert "life" in rgpu(server, "lease", "list", "--tenant", "alice")
    assert "life" not in rgpu(server, "lease", "list", "--tenant", "nobody")
    resized = rgpu(server, "lease", "resize", "life", "--share", "0.5", "--memory", "2vmem")
    assert (
        resized.endswith(": 512 MiB of device 0, share 50%, limit 100%\n") or "device 1" in resized
    )
    assert "paused" not in rgpu(server, "ps")
    assert "is paused" in rgpu(server, "lease", "pause", "life")
    assert "was paused already" in rgpu(server, "lease", "pause", "life")
    assert listed(server, "life")["state"] == "LEASE_STATE_PAUSED"
    assert re.search(r"^lease-\d+ .* life .* paused$", rgpu(server, "ps"), re.MULTILINE)
    assert "goes on" in rgpu(server, "lease", "resume", "life")
    assert "was not paused" in rgpu(server, "lease", "resume", "life")
    lease_id = str(listed(server, "life")["lease_id"])
    assert "was revoked, and 0 sessions with it" in rgpu(server, "lease", "revoke", lease_id)
    assert "there is no lease 'life'; `rgpu lease list` shows" in rgpu(
        server, "lease", "pause", "life", status=1
    )


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("grant", "nought", "--limit", "0"), "`rgpu lease pause`"),
        (("grant", "nought", "--share", "0%"), "--policy best-effort"),
        (("grant", "nought", "--ttl", "0"), "leave it out"),
        (("resize", "nought", "--limit", "0%"), "`rgpu lease pause`"),
        (("resize", "nought", "--kill"), "say what to change: --memory, --share"),
    ],
)
def test_nothing_at_all_is_refused(server: Server, words: tuple[str, ...], remedy: str) -> None:
    assert remedy in rgpu(server, "lease", *words, status=2)


def test_a_full_disk_is_a_sentence(server: Server) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [rgpu_command(), "lease", "list", "--server", server.tcp],
            cwd="/", stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    sentence = "rgpu: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, sentence)


def test_a_key_of_two_leases_is_not_enough(server: Server) -> None:
    for tenant in ("alice", "carol"):
        rgpu(server, "lease", "grant", "twice", "--tenant", tenant, "--memory", "1MiB")
    try:
        sentence = rgpu(server, "lease", "pause", "twice", status=2)
        assert re.search(r"'twice' may be lease-\d+, lease-\d+: name one of them", sentence)
    finally:
        for lease in json.loads(rgpu(server, "lease", "list", "--json"))["leases"]:
            if lease["key"] == "twice":
                rgpu(server, "lease", "revoke", lease["lease_id"])


def test_memory_is_resized_under_a_running_program(server: Server) -> None:
    client = clients.start(
        server.tcp,
        """
        cuda.open()
        kept = cuda.alloc(48 << 20)
        print("open", flush=True)
        for _ in range(3):
            wait_for_line()
            try:
                cuda.free(cuda.alloc(40 << 20))
                print("got it", flush=True)
            except CudaError as error:
                print(error.result, flush=True)
        """,
        RGPU_LEASE="live",
        RGPU_MEMORY="64MiB",
    )
    assert client.stdin is not None
    assert client.stdout is not None

    def again() -> str:
        print("go", file=client.stdin, flush=True)
        return str(client.stdout.readline()).strip() if client.stdout else ""

    try:
        assert client.stdout.readline() == "open\n"
        assert again() == "2"
        rgpu(server, "lease", "resize", "live", "--memory", "128MiB")
        assert again() == "got it"
        said = rgpu(server, "lease", "resize", "live", "--memory", "16MiB")
        assert "its programs hold 48" in said
        assert "--kill ends the largest" in said
        assert again() == "2"
    finally:
        client.communicate(timeout=60)
    assert client.returncode == 0


BORROWING = """
[tenants.alice]
borrow = true
quota = {"rgpu emulated device" = {}}

[tenants.bob]
quota = {"rgpu emulated device" = {memory = "1GiB"}}
"""


def test_a_program_whose_borrowed_memory_is_asked_back_is_told(tmp_path: Path) -> None:
    """By its stderr, the log and the audit log of the server, and the list of leases."""
    config = tmp_path / "rgpu.toml"
    config.write_text(BORROWING)
    more = ("--config", str(config), "--log-level", "info")
    with Server(*more, device="emulated:1GiB") as lender:
        client = clients.start(
            lender.tcp,
            "cuda.open()\nprint('open', flush=True)\nwait_for_line()\ncuda.free(cuda.alloc(4096))",
            RGPU_TENANT="alice",
            RGPU_LEASE="lent",
            RGPU_MEMORY="768MiB",
        )
        assert client.stdout is not None
        assert client.stdout.readline() == "open\n"
        assert "memory borrowed" in rgpu(lender, "lease", "list")
        own = ("lease", "grant", "own", "--tenant", "bob", "--memory", "768MiB")
        said = rgpu(lender, *own, status=1)
        assert "have been asked back: try again in " in said
        assert re.search(r"memory borrowed.*ends in [0-9.]+ s", rgpu(lender, "lease", "list"))
        assert "its memory was borrowed, and the owner needs it" in rgpu(lender, "logs", "lent")
        for words in ("its memory was borrowed and the owner needs it", "lease_reclaim_announced"):
            wait_until(lambda words=words: any(words in line for line in lender.log))
        output, errors = client.communicate("go\n", timeout=60)
        assert (client.returncode, output) == (0, "")
        assert "this program may lose its GPU in " in errors


def test_kill_ends_a_program_that_holds_too_much(server: Server) -> None:
    client = clients.start(
        server.tcp,
        "cuda.open()\ncuda.alloc(48 << 20)\nprint('open', flush=True)\nwait_for_line()\n"
        "result = 2\nwhile result == 2:\n    try:\n        cuda.alloc(1 << 20)\n        result = 0\n"
        "    except CudaError as error:\n        result = error.result\nprint(result)",
        RGPU_LEASE="big",
        RGPU_MEMORY="64MiB",
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "open\n"
    said = rgpu(server, "lease", "resize", "big", "--memory", "16MiB", "--kill")
    output, errors = client.communicate("go\n", timeout=60)
    assert "; 1 session ended" in said
    assert output.strip() == "46", errors
    assert "was made smaller than the memory that it held" in errors


# The node


def test_the_log_names_the_path_that_carries_a_session(server: Server) -> None:
    """And not that of its HELLO, which is the Unix socket of a ring in shared memory."""
    for over in ("shm", "unix", "tcp"):
        address = server.address(over)
        assert clients.run(address, "cuda.open()", RGPU_LEASE=f"over-{over}")[0] == 0
        assert f" is open over {over}\n" in rgpu(server, "logs", f"over-{over}")


def test_a_program_is_listed_by_its_script(server: Server, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(clients.PRELUDE + "cuda.open()\nprint('open', flush=True)\nwait_for_line()")
    with subprocess.Popen(
        [sys.executable, "-u", str(script), "--password", "secret"],
        env=clients.environment(server.tcp), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        listed = rgpu(server, "ps")
        program.communicate("\n", timeout=30)
    assert re.search(r" open +driver +python[0-9.]* train\.py$", listed, re.MULTILINE), listed
    assert "secret" not in listed


def test_drain_and_undrain(server: Server) -> None:
    assert "the server takes nothing new" in rgpu(server, "drain")
    try:
        assert "was drained already: it takes nothing new" in rgpu(server, "drain")
        for command in ("devices", "ps"):
            assert rgpu(server, command).startswith("this server is drained: it takes no new lease")
        assert json.loads(rgpu(server, "devices", "--json"))["draining"] is True
        code, _, errors = clients.run(server.tcp, "cuda.open()", RGPU_LEASE="late")
        assert code != 0
        assert "being drained by its operator" in errors
        refused = rgpu(server, "lease", "grant", "late", status=1)
        assert "being drained by its operator" in refused
    finally:
        assert "the server takes new leases and sessions" in rgpu(server, "undrain")
    assert "was not drained: it takes new leases" in rgpu(server, "undrain")
    assert "drained" not in rgpu(server, "devices") + rgpu(server, "ps")
    assert clients.run(server.tcp, "cuda.open()", RGPU_LEASE="late")[0] == 0
    assert "cannot end after -1 s" in rgpu(server, "drain", "--end-after", "-1", status=1)


def cells(line: str) -> list[str]:
    """Returns the cells of a line of a table."""
    return re.split(r" {2,}", line.strip())


def test_tenants_are_listed(server: Server) -> None:
    # A grant of a whole device does not wait for the room of programs that have ended.
    wait_until(lambda: not leases_of(server.tcp))
    rgpu(server, "lease", "grant", "o", "--tenant", "owner", "--share", "0.2", "--memory", "1GiB")
    refused = rgpu(server, "lease", "grant", "o2", "--tenant", "owner", "--share", "0.4", status=1)
    assert "tenant 'owner' is at its quota of 'rgpu emulated device'" in refused
    assert "40% is 10% too much: it owns 50%, holds 20%, and 30% fits" in refused
    table = rgpu(server, "tenants")
    titles, *lines = table.splitlines()
    both = [
        f"{what} share {what} memory" for what in ("owns", "ceiling", "holds", "borrows", "idle")
    ]
    assert titles.split() == f"tenant model {' '.join(both)} leases".split()
    line = next(line for line in lines if line.startswith("owner"))
    assert cells(line)[2:] == [
        *("50%", "2 GiB"), *("none", "none"), *("20%", "1 GiB"), *("0%", "0 B"), *("30%", "1 GiB"),
        "1",
    ]  # fmt: skip
    # Its table names ceilings and no quota; that of alice neither.
    for name, ceiling in (("bob", ("150%", "2 GiB")), ("alice", ("none", "none"))):
        line = next(line for line in lines if line.startswith(name))
        assert cells(line)[2:8] == ["none", "none", *ceiling, "0%", "0 B"]
    rows = json.loads(rgpu(server, "tenants", "--json"))["tenants"]
    bob = next(row for row in rows if row["tenant"] == "bob")
    assert (bob["ceiling_share_ppm"], bob["ceiling_memory_bytes"]) == (1_500_000, 2 << 30)
    assert next(row for row in rows if row["tenant"] == "alice")["owned"] is None
    rgpu(server, "lease", "revoke", "o")
