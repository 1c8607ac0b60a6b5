"""`make soak`: its parts cover all long counts, and a run is kept as what it was."""

from __future__ import annotations

import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.builder import ROOT
from helpers.waiting import wait_until

sys.path.append(str(ROOT / "scripts"))
from soak import __main__ as command
from soak import parts, results
from soak.parts import FUZZ_TARGETS, LONGEST_MINUTES, PARTS, SUITES, Part, chosen, figures, found
from soak.results import Release, Results, Run

READ = re.compile(r"\bcount\(\s*\"(RGPU_\w+)\"|\bint\(\s*os\.environ\.get\(\s*\"(RGPU_\w+)\"")
# They choose other examples, not more.
NO_COUNTS = {"RGPU_CLUSTER_SEED", "RGPU_KUBERNETES_SEED"}
# They are libraries of benchmarks, or judge those of others.
NO_BENCHMARKS = {
    "bulk_steps", "compare", "grpc_floor", "harness", "net_steps", "placing", "server",
    "transport_grpc",
}  # fmt: skip
AT = "2026-11-28T21:00:00+00:00"


def of_shell(script: str, says: str = r"^(\d+ passed)$", **more: Any) -> Part:
    return Part("some", "something", ("sh", "-c", script), 1, found(says), **more)


def run_of(part: Part, folder: Path, seconds: float = 60) -> Run:
    return command.run_part(part, command.counts_of(part, {}), folder / "log", seconds)


def test_names_are_unique_and_no_part_is_longer_than_two_hours() -> None:
    assert max(Counter(part.name for part in PARTS).values()) == 1
    for part in PARTS:
        assert re.fullmatch(r"[a-z0-9-]+", part.name)
        assert part.minutes <= LONGEST_MINUTES
        assert 60 * part.minutes < part.deadline_seconds <= 60 * LONGEST_MINUTES < 2 * 3600


def test_every_count_of_the_tests_belongs_to_a_part() -> None:
    read = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for pair in READ.findall(path.read_text(encoding="utf-8"))
        for name in pair
        if name
    }
    ours = {name for part in PARTS for name in part.counts if name.startswith("RGPU_")}
    assert not read - NO_COUNTS - ours, "a part of scripts/soak/parts.py must set them"
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
    assert not [name for name in ours if not any(name in text for text in sources)], "nothing reads"


def test_every_fuzzer_suite_and_benchmark_is_a_part() -> None:
    targets = re.search(r"foreach\(target (.*)\)", (ROOT / "fuzz" / "CMakeLists.txt").read_text())
    assert targets
    assert sorted(targets[1].split()) == sorted(FUZZ_TARGETS)
    assert {path.stem for path in (ROOT / "tests" / "compat" / "rows").glob("*.toml")} == set(
        SUITES
    )
    files = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    folders = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    ours = {part.title.removeprefix("`benchmarks.").rstrip("`") for part in PARTS if part.judged}
    assert ours == files - NO_BENCHMARKS | folders


def test_files_that_parts_name_exist() -> None:
    for part in PARTS:
        for word in part.command:
            if word.startswith(("tests/", "fuzz/")):
                assert (ROOT / word).exists(), (part.name, word)


def test_the_page_is_what_the_kept_results_say() -> None:
    assert results.PAGE.read_text() == Results.loaded().page(PARTS), (
        "cd scripts; python -m soak --page"
    )


def test_parts_are_chosen_by_name_and_by_pattern() -> None:
    names = [part.name for part in chosen(["fuzz-zip", "cluster-[bk]*", "cluster-kills"])]
    assert names == ["fuzz-zip", "cluster-books", "cluster-kills"]
    assert chosen([]) == list(PARTS)
    with pytest.raises(ValueError, match="no part is named fuzz-zap"):
        chosen(["fuzz-zap"])


def test_a_run_that_passes_is_kept_with_its_counts(tmp_path: Path) -> None:
    part = of_shell('echo "$ROUNDS passed"', counts={"ROUNDS": 7})
    run = run_of(part, tmp_path)
    assert (run.result, run.seen, run.counts) == ("passed", "7 passed", {"ROUNDS": 7})
    assert command.counts_of(part, {"ROUNDS": "3"}) == {"ROUNDS": 3}


