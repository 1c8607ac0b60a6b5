"""How `.ci/run` runs its stages: their order, what a failure ends, and what is printed.

Each test is a process of its own, as `.ci/run` is, because the runner takes in every orphan.
"""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "scripts" / "ci"
DEADLINE_SECONDS = 60.0
PROGRAM = """
import os, sys
from pathlib import Path
from runner import Run, Stage
stages = [{stages}]
run = Run(stages, Path("logs"), dict(os.environ), processors={processors})
sys.exit(0 if run.run() else 1)
"""


class Runner:
    """Runs stages in a folder where they can leave files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *stages: str, processors: int = 2) -> subprocess.Popen[str]:
        program = PROGRAM.format(stages=", ".join(stages), processors=processors)
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(CI)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *stages: str, processors: int = 2) -> tuple[int, str]:
        """Returns the exit status and what was printed."""
        with self.start(*stages, processors=processors) as process:
            out, err = process.communicate(timeout=DEADLINE_SECONDS)
        assert err == ""
        return process.returncode, out

    def results(self, out: str) -> dict[str, str]:
        """Returns the results of the table by stage."""
        lines = out.splitlines()
        (header,) = (n for n, line in enumerate(lines) if line.startswith("stage "))
        rows = (line.split("  ") for line in lines[header + 1 :])
        cells = ([cell.strip() for cell in row if cell.strip()] for row in rows)
        return {row[0]: row[1] for row in cells if row[0] != "all"}


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_stage_begins_when_what_it_needs_has_passed(runner: Runner) -> None:
    code, out = runner.run(
        "Stage('first', 'echo one >file')",
        "Stage('second', 'cat file; echo two >>file', after=('first',))",
        "Stage('third', 'cat file', after=('first', 'second'), shown=2)",
    )
    assert code == 0
    assert runner.results(out) == {"first": "passed", "second": "passed", "third": "passed"}
    assert out.index("first: passed") < out.index("second: begins")
    assert out.index("second: passed") < out.index("third: begins")
    assert "\none\ntwo\n" in out


def test_stages_run_side_by_side(runner: Runner) -> None:
    """Each waits for the other's file."""
    code, _ = runner.run(
        "Stage('a', 'echo >a; until [ -e b ]; do sleep 0.01; done')",
        "Stage('b', 'echo >b; until [ -e a ]; do sleep 0.01; done')",
    )
    assert code == 0


def test_a_stage_waits_for_its_processors_but_an_idle_one_for_none(runner: Runner) -> None:
    """The large stage finds no trace of the small one, which stands behind it, and the idle one runs
    beside it.
    """
    code, out = runner.run(
        "Stage('large', 'until [ -e idle ]; do sleep 0.01; done; [ ! -e small ]', processors=2)",
        "Stage('small', 'echo >small')",
        "Stage('idle', 'chrt --pid $$ | grep IDLE; echo >idle', idle=True)",
    )
    assert code == 0, out
    assert out.index("large: passed") < out.index("small: begins")


def test_a_large_stage_is_not_overtaken_for_ever(runner: Runner) -> None:
    code, out = runner.run(
        "Stage('before', 'echo')",
        "Stage('large', 'echo', processors=2)",
        "Stage('small', 'echo')",
    )
    assert code == 0
    assert out.index("large: passed") < out.index("small: begins")


def test_a_stage_that_wants_more_processors_than_there_are_runs_alone(runner: Runner) -> None:
    code, _ = runner.run("Stage('large', 'echo', processors=2)", processors=1)
    assert code == 0


def test_a_failure_shows_the_end_of_its_log_and_ends_the_others(runner: Runner) -> None:
    code, out = runner.run(
        "Stage('long', 'echo $$ >pid; echo >>ready; sleep 1000', idle=True)",
        "Stage('bad', 'until [ -e ready ]; do sleep 0.01; done; echo it is so; exit 3')",
        "Stage('next', 'echo', after=('bad',))",
    )
    assert code == 1
    assert "bad: FAILED with exit status 3" in out
    assert "\nit is so\n== bad FAILED\n" in out
    assert runner.results(out) == {"long": "ended", "bad": "FAILED", "next": "not begun"}
    assert not alive(int((runner.folder / "pid").read_text()))


