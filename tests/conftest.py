"""Tests run against the installed package: the source folders must not hide it."""

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.counts import ALL, runs_all, runs_soak
from helpers.ends import WrongEndError, watch
from helpers.leaving import standing
from helpers.needs import CONTAINERS, Needing, required
from helpers.order import Durations, folders, in_turn, place, shuffled
from helpers.telling import note_test
from helpers.turns import Turns
from helpers.undisturbed import (
    measures,
    must_be_alone,
    remember_error,
    repetitions,
    run_beside_others,
    run_undisturbed,
)
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
TURNS = pytest.StashKey[str]()
# Folders whose tests count what servers have that a file shares. Elsewhere each test looks for what
# it has named itself, and some sessions outlive their test for minutes, because their client was cut.
COUNTING = {"cli", "cluster_e2e", "control", "e2e", "examples", "nvml", "observe", "web_page"}
SKIPS = (pytest.skip.Exception, pytest.xfail.Exception)
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
# `python -m pytest` has the source folders first, and has loaded our pytest plugin from there.
for loaded in [name for name in sys.modules if name.startswith("rgpu_")]:
    if ROOT in Path(getattr(sys.modules[loaded], "__file__", None) or "/").parents:
        del sys.modules[loaded]
# A shell that starts pytest in the background has it ignore SIGINT, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Every run uses the same examples, unless RGPU_TEST_RANDOM asks for new ones.  No example has a time
# limit of its own: a busy machine makes any of them slow, and that is no fault of what is tested.
settings.register_profile("new", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("same", settings.get_profile("new"), derandomize=True)
settings.load_profile("new" if os.environ.get("RGPU_TEST_RANDOM") else "same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all",
        action="store_true",
        help="also run tests marked `full`, and repeat others more often",
    )
    parser.addoption(
        "--write-longest", action="store_true", help="write tests/longest.txt from this run"
    )
    parser.addoption(
        "--shuffle",
        metavar="WORD",
        help="run files, and the tests of each, in an order of this word",
    )
    parser.addoption("--run-compat", action="store_true", help="also run what `make compat` needs")
    parser.addoption(
        "--run-containers", action="store_true", help="also run tests/containers, as root"
    )
    parser.addoption("--needing", help="run only tests that need this, of tests/helpers/needs.py")
    parser.addoption("--engine", help="a folder where tests/containers keep images for a next run")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves tests/compat out unless asked for, because it installs packages.  What lies in `own`
    runs in environments of other programs, through compat.runner.
    """
    parts = collection_path.relative_to(ROOT).parts
    if "compat" in parts and ("own" in parts or not config.getoption("--run-compat")):
        return True
    return None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two processes for each processor, because tests wait more than they compute; for a single
    file none, because starting them takes longer than most files.
    """
    if len(config.args) == 1 and config.args[0].partition("::")[0].endswith(".py"):
        return 0
    return min(2 * len(os.sched_getaffinity(0)), 8)


def pytest_configure(config: pytest.Config) -> None:
    """Says to all processes of the run what it was asked for.  The process that hands out the tests
    makes the folder of their turns.
    """
    watch.install()
    if config.getoption("--all"):
        os.environ[ALL] = "1"
    if config.getoption("--run-containers"):
        os.environ[CONTAINERS] = "1"
    required()  # a name in RGPU_TEST_REQUIRE that nothing has ends the run at once
    config.pluginmanager.register(Needing(), "needs")
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="rgpu-turns-")
        config.stash[TURNS] = folder.name
        config.add_cleanup(folder.cleanup)
        if config.getoption("--write-longest"):
            config.pluginmanager.register(Durations())


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process that runs tests where the turns are."""
    node.workerinput["turns"] = node.config.stash[TURNS]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Lets no collection of garbage visit the tests that were found, because they all stay: a
    million objects, and some tests collect garbage themselves.  Each process of the run finds them
    in an order of its own.
    """
    gc.disable()
    worker = getattr(session.config, "workerinput", None)
    asked = [session.config.invocation_params.dir / one for one in session.config.args]
    left_out = {Path(one).resolve() for one in session.config.getoption("ignore") or ()}
    found = [one for one in folders(ROOT / "tests") if one not in left_out]
    if worker is not None and found and asked == [ROOT / "tests"]:
        session.config.args[:] = in_turn(
            found,
            int(worker["workerid"].removeprefix("gw")), int(worker["workercount"]),
        )  # fmt: skip
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves tests marked `full` and `soak` out unless asked for.  Orders the rest so that the run
    ends soon.
    """
    asked = {"full": runs_all(), "soak": runs_soak()}
    marks = [mark for mark, wanted in asked.items() if not wanted]
    left_out = {item for item in items if any(map(item.get_closest_marker, marks))}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
    if word := config.getoption("--shuffle"):
        items.sort(key=lambda item: shuffled(item, word))
        return
    longest_first = hasattr(config, "workerinput")
    items.sort(key=lambda item: place(item, longest_first=longest_first))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Gives each test its turn.  The wait for it does not count towards the test's time limit.

    A test that measures has two turns if a figure is off in the first: the second is alone.
    """
    folder = _turns(item.config)
    if folder is None:
        return (yield)
    alone = must_be_alone(item)
    with Turns(folder).turn(alone=alone):
        done: object = yield
    if must_be_alone(item) and not alone:
        return item.ihook.pytest_runtest_protocol(item=item, nextitem=nextitem)
    return done


@pytest.hookimpl(specname="pytest_runtest_protocol")
def pytest_runtest_protocol_figures(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Judges a test that measures time by a run in which others left us the processors."""
    if must_be_alone(item):
        return run_undisturbed(item, nextitem)
    return run_beside_others(item, nextitem) if measures(item) else None


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Tells figures that are off from all other failures, and fixtures how their test went."""
    remember_error(item, call)
    if call.when == "call":
        note_test(failed=call.excinfo is not None and not call.excinfo.errisinstance(SKIPS))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, object, object]:
    """Nothing has failed yet, and what the test starts can be interrupted."""
    note_test(failed=False)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    result = yield
    watch.check()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Fails a test beside which a process ended wrongly."""
    result = yield
    watch.check()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Fails it also for what ends with its fixtures. No test answers for the one before it."""
    try:
        result = yield
        watch.check()
        return result
    finally:
        with suppress(WrongEndError):
            watch.check()
        watch.planted.clear()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Notes that there is something new which outlives the test."""
    made = yield
    if fixturedef.scope != "function":
        standing.changed()
    return made


@pytest.fixture(autouse=True)
def nothing_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What outlives the test has nothing of it afterwards. This begins before the other fixtures of
    the test, so that it ends after them.
    """
    counts = request.path.parent.name in COUNTING
    with standing.nothing_left() if counts else nullcontext():
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Names the tests that were repeated, and why."""
    for sentence in repetitions(terminalreporter.stats):
        terminalreporter.write_line(sentence)


def _turns(config: pytest.Config) -> Path | None:
    """Returns the folder that all processes of this run share; None if there is only one."""
    folder = getattr(config, "workerinput", {}).get("turns")
    return Path(folder) if folder is not None else None
