"""Which failures of a test that measures are judged again, and which are final."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.stolen import own_ticks, taken_ticks

# Of what tests use, not of rgpu.
pytestmark = pytest.mark.full

TESTS = Path(__file__).resolve().parents[1]
# Others take `part` of the processors while the test runs, and none in between.
CALM = """
import sys
sys.path.insert(0, {tests!r})
from helpers import undisturbed
undisturbed.Stolen = lambda: type("Stolen", (), {{"part": lambda self: {part}}})()
"""
CONFTEST = f"""{CALM}
undisturbed.wait_for_calm = lambda: None
def pytest_runtest_protocol(item, nextitem):
    return undisturbed.run_undisturbed(item, nextitem)
def pytest_runtest_makereport(item, call):
    undisturbed.remember_error(item, call)
def pytest_terminal_summary(terminalreporter):
    for sentence in undisturbed.repetitions(terminalreporter.stats):
        terminalreporter.write_line(sentence)
"""
TEST = """
from pathlib import Path
from helpers.figures import figures
RUNS = Path(__file__).with_name("runs")
def test():
    with RUNS.open("a") as file:
        file.write("x")
    runs = len(RUNS.read_text())
    {body}
"""
LEAK = """
import pytest
@pytest.fixture
def leak():
    yield
    raise OSError("left")
"""
LATER = "with figures(): assert runs > 2"
NEVER = "with figures(): assert runs < 0"
COUNT = "assert runs < 0"
ERROR = "raise OSError"


def run(folder: Path, test: str, part: float) -> tuple[str, int]:
    """Runs a test while others take `part` of the processors; returns the output of pytest and
    how often the test ran.
    """
    (folder / "conftest.py").write_text(CONFTEST.format(tests=str(TESTS), part=part))
    (folder / "test_it.py").write_text(test)
    words = ["-q", "-p", "no:cacheprovider", "--rootdir", folder, folder]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=folder, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr, len((folder / "runs").read_text())


@pytest.mark.parametrize(
    ("body", "part", "outcome", "runs"),
    [
        (LATER, 0.03, "1 passed", 3),
        (LATER, 0.0, "1 failed", 1),
        (NEVER, 0.03, "1 failed", 5),
        (NEVER, 0.3, "1 skipped", 5),
        (COUNT, 0.3, "1 failed", 1),
        (ERROR, 0.3, "1 failed", 1),
    ],
)
def test_only_figures_are_judged_again(
    tmp_path: Path, body: str, part: float, outcome: str, runs: int
) -> None:
    output, ran = run(tmp_path, TEST.format(body=body), part)
    assert outcome in output
    assert ran == runs
    assert output.count("of the processors: repeated") == runs - 1


def test_an_off_figure_does_not_excuse_what_a_fixture_finds(tmp_path: Path) -> None:
    test = TEST.format(body=NEVER).replace("def test()", "def test(leak)") + LEAK
    output, ran = run(tmp_path, test, 0.3)
    assert "1 failed, 1 error" in output
    assert ran == 1


# The run's lock for tests: a test that is alone holds it exclusively.
BESIDE = """
import fcntl
from pathlib import Path
import pytest
from helpers.figures import figures
@pytest.mark.measures
@pytest.mark.parametrize("name", NAMES)
def test(request, name):
    with Path(request.config.workerinput["turns"], "running").open() as running:
        try:
            fcntl.flock(running, fcntl.LOCK_SH | fcntl.LOCK_NB)
            alone = False
        except BlockingIOError:
            alone = True
    with Path(__file__).with_name(name).open("a") as file:
        file.write("a" if alone else "b")
    with figures():
        assert name != "off beside others" or alone
        assert name != "off alone, too"
        assert name != "right beside others" or not alone
    if name == "off for another reason":
        raise OSError
"""
# Whether each test fails, and its runs: beside others, alone.
RUNS = {
    "right beside others": (False, "b"),
    "off beside others": (False, "ba"),
    "off alone, too": (True, "ba"),
    "off for another reason": (True, "b"),
}


def test_a_figure_that_is_off_beside_others_is_judged_again_alone(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    calm = CALM.format(tests=str(TESTS), part=0.0)
    (tests / "conftest.py").write_text(calm + (TESTS / "conftest.py").read_text())
    (tests / "test_it.py").write_text(f"NAMES = {list(RUNS)}\n{BESIDE}")
    words = ["-q", "-rA", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-n", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "-o", f"pythonpath={TESTS}", tests],
        cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False,
    )  # fmt: skip
    told = done.stdout + done.stderr
    for name, (fails, runs) in RUNS.items():
        assert f"{'FAILED' if fails else 'PASSED'} tests/test_it.py::test[{name}]" in told, told
        assert (tests / name).read_text() == runs
        repeated = f"test[{name}]: a figure was off beside other tests: repeated"
        assert told.count(repeated) == len(runs) - 1


# Takes half a second of a processor, and waits.
BURN = """
import os, signal, time
while time.process_time() < 0.5:
    pass
print(os.getpid(), flush=True)
signal.pause()
"""


@pytest.mark.alone  # what others take between two looks at the processes of the run counts as well
def test_only_the_time_of_strangers_counts_as_taken() -> None:
    """A process is a stranger's once its parent has ended."""
    least = os.sysconf("SC_CLK_TCK") // 4  # the kernel counts in ticks, and not exactly
    own = own_ticks()
    with subprocess.Popen([sys.executable, "-S", "-c", BURN], stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline()
        assert own_ticks() - own >= least
        ours.kill()
    before, _ = taken_ticks()
    orphaned = f"import os\nif os.fork(): os._exit(0)\n{BURN}"
    with subprocess.Popen([sys.executable, "-c", orphaned], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        after, _ = taken_ticks()
        os.kill(orphan, signal.SIGKILL)
    assert after - before >= least
