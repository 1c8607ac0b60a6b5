"""Commands that follow a manager: they ask all nodes of its cluster, or the one that is named."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from helpers.command import run_rgpu_plain
from helpers.manager import ManagerProcess
from helpers.nodes import Nodes, configured, ended, started
from helpers.waiting import wait_until

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "reference" / "json-schema.json").read_text()
)
RACKS = {"gpu1": "r1", "gpu2": "r2"}
TABLES = ("ps", "devices", "lease list", "tenants", "quota report", "logs", "top --once", "smi")


@pytest.fixture(scope="module")
def pair() -> Iterator[Nodes]:
    with ManagerProcess() as manager, Nodes(manager, RACKS, "emulated:512MiB") as nodes:
        yield nodes


@pytest.fixture(scope="module")
def busy(pair: Nodes) -> Iterator[Nodes]:
    """A program on each node."""
    # A node has room for one of them.
    sizes = ("--share", "60%", "--memory", "64MiB", "--tenant", "alice")
    address = pair.manager.address
    with (
        started(address, *sizes, "--name", "first") as one,
        started(address, *sizes, "--name", "second") as two,
    ):
        for run in (one, two):
            assert run.stdout is not None
            run.stdout.readline()
        yield pair
        for run in (one, two):
            code, lines, said = ended(run)
            assert (code, lines) == (0, ["right"]), said


def lease_on(busy: Nodes, node: str) -> dict[str, Any]:
    """The lease of the program that `busy` has on a node."""
    (found,) = (one for one in busy.leases(node) if one["name"] in ("first", "second"))
    return found


@contextmanager
def waiting(nodes: Nodes, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A run that waits in line; both nodes have no room for it."""
    sizes = ("--share", "60%", "--wait")
    with started(nodes.manager.address, *sizes, *options) as run:
        assert run.stderr is not None
        assert "waiting for room" in run.stderr.readline()
        yield run


def asked(nodes: Nodes, words: str, status: int = 0) -> str:
    """Runs a command with RGPU_MANAGER. Returns what it printed; if it fails, its sentence."""
    done = rgpu(nodes, words)
    assert done.returncode == status, done
    return done.stderr if status else done.stdout


def rgpu(nodes: Nodes, words: str) -> subprocess.CompletedProcess[str]:
    return run_rgpu_plain(*words.split(), RGPU_MANAGER=nodes.manager.address)


@pytest.mark.parametrize("words", TABLES)
def test_a_table_has_the_rows_of_all_nodes(busy: Nodes, words: str) -> None:
    def shown() -> bool:
        # What a server has recorded is a second old.
        text = asked(busy, words)
        of_tenant = words in ("devices", "logs", "smi") or "alice" in text
        return "gpu1" in text and "gpu2" in text and of_tenant

    wait_until(shown)
    one = asked(busy, f"{words} --node gpu2")
    assert "gpu1" not in one
    assert "node" not in one.split(), "one node's table is that of its server"


@pytest.mark.parametrize("command", SCHEMA["commands_of_a_cluster"])
def test_json_has_an_answer_of_each_node(busy: Nodes, command: str) -> None:
    said = json.loads(asked(busy, command.removeprefix("rgpu ")))
    form = {"$defs": SCHEMA["$defs"], **SCHEMA["commands_of_a_cluster"][command]}
    jsonschema.Draft202012Validator(form).validate(said)
    assert {row["node"] for row in said["nodes"]} == {"gpu1", "gpu2"}
    assert all(row["failure"] is None and row["answer"] for row in said["nodes"])
    one = json.loads(asked(busy, f"{command.removeprefix('rgpu ')} --node gpu1"))
    form = {"$defs": SCHEMA["$defs"], **SCHEMA["commands"][command]}
    jsonschema.Draft202012Validator(form).validate(one)


def test_a_server_that_is_named_counts_before_the_manager(busy: Nodes) -> None:
    address = busy.servers["gpu1"].tcp
    assert "node" not in asked(busy, f"ps --server {address}").split()
    both = run_rgpu_plain("ps", RGPU_MANAGER=busy.manager.address, RGPU_SERVER=address)
    assert "node" not in both.stdout.split()
    whole = run_rgpu_plain("ps", "--manager", busy.manager.address, RGPU_SERVER=address)
    assert "gpu2" in whole.stdout


