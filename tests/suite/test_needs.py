"""A test whose need is missing is skipped with a sentence, or fails where the need is required."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import NEEDS, REQUIRE

# Of what tests use, not of rgpu.
pytestmark = pytest.mark.full

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
# Nothing here has zsh and fish, and everything has iproute2.
CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
from dataclasses import replace
from helpers import needs
for name, there in (("zsh", False), ("fish", False), ("torch", False), ("iproute2", True)):
    needs.NEEDS[name] = replace(needs.NEEDS[name], there=lambda there=there: there)
def pytest_configure(config):
    needs.required()
    config.pluginmanager.register(needs.Needing(), "needs")
    config.addinivalue_line("markers", "needs(names): of the table")
def pytest_addoption(parser):
    parser.addoption("--needing")
"""
FILE = """
import pytest
from helpers.needs import demand, fixture_needs, needs

@needs("zsh")
def test_by_mark():
    raise AssertionError("it ran")

@pytest.fixture(scope="module")
@fixture_needs("fish")
def fish():
    raise AssertionError("it ran")

@pytest.fixture
def shell(fish):
    raise AssertionError("it ran")

@pytest.mark.parametrize("number", [1, 2])
def test_by_a_fixture_of_a_fixture(shell, number):
    raise AssertionError("it ran")

@pytest.mark.parametrize("name", ["sh", pytest.param("zsh", marks=needs("zsh"))])
def test_by_a_parameter(name):
    assert name == "sh"

@needs("zsh", "fish")
def test_by_both():
    raise AssertionError("it ran")

@needs("iproute2")
def test_of_what_is_here():
    demand("iproute2")
"""
WHOLE = """
from helpers.needs import import_needed
torch = import_needed("torch")
raise AssertionError("it was read on")
"""
SILENT = """
from helpers.needs import demand
def test_that_does_not_say_it():
    demand("iproute2")
"""
LIST = [
    "skipped for want of zsh (apt-get install zsh): 3 tests",
    "skipped for want of fish (apt-get install fish): 3 tests",
    "skipped for want of torch (python -m pip install '.[torch]'): 1 file",
]
# Skips for other reasons than that something is missing, by file.
OTHERS = {
    "arrays/test_daemon.py": "shows what is said where PyTorch is not",
    "cli/test_shell_files.py": "compares files that one version of Python wrote",
    "cluster_e2e/test_access.py": "shows what is said on a machine without access tokens",
    "helpers/needs.py": "skips for want of something",
    "packaging/test_wheel.py": "a wheel of one distribution says no version of glibc",
    "suite/test_compat_runner.py": "the text of a test",
    "suite/test_ends.py": "a kernel of 6.15 or newer, which nobody can install",
    "ptx/driver.py": "NVIDIA's driver does not show what the emulated device shows",
}


def run(folder: Path, files: dict[str, str], *words: str, require: str = "") -> tuple[int, str]:
    """Runs these files; returns how pytest ended, and its output."""
    for name, text in {"conftest.py": CONFTEST.format(tests=str(TESTS)), **files}.items():
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", folder, *words, folder],
        cwd=folder, env={**os.environ, REQUIRE: require}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("processes", ["0", "2"])
def test_what_is_missing_is_skipped_and_listed(tmp_path: Path, processes: str) -> None:
    """Reports of other processes come to the list, too."""
    files = {"test_one.py": FILE, "test_two.py": WHOLE}
    status, said = run(tmp_path, files, "-rs", f"--numprocesses={processes}")
    assert status == 0, said
    assert [line for line in said.splitlines() if line.startswith("skipped for want")] == LIST
    assert "zsh is not installed: apt-get install zsh" in said
    assert re.search(r"\b2 passed, 6 skipped\b", said), said


def test_a_need_that_is_required_is_a_failure(tmp_path: Path) -> None:
    status, said = run(tmp_path, {"test_one.py": FILE}, require="all")
    assert status == 1
    assert f"zsh is not installed: apt-get install zsh ({REQUIRE} asks for zsh)" in said
    assert "skipped for want" not in said
    assert "it ran" not in said
    counts = re.search(r"(?:(\d) failed, )?2 passed(?:, (\d) errors?)?", said)
    assert counts, said
    assert sum(int(one or 0) for one in counts.groups()) == 5


