"""Runs in the background: `rgpu run --detach`, `logs`, `attach`, `wait`, `cancel`, `ps --all`."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.command import rgpu_command, run_rgpu_plain
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_client import program
from rgpu_client.background import starting, supervisor
from rgpu_client.background.store import Run, Store, opened, processes_of
from rgpu_client.background.supervisor import Output
from rgpu_client.cluster import cancel
from rgpu_client.cluster.asking import new_request_id
from rgpu_client.session.claim import new_key
from rgpu_common.clusters import begins_id
from rgpu_common.errors import RgpuError, UsageError

PRINTS = "import sys; print('begun', flush=True); sys.stdin.read(); print('over'); sys.exit(3)"
STAYS = "import time; print('begun', flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as found:
        yield found


class Here:
    """The commands of a user with this folder for the state."""

    def __init__(self, server: Server, state: Path) -> None:
        self.folder = state
        self.environment = {"XDG_STATE_HOME": str(state), "RGPU_SERVER": server.tcp}
        self.store = Store(self.environment)

    def rgpu(self, *words: str, status: int = 0) -> str:
        """Runs a command. Returns what it printed; if it fails, what it said on stderr."""
        done = run_rgpu_plain(*words, **self.environment)
        assert done.returncode == status, done
        return done.stderr if status else done.stdout

    def detach(self, source: str, *options: str) -> Run:
        """Starts a program in the background."""
        sizes = ("--memory", "16MiB", *options)
        run = self.rgpu("run", "--detach", *sizes, "--", sys.executable, "-c", source).strip()
        found = self.store.read(run)
        assert found is not None
        return found

    def ended(self, run: Run) -> Run:
        """Returns a run once it has ended."""
        wait_until(lambda: bool(self.read(run).ended))
        return self.read(run)

    def read(self, run: Run) -> Run:
        found = self.store.read(run.id)
        assert found is not None
        return found

    def leases(self) -> dict[str, str]:
        """Returns the ids of the leases by their keys."""
        found = json.loads(self.rgpu("lease", "list", "--json"))["leases"]
        return {one["key"]: one["lease_id"] for one in found}

    def close(self) -> None:
        for run in self.store.all():
            if not run.ended and not run.lost:
                self.rgpu("cancel", run.id)


@pytest.fixture
def here(server: Server, tmp_path: Path) -> Iterator[Here]:
    found = Here(server, tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_it_runs_on_and_keeps_what_it_prints_and_its_exit_code(here: Here) -> None:
    run = here.detach("print('begun'); import sys; print('and', file=sys.stderr); sys.exit(3)",
                      "--name", "train-a")  # fmt: skip
    assert run.name == "train-a"
    assert here.rgpu("wait", "train-a", status=3) == ""
    assert sorted(here.rgpu("logs", "train-a").splitlines()) == ["and", "begun"]
    assert here.ended(run).status == 3
    assert here.rgpu("wait", run.id, status=3) == "", "it is still known"


def test_of_several_with_one_name_each_command_says_which_it_means(here: Here) -> None:
    """And none of them ends, or is shown, where two run."""
    first = here.detach("print('first'); raise SystemExit(1)", "--name", "twin")
    here.ended(first)
    second = here.detach(STAYS, "--name", "twin")
    wait_until(lambda: here.rgpu("logs", second.id) == "begun\n")
    shown = run_rgpu_plain("logs", "twin", **here.environment)
    assert shown.stdout == "begun\n"
    assert shown.stderr == f"rgpu: {second.id} is the one that still runs of 2 runs called 'twin'\n"
    third = here.detach(STAYS, "--name", "twin")
    for command in ("logs", "wait", "attach", "cancel"):
        said = here.rgpu(command, "twin", status=2)
        assert f"{second.id}" in said
        assert f"{third.id}" in said
        assert "name one of them" in said
    for run in (second, third):
        here.rgpu("cancel", run.id)
        here.ended(run)
    said = here.rgpu("wait", first.id, "twin", status=143)
    assert said.splitlines() == [
        f"rgpu: {third.id} is the newest of 3 runs called 'twin'",
        f"rgpu: twin ({first.id}) exited (1)",
        f"rgpu: twin ({third.id}) exited (143)",
    ]


def test_logs_follows_it_to_its_end(here: Here) -> None:
    # The file tells the program when to go on.
    go = here.store.folder(Run("", "")).parent / "go"
    source = (
        f"import os, time, sys; print('one', flush=True)\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "print('two'); sys.exit(4)"
    )
    here.detach(source, "--name", "followed")
    with subprocess.Popen(
        [rgpu_command(), "logs", "-f", "followed"], env={**os.environ, **here.environment},
        stdout=subprocess.PIPE, text=True,
    ) as logs:  # fmt: skip
        assert logs.stdout is not None
        assert logs.stdout.readline() == "one\n"
        go.touch()
        assert logs.stdout.readline() == "two\n"
        assert logs.wait(60) == 4


def test_its_lease_is_there_and_cancel_ends_both(here: Here, server: Server) -> None:
    run = here.detach(STAYS, "--name", "stays")
    wait_until(lambda: here.rgpu("logs", "stays") == "begun\n")
    assert "stays" in here.rgpu("ps")
    assert "running" in here.rgpu("ps", "--all")
    assert here.rgpu("cancel", run.id[:7]) == f"stays ({run.id}) was ended\n"
    assert here.ended(run).status == 128 + signal.SIGTERM
    wait_until(lambda: "stays" not in here.rgpu("ps"))
    shown = here.rgpu("ps", "--all")
    assert "exited (143)" in shown
    assert "ended lease" in shown
    said = json.loads(here.rgpu("ps", "--all", "--json"))
    assert [(one["id"], one["status"]) for one in said["background"]] == [(run.id, 143)]
    assert "stays" in {one["lease_name"] for one in said["ended"]}
    assert "nothing that runs" in here.rgpu("cancel", "stays", status=1)


@pytest.mark.parametrize("options", [(), ("--hold",)])
def test_cancel_asks_the_program_first_by_whatever_its_lease_is_called(
    here: Here, options: tuple[str, ...]
) -> None:
    run = here.detach(STAYS, *options)
    wait_until(lambda: here.rgpu("logs", run.id) == "begun\n")
    lease = here.leases()[run.id]
    assert "granted" in here.rgpu("logs", "--events", run.id)
    program = Path(sys.executable).name
    assert here.rgpu("cancel", lease) == f"{program} ({run.id}) was ended\n"
    assert here.ended(run).status == 128 + signal.SIGTERM


def test_a_program_that_ignores_sigterm_is_killed(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = here.detach(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {STAYS}")
    wait_until(lambda: here.rgpu("logs", run.id) == "begun\n")
    monkeypatch.setattr(starting, "_GRACE_SECONDS", 0.1)
    starting.end(here.store, here.read(run))
    assert here.ended(run).status == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("words", "status", "sentence"),
    [
        (("--memory", "99GiB", "--", sys.executable, "-c", ""), 125, "99 GiB"),
        (("--", "no-such-program"), 127, "there is no program 'no-such-program'"),
        (("--memory", "99GiB", "--hold", "--", sys.executable, "-c", ""), 125, "99 GiB"),
        (("--share", "2", "--", sys.executable), 2, "--share"),
    ],
)
def test_a_run_that_cannot_begin_says_so_at_once(
    here: Here, words: tuple[str, ...], status: int, sentence: str
) -> None:
    assert sentence in here.rgpu("run", "--detach", *words, status=status)


def test_attach_shows_what_comes_and_leaves_it_running(here: Here) -> None:
    run = here.detach("import time\nwhile True: print('on', flush=True); time.sleep(0.01)")
    with subprocess.Popen(
        [rgpu_command(), "attach", run.id], env={**os.environ, **here.environment},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as attached:  # fmt: skip
        assert attached.stdout is not None
        assert attached.stdout.readline() == "on\n"
        attached.send_signal(signal.SIGINT)
        _, errors = attached.communicate(timeout=60)
        assert attached.returncode == 130
    assert f"goes on; `rgpu cancel {run.name}` ends it" in errors
    assert not here.read(run).ended


def test_nobody_knows_how_it_ended_if_its_supervisor_was_killed(here: Here) -> None:
    run = here.detach(STAYS)
    wait_until(lambda: here.read(run).supervisor > 0 and here.read(run).pid > 0)
    os.kill(here.read(run).supervisor, signal.SIGKILL)
    wait_until(lambda: here.read(run).alone or here.read(run).lost)
    # It may have ended by itself: nobody reads what it prints any more.
    with suppress(ProcessLookupError):
        os.killpg(here.read(run).pid, signal.SIGKILL)
    wait_until(lambda: here.read(run).lost)
    assert "its supervisor was killed" in here.rgpu("wait", run.id, status=125)


@pytest.mark.parametrize("ignores", [False, True])
def test_a_program_whose_supervisor_was_killed_is_found_and_cancelled(
    here: Here, server: Server, monkeypatch: pytest.MonkeyPatch, ignores: bool
) -> None:
    """With what it has started, and although its first process has ended."""
    inner = "import signal; signal.signal(15, signal.SIG_IGN); " if ignores else ""
    stays = f"{inner}import time; open('here', 'w').close(); time.sleep(1000)"
    source = (
        f"import subprocess, sys, os; os.chdir({str(here.folder)!r}); "
        f"subprocess.Popen([sys.executable, '-c', {stays!r}]); "
        "import time\nwhile not os.path.exists('first'): time.sleep(0.01)"
    )
    run = here.detach(source, "--name", "orphan")
    wait_until((here.folder / "here").exists)
    leader = here.read(run).pid
    os.kill(here.read(run).supervisor, signal.SIGKILL)
    wait_until(lambda: here.read(run).alone)
    assert "running: its supervisor was killed" in here.rgpu("ps", "--all")
    with subprocess.Popen(
        [rgpu_command(), "wait", run.id], env={**os.environ, **here.environment}, text=True,
        stderr=subprocess.PIPE,
    ) as waiting:  # fmt: skip
        (here.folder / "first").touch()
        wait_until(lambda: leader not in processes_of(here.read(run)))
        assert here.read(run).alone, "its child runs on"
        assert waiting.poll() is None
        monkeypatch.setattr(starting, "_GRACE_SECONDS", 0.1 if ignores else 60.0)
        assert starting.end(here.store, here.read(run)) == f"orphan ({run.id}) was ended"
        assert waiting.wait(60) == 125
        assert waiting.stderr is not None
        assert "nobody knows how orphan ended" in waiting.stderr.read()
    assert here.read(run).lost
    assert not processes_of(here.read(run))
    assert starting.end(here.store, here.read(run)) == "orphan has ended already"


def test_cancel_ends_a_program_whose_supervisor_was_killed(here: Here, server: Server) -> None:
    run = here.detach(STAYS, "--name", "orphan")
    wait_until(lambda: here.rgpu("logs", "orphan") == "begun\n")
    os.kill(here.read(run).supervisor, signal.SIGKILL)
    wait_until(lambda: here.read(run).alone)
    assert here.rgpu("cancel", "orphan") == f"orphan ({run.id}) was ended\n"
    wait_until(lambda: "orphan" not in here.rgpu("ps"))


@pytest.mark.parametrize("hold", [(), ("--hold",)])
@pytest.mark.parametrize(
    ("script", "status", "sentence"),
    [
        ("#!/no/such/interpreter\n", 127, "the interpreter that it names"),
        ("no program\n", 126, "cannot be started: Exec format error"),
    ],
)
def test_a_program_that_the_system_does_not_execute_has_failed(
    here: Here, hold: tuple[str, ...], script: str, status: int, sentence: str
) -> None:
    program = here.folder / "program"
    program.write_text(script)
    program.chmod(0o755)
    said = here.rgpu("run", "--detach", *hold, "--", str(program), status=status)
    assert sentence in said
    assert "runs in the background" not in said
    (run,) = here.store.all()
    assert (run.status, run.lost) == (status, False)


def test_names_that_nobody_has_are_said(here: Here) -> None:
    """With the exit code that `cancel` and `logs` have for them, too."""
    for command in ("cancel", "logs"):
        assert "'x'" in here.rgpu(command, "x", status=1)
    for command in ("attach", "wait"):
        assert "no run in the background of this machine is called 'x'" in here.rgpu(
            command, "x", status=1
        )


def test_a_program_can_be_interrupted_as_in_the_foreground(here: Here) -> None:
    run = here.detach(f"import signal; print(signal.getsignal(signal.SIGINT)); {STAYS}")
    wait_until(lambda: here.rgpu("logs", run.id).endswith("begun\n"))
    assert "default_int_handler" in here.rgpu("logs", run.id)


def test_a_supervisor_that_cannot_begin_is_said(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    source = (
        "from rgpu_client.background import starting; starting._SUPERVISOR = 'exit(1)'; "
        "starting.detach('train', [])"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", source], env={**os.environ, **environment}, text=True,
        capture_output=True,
    )  # fmt: skip
    assert "the run cannot be started: see whether there is room" in done.stderr
    assert done.stdout == ""
    assert Store(environment).all() == []


# Pure


def test_the_lease_of_a_run_is_called_as_the_run_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has two ids for one thing, and a manager's request nobody can guess."""
    run = Run("run-0123456789ab", "train")
    # These lists are written in place, and other tests of this process have leases, too.
    monkeypatch.setattr(program, "_begun", [])
    monkeypatch.setattr(program, "_supervisors", [])
    monkeypatch.setenv(program.BACKGROUND, run.id)
    assert not run.has_lease(new_key()), "the program of a run starts runs of its own"
    assert not run.has_lease(new_request_id())
    read, write = os.pipe()
    monkeypatch.setenv(program.STARTED, str(write))
    program.keep_started()
    assert new_key() == run.id
    first, second = new_request_id(), new_request_id()
    assert first != second
    for key in (run.id, f"{run.id}.1", first, f"{second}.12"):
        assert run.has_lease(key)
        assert begins_id(key, run.id)
    for key in ("", "train", f"{run.id}0", f"{run.id}.", f"{run.id}.x", "run-0123456789ac"):
        assert not run.has_lease(key)
    program.say_started()
    os.close(read)