def test_what_is_waiting_at_the_manager_is_in_ps(busy: Nodes) -> None:
    with waiting(busy, "--name", "queued") as run:
        assert "in line" in asked(busy, "ps")
        assert [one["name"] for one in json.loads(asked(busy, "ps --json"))["waiting"]] == [
            "queued"
        ]
        assert "does not wait any more" in asked(busy, "cancel queued")
        check_cancelled(run)


def test_a_lease_is_found_on_its_node(busy: Nodes) -> None:
    leases = {node: lease_on(busy, node) for node in RACKS}
    for node, lease in leases.items():
        key = str(lease["key"])
        called = str(lease["name"])
        for name in (key, key[:-8], called, f"{node}/{lease['lease_id']}"):
            assert f"{node}/{lease['lease_id']} is paused" in asked(busy, f"lease pause {name}")
            assert f"{node}/{lease['lease_id']} goes on" in asked(busy, f"lease resume {name}")
            assert f"{node}/{lease['lease_id']} ({called})  granted" in asked(busy, f"logs {name}")
        begin = called[:-1]
        assert f"there is no lease '{begin}'" in asked(busy, f"lease pause {begin}", status=1)
    assert "there is no lease 'nope'" in asked(busy, "lease pause nope", status=1)
    assert "there is no log of a lease 'nope'" in asked(busy, "logs nope", status=1)


def test_one_server_is_changed_by_the_name_of_its_node(pair: Nodes) -> None:
    assert "say which node to drain: gpu1, gpu2" in asked(pair, "drain", status=2)
    assert "there is no node 'gpu3': name one of gpu1, gpu2" in asked(pair, "drain gpu3", status=1)
    for begin in ("gpu", "g"):
        assert f"there is no node '{begin}'" in asked(pair, f"drain {begin}", status=1)
        assert f"there is no node '{begin}'" in asked(pair, f"ps --node {begin}", status=1)
    assert "say which node to grant the lease on" in asked(pair, "lease grant job", status=2)
    assert asked(pair, "drain gpu1").startswith("node gpu1 takes nothing new")
    assert "node gpu1 is drained" in asked(pair, "devices")
    assert "`rgpu undrain gpu1`" in asked(pair, "devices")
    assert asked(pair, "undrain gpu1").startswith("node gpu1 takes new leases")
    assert "of a cluster: name its manager" in run_rgpu_plain("drain", "gpu1").stderr


def test_a_lease_is_granted_on_a_node(pair: Nodes) -> None:
    asked(pair, "lease grant kept --memory 16MiB --ttl 600 --node gpu2")
    assert [one["key"] for one in pair.leases("gpu2") if one["key"] == "kept"] == ["kept"]
    assert "was revoked" in asked(pair, "lease revoke kept")


NAMED = ("ps", "pool", "lease list", "top --once", "logs")


@pytest.mark.parametrize("words", NAMED)
def test_what_a_run_is_called_is_everywhere(busy: Nodes, words: str) -> None:
    wait_until(lambda: {"first", "second"} <= words_of(asked(busy, words)))


def words_of(text: str) -> set[str]:
    return set(text.replace("(", " ").replace(")", " ").split())


def test_events_metrics_and_explanations_have_the_name(busy: Nodes) -> None:
    placed = [one for one in busy.manager.events() if one["kind"] == "placed"]
    assert {one["name"] for one in placed} >= {"first", "second"}
    request = of_name(busy, "first")
    for word in ("first", request, request[:-8]):
        assert asked(busy, f"explain {word}").startswith(f"request {request}: placed")
    for word in ("third", "fir", "run-"):  # people's names and our words are no begins
        assert f"the manager knows no request '{word}'" in asked(busy, f"explain {word}", status=1)


def of_name(nodes: Nodes, name: str) -> str:
    """The id of the request that is called so."""
    (found,) = {
        lease["request_id"]
        for node in nodes.manager.pool()["nodes"]
        for card in node["cards"]
        for lease in card["leases"]
        if lease["name"] == name
    }
    return str(found)