def test_a_command_that_fails_in_the_middle_fails_its_stage(runner: Runner) -> None:
    code, out = runner.run("Stage('bad', 'false\\necho never')")
    assert code == 1
    assert "never" not in out
    code, _ = runner.run("Stage('bad', 'false | cat')")
    assert code == 1


def test_no_process_outlives_the_run(runner: Runner) -> None:
    """Not even one that has left its stage's session and ignores signals, when all has passed."""
    daemon = 'trap "" INT TERM HUP; echo $$ >pid; echo >ready; while :; do sleep 0.1; done'
    code, _ = runner.run(
        f"Stage('good', '''setsid bash -c '{daemon}' & until [ -e ready ]; do sleep 0.01; done''')"
    )
    assert code == 0
    assert not alive(int((runner.folder / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_stages_and_the_table_is_printed(
    runner: Runner, number: signal.Signals
) -> None:
    with runner.start("Stage('long', 'echo $$ >pid; mv pid there; sleep 1000')") as process:
        wait_until((runner.folder / "there").exists)
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, err) == (1, "")
    assert runner.results(out) == {"long": "ended"}
    assert not alive(int((runner.folder / "there").read_text()))


def test_the_table_has_seconds_and_processor_seconds(runner: Runner) -> None:
    busy = "while __import__('time').process_time() < 1.2: pass"
    code, out = runner.run(f"Stage('busy', '''{sys.executable} -c \"{busy}\"''')")
    assert code == 0, out
    header, row, whole = out.splitlines()[-3:]
    assert header.split("  ")[-1] == "processor seconds"
    assert int(row.split()[-1]) >= 1
    assert whole.startswith("all ")


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        (["Stage('a', '', after=('b',))", "Stage('b', '')"], "stage a needs b, which does not"),
        (["Stage('a', '')", "Stage('a', '')"], "two stages are called a"),
    ],
)
def test_a_list_that_cannot_run_is_refused(runner: Runner, stages: list[str], said: str) -> None:
    with runner.start(*stages) as process:
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1
    assert said in err


def ci(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CI), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_stages_of_ci_run_are_in_an_order_that_can_run() -> None:
    listed = ci("--list")
    assert listed.returncode == 0, listed.stderr
    assert {"checks", "wheel", "tests", "containers", "sanitizers", "fuzz"} <= set(
        listed.stdout.split()
    )
    unknown = ci("never")
    assert unknown.returncode == 2
    assert "there is no stage never; there are packages, tools, checks," in unknown.stderr


def test_requirements_of_extras_are_those_of_the_project() -> None:
    command = [sys.executable, str(CI / "requirements.py"), "arrays", "cupy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    names = {line.split(">")[0].split("<")[0] for line in done.stdout.splitlines()}
    # cupy needs the extras server and arrays.
    assert {"grpcio", "msgpack", "numpy", "scipy", "uvloop", "h11"} <= names
    assert not any("rgpu" in name for name in names)


@pytest.mark.parametrize(("only", "left"), [("False", "a b c"), ("True", "a c")])
def test_named_stages_run_with_what_they_need_or_only_they(
    runner: Runner, only: str, left: str
) -> None:
    program = f"""
from runner import Stage, select
stages = [Stage("a", ""), Stage("b", "", after=("a",)), Stage("c", "", after=("a", "b"))]
for stage in select([*stages, Stage("d", "")], ["c", "a"], {only}):
    print(stage.name, *stage.after)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(CI)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    needs = [line.split() for line in done.stdout.splitlines()]
    assert " ".join(name for name, *_ in needs) == left
    assert {after for _, *afters in needs for after in afters} < {*left.split()}


def test_the_torch_stage_has_every_file_that_needs_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All other stages leave out what needs it."""
    page = runpy.run_path(str(ROOT / "scripts" / "gen_tests_page.py"))
    needing = page["written"](page["PAGE"].read_text(encoding="utf-8"))["torch"]
    monkeypatch.syspath_prepend(CI)
    stages = runpy.run_path(str(CI / "stages.py"))["STAGES"]
    (script,) = [stage.commands for stage in stages if stage.name == "torch"]
    patterns = re.findall(r"tests/[\w/*]+\.py", script)
    assert needing
    assert [f for f in needing if not any(fnmatch.fnmatch(f, p) for p in patterns)] == []