def test_cancel_ends_a_run_for_each_of_its_leases_and_nothing_that_is_only_called_so() -> None:
    run = Run("run-0123456789ab", "train")
    key = f"{run.id}{'0' * 20}"
    here = [_target(run.id, names=("train",), run=run)]
    targets = [
        *here,
        _target(key, key=key),
        _target("gpu1/lease-3", names=(f"{key}.1",), key=f"{key}.1"),
        _target("gpu2/lease-3", names=("train", run.id), key="train"),
    ]
    for word in ("train", run.id, key, f"{key}.1"):
        assert cancel._exactly(here, word) == here
    for word in ("gpu1/lease-3", "run-0123"):
        assert cancel._meant(targets[:-1], here, word) == here
    # A tenant calls runs what he likes.
    assert cancel._meant(targets, here, "gpu2/lease-3") == [targets[-1]]


def _target(
    word: str, *, names: tuple[str, ...] = (), key: str = "", run: Run | None = None
) -> cancel.Target:
    return cancel.Target(word, names, ("", ""), word, lambda: "", key=key, run=run)


def test_a_run_is_found_by_its_id_its_name_or_how_its_id_begins(tmp_path: Path) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    first, second = store.new("train", ["x"]), store.new("train", ["y"])
    other = store.new("test", ["z"])
    for number, run in enumerate((first, second, other)):
        store.write(run._replace(began=float(number)))
    with pytest.raises(
        UsageError, match=rf"'train' may be train \({first.id}\), train \({second.id}\)"
    ):
        store.find("train")
    assert [one.id for one in map(store.find, (first.id, first.id[:-1], "test")) if one] == [
        first.id, first.id, other.id,
    ]  # fmt: skip
    for ended, meant in ((second, first), (first, second)):
        known = store.read(ended.id)
        assert known is not None
        store.write(known._replace(ended=9.0))
        found = store.find("train")
        assert found is not None
        assert found.id == meant.id, "the one that runs, else the newest"
    # A lease of that name may be meant.
    for text in ("nobody", "", "t", "trai", "run", "run-"):
        assert store.find(text) is None
    twin = Run("run-0123456789ab", "twin")._replace(machine=first.machine, ended=1.0)
    for run in (twin, twin._replace(id="run-0123456789cd")):
        store.folder(run).mkdir()
        store.write(run)
    with pytest.raises(UsageError, match=r"'run-0123' may be .*name one of them"):
        store.find("run-0123")


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{}", '{"id": 3}', '{"id": "a/../b"}', '{"id": ".."}', '{"id": "."}', "\x00",
     "[" * 100_000],
)  # fmt: skip
def test_a_record_that_cannot_be_read_is_no_run(tmp_path: Path, record: str) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    run = store.new("train", [])
    (store.folder(run) / "run.json").write_text(record)
    assert store.all() == []
    store.clean(run.began + 1e9)
    assert store.folder(run).exists(), "what is not known is not removed"