def test_a_run_without_a_name_is_called_by_its_program(busy: Nodes) -> None:
    with waiting(busy) as run:
        (row,) = busy.manager.pool()["waiting"]
        assert row["name"].startswith("python"), row
        assert "does not wait any more" in asked(busy, f"cancel {row['request_id'][:14]}")
        check_cancelled(run)


def check_cancelled(run: subprocess.Popen[str]) -> None:
    """A run that is cancelled ends, and says why."""
    _, errors = run.communicate(timeout=60)
    assert run.returncode == 125
    assert "was cancelled with `rgpu cancel`" in errors


def test_cancel_ends_what_is_called_so(busy: Nodes) -> None:
    with waiting(busy, "--name", "late") as run:
        assert "nothing that runs, waits or is reserved is called 'nobody'" in asked(
            busy, "cancel late nobody", status=1
        )
        assert len(busy.manager.pool()["waiting"]) == 1, "all names are looked up first"
        assert "late (run-" in asked(busy, "cancel late")
        check_cancelled(run)


def test_cancel_ends_the_runs_of_a_gang(busy: Nodes) -> None:
    gang = ("--gang", "crew:3")
    with waiting(busy, *gang) as one, waiting(busy, *gang) as two:
        said = asked(busy, "cancel crew").splitlines()
        assert len(said) == 2
        assert all("does not wait any more" in line for line in said)
        check_cancelled(one)
        check_cancelled(two)


def test_cancel_ends_a_run_and_a_reservation(pair: Nodes) -> None:
    address = pair.manager.address
    with started(address, "--name", "doomed", "--memory", "16MiB") as run:
        assert run.stdout is not None
        assert run.stdout.readline()
        assert "doomed (run-" in asked(pair, "cancel doomed")
        wait_until(lambda: not any(one["name"] == "doomed" for one in all_leases(pair)))
    for order in ("cancel", "release"):  # both say the same, on stdout
        booked = asked(pair, "reserve --name kept --for 1h --memory 16MiB --share 1%").strip()
        assert asked(pair, f"{order} kept") == f"reservation {booked} was released\n"