@pytest.mark.parametrize("script", ["echo 1 passed; exit 1", "echo none; exit 0", "kill -9 $$"])
def test_a_run_that_fails_or_says_no_counts_is_kept_as_failed(script: str, tmp_path: Path) -> None:
    assert run_of(of_shell(script), tmp_path).result == "failed"


def test_a_run_past_its_deadline_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    """The shell and its child take no notice of the signals that ask."""
    child = tmp_path / "child"
    script = f"trap '' INT TERM; sleep 600 & echo $! >{child}; echo 3 passed; wait; wait; wait"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "SECONDS_TO_END", 0.2)
        run = run_of(of_shell(script), tmp_path, seconds=2)
    assert (run.result, run.seen) == ("ended by its deadline", "3 passed")
    process = Path(f"/proc/{int(child.read_text())}")
    wait_until(lambda: not process.exists() or ") Z " in (process / "stat").read_text())


def test_counts_are_found_in_what_programs_print() -> None:
    by = {part.name: part.seen for part in PARTS}
    assert by["cluster-books"]("===== 8 passed in 12.31s =====") == "8 passed"
    assert by["cluster-books"]("= 1 failed, 7 passed, 1 warning in 2.3s =") == (
        "1 failed, 7 passed, 1 warning"
    )
    assert by["cluster-books"]("===== 8 skipped in 12.31s =====") == ""
    told = "200 rounds from seed 1: {'right': 7}\n.\n== 3 passed in 9.1s ==\n"
    assert by["cluster-kills"](told) == "3 passed; 200 rounds from seed 1: {'right': 7}"
    assert by["fuzz-ring"]("stat::number_of_executed_units: 12345\nstat::peak_rss_mb: 475\n") == (
        "number_of_executed_units: 12345"
    )
    suite = "warp: 3 cases done\nwarp: 6 passed, 1 failed, 0 skipped, 0 problems\n"
    assert by["compat-warp"](suite) == "6 passed, 1 failed, 0 skipped, 0 problems"


def test_figures_of_a_benchmark_are_counted_and_none_without_a_table() -> None:
    harness = runpy.run_path(str(ROOT / "benchmarks" / "harness.py"))
    below, table = harness["below"], harness["table"]
    rows = [below("a", "us", 1, 2), below("b", "us", 3, 2), harness["Row"]("c", "us", 1)]
    assert figures(table(rows)) == "1 of 2 targets met"
    assert figures("figures: yes") == ""