def test_each_machine_knows_its_own_runs(tmp_path: Path) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    run = store.new("train", [])
    store.write(run._replace(machine="another"))
    assert store.all() == []
    store.clean(run.began + 1e9)
    assert store.folder(run).exists(), "it may run on there"


@pytest.mark.parametrize(
    "change",
    [{"boot": "another"}, {"since": 1}, {"supervisor": 1}, {"supervisor": 0}, {"supervisor": -1},
     {"supervisor": 1 << 70}],
)  # fmt: skip
def test_a_process_with_the_number_of_a_supervisor_is_none(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    run = store.new("train", [])
    assert opened(run) is not None, "this process"
    store.write(run._replace(pid=1, **change))
    found = store.read(run.id)
    assert found is not None
    assert found.lost
    assert opened(found) is None
    assert starting.end(store, found) == "train has ended already"


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_folder_in_which_others_write_is_not_read(tmp_path: Path, mode: int) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    run = store.new("train", [])
    store.folder(run).parent.chmod(mode)
    assert store.all() == []
    with pytest.raises(RgpuError, match="belongs to another user, or others can write there"):
        store.new("train", [])


def test_a_relative_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store({"XDG_STATE_HOME": "state", "HOME": str(tmp_path / "home")})
    run = store.new("train", [])
    assert store.folder(run).parent == tmp_path / "home/.local/state/rgpu/runs"
    with pytest.raises(RgpuError, match="you have no home folder"):
        Store({"HOME": "home"}).new("train", [])


def test_an_output_whose_file_could_not_be_made_goes_on(tmp_path: Path) -> None:
    with Output(tmp_path / "output", tmp_path / "output.0", most=10) as output:
        output.add(b"first....\n")
        (tmp_path / "output").unlink()  # as after a change of files that found no room
        output.add(b"second")
    assert (tmp_path / "output").read_bytes() == b"second"


def test_the_end_is_noted_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    run = store.new("train", [])
    store.older(run).touch()
    write = store.write

    def full(run: Run) -> None:
        if store.older(run).exists():
            raise OSError(errno.ENOSPC, "full")
        write(run)

    monkeypatch.setattr(store, "write", full)
    supervisor._note(store, run._replace(ended=1.0))
    found = store.read(run.id)
    assert found is not None
    assert found.ended == 1.0


def test_a_descriptor_that_no_supervisor_gave_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in ("1", "2", str(1 << 70), "x"):
        monkeypatch.setenv(program.STARTED, text)
        program.keep_started()
        program.say_started()
    os.fstat(1), os.fstat(2)


def test_old_runs_are_forgotten(tmp_path: Path) -> None:
    store = Store({"XDG_STATE_HOME": str(tmp_path)})
    old, new = store.new("old", []), store.new("new", [])
    store.write(old._replace(began=1.0, ended=2.0))
    store.clean(new.began)
    assert [run.name for run in store.all()] == ["new"]
    assert not store.folder(old).exists()


def test_a_long_output_keeps_its_end(tmp_path: Path) -> None:
    with Output(tmp_path / "output", tmp_path / "output.0", most=100) as output:
        for number in range(100):
            output.add(b"%09d\n" % number)
    kept = (tmp_path / "output.0").read_bytes() + (tmp_path / "output").read_bytes()
    lines = kept.split()
    assert lines[-1] == b"%09d" % 99
    assert 10 <= len(lines) <= 20
    assert lines == [b"%09d" % n for n in range(100 - len(lines), 100)]
