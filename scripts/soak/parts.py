"""The parts, as data: what each repeats, how often, by which command, and what that needs."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# No part may run longer.
LONGEST_MINUTES = 115
FUZZ_TARGETS = (
    "channels", "chunks", "commands", "frame_reader", "graph_definition", "handshake", "http2",
    "image", "probe", "ring", "zip",
)  # fmt: skip
# The longest that a suite of another program needs, in minutes; see tests/compat/rows.
SUITES = {
    "cuda-bindings": 10, "cuda-core": 45, "drjit": 40, "mitsuba": 10, "numba-cuda": 60,
    "openmm": 10, "pycuda": 30, "taichi": 30, "tinygrad": 20, "triton": 5, "warp": 5,
}  # fmt: skip
PYTEST = r"((?:\d+ failed, )?\d+ passed[^=\n]*?) in \d"
FIGURE = re.compile(r"\s(yes|NO)$", re.MULTILINE)
TABLE = re.compile(r"^figure +value +floor", re.MULTILINE)


def found(*patterns: str) -> Callable[[str], str]:
    """Returns what finds the counts in a command's output: the groups of all matches.

    It finds nothing unless the first pattern matches.
    """

    def seen(output: str) -> str:
        matches = [re.findall(pattern, output, re.MULTILINE) for pattern in patterns]
        return "; ".join(text for several in matches for text in several) if matches[0] else ""

    return seen


def figures(output: str) -> str:
    """Finds how many targets a benchmark has met; nothing unless it printed a table."""
    met = FIGURE.findall(output)
    return f"{met.count('yes')} of {len(met)} targets met" if TABLE.search(output) else ""


@dataclass(frozen=True)
class Part:
    """Something that is repeated often.

    title: what it does, for the page.
    command: words; `{python}` is the interpreter, `{venv}` its environment, `{VARIABLE}` a count.
    counts: environment variables that say how often. A caller's own value goes before.
    minutes: about how long it takes on two quiet processors.
    seen: finds the counts in the output. A run whose output lacks them has failed.
    folder: where the command runs.
    programs, modules: what it needs of the machine and of Python. root: it needs to be root.
    judged: its figures mean something only on a machine without other work.
    """

    name: str
    title: str
    command: tuple[str, ...]
    minutes: int
    seen: Callable[[str], str]
    counts: Mapping[str, int] = field(default_factory=dict)
    folder: str = "."
    programs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    root: bool = False
    judged: bool = False

    @property
    def deadline_seconds(self) -> float:
        """When a run is ended: other work may make it three times as long."""
        return 60.0 * min(3 * self.minutes + 10, LONGEST_MINUTES)

    def lacks(self) -> str:
        """Returns what this machine lacks, in words; nothing: the part can run."""
        wants = [f"the program {one}" for one in self.programs if shutil.which(one) is None]
        wants += [f"the module {one}" for one in self.modules if find_spec(one) is None]
        wants += ["to be root"] if self.root and os.geteuid() else []
        return ", ".join(wants)


def pytest(
    name: str,
    title: str,
    *words: str,
    minutes: int,
    says: str = "",
    spread: str = "",
    programs: tuple[str, ...] = (),
    **counts: int,
) -> Part:
    """A part that is tests with larger counts, also those that only `pytest --all` runs.

    says: a pattern of what the tests print. spread: how several processes share the tests, as
    `--dist` has it: `load` where the tests of a file share nothing, else `loadfile`; one process
    runs them if it is empty.
    """
    # The part's deadline stands for those of single tests.
    command = ["pytest", "--all", *words]
    command += ["--timeout=0", "-o", "faulthandler_timeout=0"]
    processes = len(os.sched_getaffinity(0))
    command += ["-n", str(processes), f"--dist={spread}"] if spread else ["-n", "0", "-s"]
    seen = found(PYTEST, says) if says else found(PYTEST)
    return Part(name, title, tuple(command), minutes, seen, counts, programs=programs)


def fuzzer(target: str) -> Part:
    """A part that is ten minutes of one libFuzzer target."""
    return Part(
        f"fuzz-{target.replace('_', '-')}",
        f"random bytes into `fuzz_{target}`, with AddressSanitizer and UBSan",
        ("make", "fuzz-targets", f"FUZZ_TARGETS={target}", "VENV={venv}"),
        11,
        # What `-print_final_stats=1` prints; with `-verbosity=0` nothing else is left.
        found(r"^stat::(number_of_executed_units: \d+)$"),
        {"FUZZ_SECONDS": 600},
        programs=("make", "cmake", "clang++"),
    )


def suite(program: str, minutes: int) -> Part:
    """A part that is the test suite of another program, over the wire."""
    return Part(
        f"compat-{program}",
        f"the test suite of {program}, over the wire",
        ("{python}", "-m", "compat.runner", program),
        minutes,
        found(rf"^{re.escape(program)}: (\d+ passed, \d+ failed, \d+ skipped, \d+ problems)$"),
        folder="tests",
        programs=("git",),
    )


def benchmark(
    name: str, minutes: int, *words: str, root: bool = False, **needs: tuple[str, ...]
) -> Part:
    """A part that is one program of `benchmarks`. words: its command, unless that is `-m`."""
    return Part(
        f"bench-{name.replace('_', '-')}",
        f"`benchmarks.{name}`",
        words or ("{python}", "-m", f"benchmarks.{name}"),
        minutes,
        figures,
        root=root,
        judged=True,
        **needs,
    )


PARTS = (
    pytest(
        "cluster-events",
        "events of the manager's state machine: requests, messages, lost nodes and restarts",
        "tests/cluster/test_machine.py",
        minutes=60, spread="load", RGPU_CLUSTER_STEPS=1_000_000,
    ),
    pytest(
        "cluster-books",
        "events, after each of which the manager's indexes are counted anew",
        "tests/cluster/test_books.py",
        minutes=5, spread="load", RGPU_CLUSTER_BOOKS=100_000,
    ),
    pytest(
        "cluster-nonsense",
        "managers that hear 300 messages of nonsense each",
        "tests/cluster/test_nonsense.py",
        minutes=2, spread="load", RGPU_CLUSTER_NONSENSE=1000,
    ),
    pytest(
        "absurd-objects",
        "absurd objects of each kind that rgpu reads from Kubernetes",
        "tests/cluster/test_absurd_objects.py",
        minutes=2, spread="load", RGPU_ABSURD=100_000,
    ),
    pytest(
        "cluster-kills",
        "rounds in which manager, servers and programs are killed or stopped",
        "tests/cluster_e2e/test_kills.py",
        minutes=25, says=r"(\d+ rounds from seed .*)$", RGPU_CLUSTER_KILLS=200,
    ),
    pytest(
        "cluster-crowd",
        "programs at once on one cluster",
        "tests/cluster_e2e/test_crowd.py",
        minutes=2, RGPU_CLUSTER_PROGRAMS=40,
    ),
    pytest(
        "kubernetes-kills",
        "strikes against managers, agent, plugin and API server while pods come and go",
        "tests/kubernetes/test_kills.py",
        minutes=60, programs=("go",), says=r"(\d+ strikes from seed .*)$",
        RGPU_KUBERNETES_KILLS=300,
    ),
    pytest(
        "kubernetes-replicas",
        "leaders that are killed or stopped while a pod waits",
        "tests/kubernetes/test_replicas.py",
        minutes=40, programs=("go",), RGPU_KUBERNETES_KILLS=300,
    ),
    pytest(
        "kubernetes-agent-kills",
        "pods whose GPU node's agent is killed when they come and when they go",
        "tests/kubernetes/test_agent_kills.py",
        minutes=40, programs=("go",), RGPU_KUBERNETES_KILLS=150,
    ),
    pytest(
        "e2e-kills",
        "deaths of a client, a worker or a connection of one server",
        "tests/e2e/test_kills.py",
        minutes=20, RGPU_TEST_KILLS=1000,
    ),
    pytest(
        "e2e-sessions",
        "programs at once on one server",
        "tests/e2e/test_programs.py", "-k", "at_once",
        minutes=2, RGPU_TEST_SESSIONS=16,
    ),
    pytest(
        "transports",
        "what calls do, and programs of other people, over every transport",
        "tests/shim", "tests/litmus", "tests/e2e/test_programs.py",
        minutes=15, spread="loadfile", RGPU_TEST_TRANSPORTS=1,
    ),
    pytest(
        "random-examples",
        "properties, with other examples than those of every run",
        "tests/core", "tests/wire", "tests/cluster", "tests/observe",
        "tests/arrays/test_cupy_property.py",
        minutes=20, spread="load", RGPU_TEST_RANDOM=1, RGPU_WIRE_EXAMPLES=300,
        RGPU_CLUSTER_FITS=500,
    ),
    pytest(
        "scenes",
        "demo clusters in networks of their own, and the page with a thousand leases",
        "tests/net/test_demo_cluster.py", "tests/net/test_demo_manager.py",
        "tests/web_page/test_many.py",
        minutes=5, programs=("ip", "nginx", "chromium"), RGPU_TEST_SOAK=1,
    ),
    pytest(
        "node",
        "the chart on a node with containerd, from its installation to its end",
        "tests/kubernetes/test_containerd.py",
        minutes=5, programs=("go", "runc", "iptables"), RGPU_TEST_SOAK=1,
    ),
    Part(
        "gxx",
        "tests of workers and of programs, with what g++ builds and takes no warning of",
        (
            "sh", "-c",
            "rm -rf build/gxx-site && {python} -m pip install --quiet --no-deps"
            " --config-settings=cmake.define.RGPU_WERROR=ON --target build/gxx-site ."
            " && PYTHONPATH=build/gxx-site pytest --all tests/litmus tests/worker"
            " tests/shim/test_copies.py tests/shim/test_process.py",
        ),
        15,
        found(PYTEST),
        programs=("g++",),
    ),
    *map(fuzzer, FUZZ_TARGETS),
    Part(
        "fuzz-kernels",
        "random and damaged PTX, against an interpreter",
        ("{python}", "fuzz/kernels", "--seconds", "{FUZZ_SECONDS}", "--keep", "build"),
        11,
        found(r"^kernels: (.*)$"),
        {"FUZZ_SECONDS": 600},
    ),
    Part(
        "fuzz-seam",
        "random operations and damaged messages of CuPy's and PyTorch's arrays",
        ("{python}", "fuzz/seam", "--seconds", "{FUZZ_SECONDS}", "--keep", "build"),
        11,
        found(r"^seam: (.*)$"),
        {"FUZZ_SECONDS": 600},
        modules=("torch",),
    ),
    pytest(
        "compat-nvjitlink",
        "programs with and without nvJitLink, in environments of their own",
        "tests/compat/test_nvjitlink.py", "--run-compat",
        minutes=10,
    ),
    *(suite(program, minutes) for program, minutes in SUITES.items()),
    benchmark("calls", 5),
    benchmark("transport", 10),
    benchmark("control", 5),
    benchmark("launching", 5),
    benchmark("tokens", 5),
    benchmark("hand_over", 5),
    benchmark("startup", 10),
    benchmark("emu", 15),
    benchmark("quota", 38),
    benchmark("placement", 30),
    benchmark("arrays", 30, modules=("torch",)),
    benchmark("cluster", 20, programs=("go",)),
    benchmark("compression", 20, root=True, programs=("ip",)),
    benchmark("net", 38, root=True, programs=("ip",)),
    benchmark("bulk", 20, root=True, programs=("ip",)),
    benchmark(
        "newcomer", 15,
        "sh", "-c",
        "make wheel VENV={venv} && {python} -m benchmarks.newcomer dist/*manylinux*.whl",
    ),
)  # fmt: skip


def chosen(patterns: list[str]) -> list[Part]:
    """Returns the parts with these names, in this order; all if none is named.

    A name may be a pattern, as `fuzz-*`. ValueError: no part has a name.
    """
    wanted: dict[str, Part] = {}
    for pattern in patterns or ["*"]:
        named = {part.name: part for part in PARTS if fnmatch.fnmatchcase(part.name, pattern)}
        if not named:
            raise ValueError(f"no part is named {pattern}; `--list` shows the parts")
        wanted |= named
    return list(wanted.values())