def test_a_part_is_due_without_a_run_that_stands() -> None:
    part = of_shell("", counts={"ROUNDS": 7})

    def due(at: str = AT, commit: str = "c0ffee", rounds: int = 7, result: str = "passed") -> str:
        run = Run(at, commit, {"ROUNDS": rounds}, 1, 0.0, result, "")
        return Results({"some": run}, Release("v0.2.0", "2026-11-20T12:00:00+01:00")).due(part)

    assert Results().due(part) == "never ran"
    assert due() == ""
    assert due(result="failed") == "failed"
    assert due(rounds=6) == "ran with smaller counts"
    assert due(commit="c0ffee+changes") == "ran with changes that are in no commit"
    assert due(at="2026-11-20T11:59:00+01:00") == "is older than v0.2.0"


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A git tree with one file, which the command takes for the project."""
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "LOGS", tmp_path / "build")
    monkeypatch.setattr(results, "RESULTS", tmp_path / "soak.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "soak.md")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield tmp_path
    for number, handler in handlers.items():
        signal.signal(number, handler)


def git(folder: Path, *words: str) -> None:
    us = ("-c", "user.name=one", "-c", "user.email=one@example.org")
    subprocess.run(["git", *us, *words], cwd=folder, check=True)


def test_the_commit_says_whether_the_tree_has_changes(tree: Path) -> None:
    before = results.commit()
    assert re.fullmatch(r"[0-9a-f]{12}", before)
    (tree / "README.md").write_text("no test reads this\n")
    assert results.commit() == before
    (tree / "tests" / "new.py").write_text("2\n")
    assert results.commit() == f"{before}+changes"
    changing = of_shell(f"rm {tree}/tests/new.py; echo 1 passed")
    assert run_of(changing, tree).commit == f"{before}+changes"
    assert run_of(changing, tree).commit == before


def test_a_tag_makes_earlier_runs_due_and_is_kept(tree: Path) -> None:
    assert results.newest_release() is None
    git(tree, "tag", "v9.1")
    with results.changed([of_shell("")]) as kept:
        kept.runs["some"] = Run("2001-01-01T00:00:00+00:00", "c0ffee", {}, 1, 0.0, "passed", "x|y")
    page = (tree / "soak.md").read_text()
    assert "The newest release was v9.1.\n\n- `some` is older than v9.1\n" in page
    assert (
        "| `some` | something |  | 2001-01-01 00:00 | `c0ffee` | 1 | 0.0 | passed | `x\\|y` |"
        in page
    )
    git(tree, "tag", "-d", "v9.1")
    with results.changed([]) as kept:
        assert kept.release
        assert kept.release.name == "v9.1"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["good"], 0, "1 of 1 parts passed"),
        (["good", "bad"], 1, "bad: failed after"),
        (["poor"], 1, "poor: not run, because this machine lacks the program no-such-program"),
        (["none"], 2, "no part is named none"),
        (["--list"], 0, "good                     about  1 min  due: never ran"),
    ],
)
def test_the_exit_status_tells(
    words: list[str], status: int, said: str, tree: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def named(name: str, script: str, **more: Any) -> Part:
        return Part(name, "", ("sh", "-c", script), 1, found("(1 passed)"), **more)

    every = (
        named("good", "echo 1 passed"),
        named("bad", "echo a reason; exit 1"),
        named("poor", "echo 1 passed", programs=("no-such-program",)),
    )
    monkeypatch.setattr(parts, "PARTS", every)
    monkeypatch.setattr(results, "not_installed", lambda: "")
    monkeypatch.setattr(sys, "argv", ["soak", *words])
    assert command.main() == status
    output = "".join(capsys.readouterr())
    assert said in output
    kept = Results.loaded().runs
    assert set(kept) == {word for word in words if word in ("good", "bad")}
    if "bad" in words:
        assert "a reason" in output
        assert kept["bad"].result == "failed"
        assert "- `bad` failed\n" in (tree / "soak.md").read_text()


def test_a_command_that_is_told_to_end_ends_its_part_and_keeps_nothing_of_it(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def last_line(log: Path) -> str:
        wait_until(lambda: log.read_text() != "")
        signal.raise_signal(signal.SIGTERM)
        return ""

    monkeypatch.setattr(parts, "PARTS", (of_shell("echo $$; sleep 600; echo 1 passed"),))
    monkeypatch.setattr(command, "SECONDS_BETWEEN_LINES", 0.1)
    monkeypatch.setattr(command, "_last_line", last_line)
    monkeypatch.setattr(results, "not_installed", lambda: "")
    monkeypatch.setattr(sys, "argv", ["soak"])
    assert command.main() == 130
    assert not Results.loaded().runs
    assert not Path("/proc", (tree / "build" / "some.log").read_text().strip()).exists()


def test_another_code_than_the_installed_is_refused(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "protos").mkdir()
    (tree / "protos" / "one.proto").write_text("1\n")
    git(tree, "add", "-A")
    git(tree, "commit", "--quiet", "-m", "two")
    name = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=tree, text=True)
    installed = f"0.1.dev7+g{name.strip()}"
    monkeypatch.setattr(results, "version", lambda _: installed)
    assert results.not_installed() == ""
    (tree / "README.md").write_text("another page\n")
    git(tree, "add", "-A")
    git(tree, "commit", "--quiet", "-m", "three")
    assert results.not_installed() == ""
    (tree / "protos" / "one.proto").write_text("2\n")
    git(tree, "commit", "--quiet", "-a", "-m", "four")
    assert "its code has changed since" in results.not_installed()
    monkeypatch.setattr(results, "version", lambda _: f"{installed}.d20261128")
    assert "changes that are in no commit" in results.not_installed()
    monkeypatch.setattr(results, "version", lambda _: "0.1.dev7+gfeedfeed0")
    assert "git does not know its commit" in results.not_installed()