@pytest.mark.parametrize("by", ["id", "request", "lease", "name"])
def test_each_word_for_a_background_run_and_its_lease_means_both(
    pair: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    run = asked(pair, f"run --detach --memory 16MiB --name {by} -- sleep 600").strip()
    (lease,) = (one for one in all_leases(pair) if one["name"] == by)
    assert str(lease["key"]).startswith(run)
    (node,) = (name for name in RACKS if any(one["name"] == by for one in pair.leases(name)))
    shown = f"{node}/{lease['lease_id']}"
    assert f"{shown} is paused" in asked(pair, f"lease pause {run}")
    assert f"{shown} goes on" in asked(pair, f"lease resume {run}")
    assert f"{shown} ({by})  granted" in asked(pair, f"logs --events {run}")
    assert f"request {lease['key']}: placed" in asked(pair, f"explain {run}")
    assert asked(pair, f"logs {lease['key']}") == "", "what the run has printed"
    word = {"id": run, "request": lease["key"], "lease": shown, "name": by}[by]
    assert asked(pair, f"cancel {word}") == f"{by} ({run}) was ended\n"
    asked(pair, f"wait {run}", status=128 + signal.SIGTERM)
    wait_until(lambda: not any(one["name"] == by for one in all_leases(pair)))


def test_runs_that_name_one_lease_share_it(pair: Nodes) -> None:
    sizes = ("--memory", "32MiB", "--share", "10%")
    address = pair.manager.address
    with started(address, "--lease", "shared", *sizes) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == f"{32 << 20}\n"
        with started(address, "--lease", "shared", "-v") as two:
            assert two.stdout is not None
            assert two.stdout.readline() == f"{32 << 20}\n", "it has the sizes of the lease"
            (lease,) = [one for one in all_leases(pair) if one["name"] == "shared"]
            assert len(lease["session_ids"]) == 2
            code, lines, said = ended(two)
            assert (code, lines) == (0, ["right"]), said
            assert f"joined (lease {lease['key']})" in said
        assert ended(one)[:2] == (0, ["right"])
    wait_until(lambda: not any(one["name"] == "shared" for one in all_leases(pair)))


def test_a_lease_of_several_cards_is_joined_as_it_is(pair: Nodes) -> None:
    cards = ("--cards", "2", "--across-nodes", "--memory", "16MiB", "--share", "5%")
    with started(pair.manager.address, "--lease", "both", *cards) as one:
        assert one.stdout is not None
        assert one.stdout.readline()
        with started(pair.manager.address, "--lease", "both", source=SHOWS) as two:
            lines, _ = two.communicate(timeout=60)
        held = [one for one in all_leases(pair) if one["name"] == "both"]
        assert len(held) == 2
        assert lines.split() == [min(str(one["key"]) for one in held), "2"]
        assert ended(one)[:2] == (0, ["right"])


# The lease and the number of devices that it was told.
SHOWS = """
import os
print(os.environ["RGPU_LEASE"], len(os.environ["RGPU_DEVICE"].split(",")))
"""


def all_leases(nodes: Nodes) -> list[dict[str, Any]]:
    return [lease for name in RACKS for lease in nodes.leases(name)]


def test_cancel_reaches_who_waits_at_a_server(busy: Nodes) -> None:
    """The manager does not know it: its claim is in the server's own line."""
    server = busy.servers["gpu1"].tcp
    with started("", "--server", server, "--share", "60%", "--wait", "--name", "direct") as run:
        assert run.stderr is not None
        assert "waiting for room" in run.stderr.readline()
        assert "direct does not wait any more" in asked(busy, "cancel direct")
        check_cancelled(run)


def test_outside_a_lease_smi_shows_the_whole_card(busy: Nodes) -> None:
    (card,) = json.loads(asked(busy, "smi --json --node gpu1"))["devices"]
    assert card["memory_total_bytes"] == 512 << 20
    assert card["compute_capability"] == "8.0"
    lease = str(lease_on(busy, "gpu1")["key"])
    sessions = json.loads(asked(busy, "ps --json --node gpu1"))["sessions"]
    (program,) = (one["program"] for one in sessions if one["lease_key"] == lease)
    assert [one["program"] for one in card["processes"]] == [program]
    words = ("smi", "--json", "--node", "gpu1", "--lease", lease)
    done = run_rgpu_plain(*words, RGPU_MANAGER=busy.manager.address, RGPU_TENANT="alice")
    (part,) = json.loads(done.stdout)["devices"]
    assert part["memory_total_bytes"] == 64 << 20, "in it what it has"


def test_doctor_looks_at_each_node(pair: Nodes) -> None:
    found = json.loads(asked(pair, "doctor --json"))["findings"]
    ports = [row for row in found if row["area"] == "port"]
    assert [row["level"] for row in ports] == ["ok", "ok"]
    assert {row["sentence"].split(":")[0] for row in ports} == {"node gpu1", "node gpu2"}


def test_completion_offers_the_leases_of_all_nodes(busy: Nodes) -> None:
    keys = {str(lease_on(busy, node)["key"]) for node in RACKS}
    assert keys <= set(asked(busy, "completion leases").split())


def test_a_node_that_is_away_hides_no_other(tmp_path: Path) -> None:
    # The manager does not give it up while it is asked.
    patient = "[nodes]\nsilence_seconds = 600\n"
    with configured(tmp_path, patient, RACKS, "emulated:256MiB") as nodes:
        nodes.kill("gpu1")
        wait_until(lambda: nodes.manager.connected() == {"gpu2"})
        done = rgpu(nodes, "devices")
        assert "gpu2" in done.stdout
        assert "gpu1" not in done.stdout
        assert "rgpu: node gpu1: it is not connected to its manager" in done.stderr
        assert done.returncode == 0, "the manager knows, so nothing is wrong with the answer"
        rows = json.loads(asked(nodes, "devices --json"))["nodes"]
        assert [(row["node"], row["answer"] is None) for row in rows] == [
            ("gpu1", True),
            ("gpu2", False),
        ]
        assert "is not connected to its manager" in asked(nodes, "ps --node gpu1", status=1)