@pytest.mark.parametrize(
    ("need", "counts"), [("iproute2", "1 passed, 6 deselected"), ("zsh", "3 skipped, 4 deselected")]
)
def test_what_needs_something_can_be_run_alone(tmp_path: Path, need: str, counts: str) -> None:
    status, said = run(tmp_path, {"test_one.py": FILE}, "--needing", need)
    assert status == 0, said
    assert counts in said


def test_a_need_that_is_unknown_ends_the_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, {"test_one.py": FILE}, "--needing", "zhs")
    assert status != 0
    assert "'zhs' is not in the table" in said


def test_a_file_that_is_required_is_a_failure(tmp_path: Path) -> None:
    status, said = run(tmp_path, {"test_two.py": WHOLE}, require="torch")
    assert status == 2
    assert f"({REQUIRE} asks for torch)" in said


@pytest.mark.parametrize(
    ("require", "failures", "skips"), [("all,-zsh", 3, 2), ("all,-zsh,-fish", 0, 5)]
)
def test_a_need_that_is_excepted_is_skipped(
    tmp_path: Path, require: str, failures: int, skips: int
) -> None:
    status, said = run(tmp_path, {"test_one.py": FILE}, require=require)
    assert status == (1 if failures else 0)
    found = {word: int(count) for count, word in re.findall(r"(\d+) (failed|error|skipped)", said)}
    assert found.get("failed", 0) + found.get("error", 0) == failures, said
    assert found["skipped"] == skips, said


def test_a_name_that_nothing_has_ends_the_run(tmp_path: Path) -> None:
    status, said = run(tmp_path, {"test_one.py": FILE}, require="all,-zhs")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert f"{REQUIRE}: 'zhs' is not in the table" in said


def test_a_test_that_does_not_say_what_it_uses_fails(tmp_path: Path) -> None:
    status, said = run(tmp_path, {"test_one.py": SILENT})
    assert status == 1
    assert "this test needs iproute2 and does not say so: mark it with @needs('iproute2')" in said


def test_no_test_skips_for_want_of_something_by_itself() -> None:
    skip = re.compile(r"pytest\.(mark\.skip|mark\.skipif|skip|importorskip)\(")
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    skipping = {str(path.relative_to(TESTS)) for path, text in texts.items() if skip.search(text)}
    assert skipping == set(OTHERS)


def test_every_remedy_is_a_sentence_of_its_own() -> None:
    """The list at the end of a run knows needs by their sentences."""
    sentences = [need.sentence for need in NEEDS.values()]
    assert len({*sentences}) == len(sentences)
    for sentence in sentences:
        assert [other for other in sentences if sentence in other] == [sentence]


def test_the_page_is_true_of_all_tests_that_were_collected(request: pytest.FixtureRequest) -> None:
    """In a run of all tests, that is the whole page."""
    script = runpy.run_path(str(ROOT / "scripts" / "gen_tests_page.py"))
    needing = request.config.pluginmanager.get_plugin("needs")
    here = {str(path.relative_to(ROOT)) for path in needing.functions} | {
        str(path.relative_to(ROOT)) for paths in needing.whole.values() for path in paths
    }
    if any("::" in word for word in request.config.args):
        here = set()  # parts of files were collected
    # A file that as a whole needs what is missing is not read: what its tests need is not known.
    read = {str(path.relative_to(ROOT)) for path, tests in needing.functions.items() if tests}
    text = script["PAGE"].read_text(encoding="utf-8")
    on_page = script["written"](text)
    assert text == script["page"](on_page), "run make gen"

    def of_here(tests: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        return {
            name: {
                file: few
                for file, few in files.items()
                if file in here and (file in read or not few)
            }
            for name, files in tests.items()
        }

    assert of_here(on_page) == of_here(script["tests_of"](needing)), "run make gen"
    assert all((ROOT / file).exists() for files in on_page.values() for file in files)
