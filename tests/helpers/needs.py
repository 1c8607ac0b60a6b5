"""What tests need beyond Python, a C++ compiler and the packages that pip brings: one table.

A test names what it needs by a mark, `@needs("nginx")`. A fixture does so by
`@fixture_needs("nginx")` below `@pytest.fixture`: every test with that fixture needs it. A file that
cannot be imported without a package calls `import_needed("torch")`. Where something is missing, the
test is skipped with a sentence and a remedy, and the end of the run lists what was skipped for want
of what. RGPU_TEST_REQUIRE turns these skips into failures: `all`, or names of the table; `-NAME`
takes one out again, as in `all,-torch`. `pytest --needing torch` runs only what needs it.

Helpers take a program from `program`, which fails in a test that did not name it. So the page
`docs/reference/tests.md`, which lists the tests of each need, knows all of them.
"""

from __future__ import annotations

import ctypes.util
import functools
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest

REQUIRE = "RGPU_TEST_REQUIRE"
# Set by `pytest --run-containers`, for all processes of the run.
CONTAINERS = "RGPU_TEST_CONTAINERS"
ROOT = Path(__file__).resolve().parents[2]
_ATTRIBUTE = "rgpu_needs"
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Need:
    """A row of the table.

    looked: what must be found, for people. lacks: what is said where it is not. remedy: the command
    that brings it, or what to do. there: whether it is here.
    """

    name: str
    looked: str
    lacks: str
    remedy: str
    there: Callable[[], bool]

    @property
    def sentence(self) -> str:
        """Why a test is skipped, and what to do about it."""
        return f"{self.lacks}: {self.remedy}"


def which(program: str) -> str | None:
    """Returns the path of a program: Python's own folder comes first, and Debian keeps some programs
    in folders that only root's PATH has.
    """
    path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return shutil.which(program, path=path)


def cuda_headers(version: str = r"13\d{3}") -> Path | None:
    """Returns the folder with cuda.h of a CUDA version, of a toolkit or of NVIDIA's packages."""
    spec = find_spec("nvidia")
    packages = (
        (Path(place) / "cu13" for place in (spec.submodule_search_locations or ())) if spec else ()
    )
    homes = [
        os.environ.get("CUDA_HOME", ""), "/usr/local/cuda", "/usr/local/cuda-13.0", *packages,
        os.environ.get("RGPU_TEST_CUDA_HOME", ""),
    ]  # fmt: skip
    for home in filter(None, homes):
        header = Path(home) / "include" / "cuda.h"
        # PyTorch's packages have cuda.h alone.
        whole = header.is_file() and header.with_name("cudaProfiler.h").is_file()
        if whole and re.search(
            rf"#define CUDA_VERSION {version}\b",
            header.read_text(encoding="utf-8", errors="replace"),
        ):
            return header.parent
    return None


def _program(name: str, package: str, *programs: str) -> Need:
    """A program of a Debian package."""
    wanted = programs or (name,)
    return Need(
        name,
        " and ".join(f"`{one}`" for one in wanted),
        f"{name} is not installed",
        f"apt-get install {package}",
        lambda: all(which(one) for one in wanted),
    )


def _package(name: str, extra: str, *modules: str) -> Need:
    """A package of an extra of pyproject.toml."""
    wanted = modules or (name,)
    return Need(
        name,
        "Python's " + " and ".join(f"`{one}`" for one in wanted),
        f"{name} is not installed",
        f"python -m pip install '.[{extra}]'",
        lambda: all(_importable(one) for one in wanted),
    )


def _importable(module: str) -> bool:
    """Whether there is such a module; of those around it only the code is run."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _header(name: str, package: str, header: str) -> Need:
    """A header of the system."""
    file = Path("/usr/include") / header
    return Need(
        name, f"`{file}`", f"{package} is not installed", f"apt-get install {package}", file.exists
    )


def _chromium() -> bool:
    return bool(which("chromium") or which("chromium-browser"))


def _unshares(*kinds: str) -> Callable[[], bool]:
    """Whether a process of this user can make these namespaces."""

    def can() -> bool:
        words = ["unshare", *kinds, "--fork", "true"]
        return subprocess.run(words, capture_output=True, timeout=60, check=False).returncode == 0

    return can


def _built(name: str) -> Callable[[], bool]:
    """Whether a Go program of tests/kubernetes is built; the packages of tests are not imported for
    tests that need none of it.
    """

    def there() -> bool:
        program = importlib.import_module(f"helpers.{name}").PROGRAM
        return bool(program.is_built())

    return there


def _in_memory() -> bool:
    from rgpu_server.workers.kernel_cache import in_memory

    return bool(in_memory(Path("/dev/shm")))


def static_runtime() -> Path | None:
    """Returns the CUDA runtime for static linking, of NVIDIA's packages."""
    spec = find_spec("nvidia.cu13") if _importable("nvidia") else None
    for place in (spec.submodule_search_locations or ()) if spec else ():
        file = Path(place) / "lib" / "libcudart_static.a"
        if file.exists():
            return file
    return None


NEEDS = {
    need.name: need
    for need in (
        _program("nginx", "nginx-light"),
        _program("openssl", "openssl"),
        _program("prometheus", "prometheus", "prometheus", "promtool"),
        _program("zsh", "zsh"),
        _program("fish", "fish"),
        _program("man", "man-db"),
        _program("systemd-analyze", "systemd"),
        _program("iproute2", "iproute2", "ip", "tc", "ss"),
        _program("make", "make"),
        _program("runc", "runc"),
        _program("iptables", "iptables", "iptables-restore"),
        _program("binutils", "binutils", "nm"),
        Need("chromium", "`chromium` or `chromium-browser`", "Chromium is not installed",
             "apt-get install chromium", _chromium),
        Need("ucx", "the library `ucp`", "libucp.so.0 is not installed", "apt-get install libucx0",
             lambda: ctypes.util.find_library("ucp") is not None),
        Need("libx11", "the library `X11`", "libX11.so.6, which Taichi loads, is not installed",
             "apt-get install libx11-6", lambda: ctypes.util.find_library("X11") is not None),
        _header("ucx-headers", "libucx-dev", "ucp/api/ucp.h"),
        _header("nghttp2-headers", "libnghttp2-dev", "nghttp2/nghttp2.h"),
        _package("playwright", "browser"),
        _package("torch", "torch"),
        Need("expecttest", "Python's `expecttest`", "expecttest is not installed",
             "python -m pip install expecttest", lambda: _importable("expecttest")),
        Need("accelerate", "Python's `accelerate` and `safetensors`", "accelerate is not installed",
             "python -m pip install accelerate",
             lambda: all(_importable(one) for one in ("accelerate", "safetensors"))),
        Need("transformers", "Python's `transformers`", "transformers is not installed",
             "python -m pip install transformers", lambda: _importable("transformers")),
        _package("mkdocs", "docs", "mkdocs", "material", "mkdocstrings"),
        _package("mypy", "test"),
        Need("cmake", "`cmake` and `ninja`", "cmake is not installed",
             "python -m pip install '.[test]'", lambda: bool(which("cmake") and which("ninja"))),
        _package("build-backend", "test", "scikit_build_core", "setuptools_scm"),
        _package("nvidia-ml-py", "test", "pynvml"),
        _package("gpustat", "test"),
        _package("nvitop", "test"),
        _package("ipykernel", "test"),
        _package("msgpack", "test"),
        _package("cuda-bindings", "test", "cuda.bindings.nvrtc"),
        Need("cuda-headers", "`cuda.h` of CUDA 13, of a toolkit or of NVIDIA's packages",
             "there is no cuda.h of CUDA 13", "python -m pip install '.[test]'",
             lambda: cuda_headers() is not None),
        Need("cuda-13.0-headers", "`cuda.h` of CUDA 13.0, also in `$RGPU_TEST_CUDA_HOME`",
             "there is no cuda.h of CUDA 13.0", "name one by RGPU_TEST_CUDA_HOME, as .ci/run does",
             lambda: cuda_headers("13000") is not None),
        Need("static-cuda-runtime", "`libcudart_static.a` of NVIDIA's packages",
             "libcudart_static.a is not installed", "python -m pip install '.[test]'",
             lambda: static_runtime() is not None),
        Need("checkout", "`.git` beside the sources", "this is no checkout",
             "clone the repository with git", (ROOT / ".git").exists),
        Need("controlplane", "etcd and Kubernetes in one file, of `tests/kubernetes/controlplane`",
             "the Kubernetes control plane is not built", "install Go, then `make k8s`",
             _built("controlplane")),
        Need("helm", "the file that Go builds of `tests/kubernetes/helm`",
             "helm is not built", "install Go, then `make k8s`", _built("helm")),
        Need("kustomize", "the file that Go builds of `tests/kubernetes/kustomize`",
             "kustomize is not built", "install Go, then `make k8s`", _built("kustomize")),
        Need("certmanager", "cert-manager's module in Go's cache",
             "cert-manager's CRDs are not here", "install Go, then `make k8s`",
             _built("certmanager")),
        Need("containerd", "the folder that Go builds of `tests/kubernetes/containerd`",
             "containerd is not built", "install Go, then `make k8s-node`", _built("containerd")),
        Need("root", "the user's number 0", "the user is not root", "run pytest as root",
             lambda: os.geteuid() == 0),
        Need("namespaces", "`unshare` with the namespaces of a container",
             "this process may not make namespaces", "run pytest as root, in a container with --privileged",
             _unshares("--net", "--ipc", "--uts", "--pid", "--mount")),
        Need("user-namespaces", "`unshare --user`", "this process may not make user namespaces",
             "run pytest in no chroot, and in a container whose seccomp profile allows unshare",
             _unshares("--user")),
        Need("tun", "`/dev/net/tun`", "there is no /dev/net/tun",
             "`modprobe tun`, or give the container --device /dev/net/tun",
             Path("/dev/net/tun").exists),
        Need("shm-in-memory", "a file system in memory at `/dev/shm`", "/dev/shm is on a disk",
             "mount a tmpfs there", _in_memory),
        Need("cgroup", "the variable RGPU_TEST_CGROUP", "no memory cgroup is given to the tests",
             "RGPU_TEST_CGROUP=FOLDER, of a cgroup that they may write to",
             lambda: "RGPU_TEST_CGROUP" in os.environ),
        Need("wheel", "the variable RGPU_WHEEL", "RGPU_WHEEL names no wheel",
             "`make wheel-test`", lambda: bool(os.environ.get("RGPU_WHEEL"))),
        Need("containers", "the option `--run-containers`", "no container engine is asked for",
             "`make containers`", lambda: CONTAINERS in os.environ),
    )
}  # fmt: skip


def needs(*names: str) -> pytest.MarkDecorator:
    """Returns the mark of tests that need these rows of the table."""
    return pytest.mark.needs(*_known(names))


def fixture_needs(*names: str) -> Callable[[_Function], _Function]:
    """Decorates the function of a fixture, below `@pytest.fixture`: its tests need these."""

    def noted(function: _Function) -> _Function:
        setattr(function, _ATTRIBUTE, _known(names))
        return function

    return noted


def import_needed(*names: str) -> Any:
    """Returns the module of the first name. A file calls this before it imports what is not there
    everywhere; without one of the packages all its tests are skipped.
    """
    _files.note(_known(names))
    _judge(names)
    return importlib.import_module(names[0])


def demand(*names: str) -> None:
    """Asserts that all of these are here, and that the test that runs said that it needs them."""
    for name in _known(names):
        if _running.declared is not None and name not in _running.declared:
            pytest.fail(
                f"this test needs {name} and does not say so: mark it with @needs({name!r}), or its "
                f"fixture with @fixture_needs({name!r})"
            )
        assert is_here(name), NEEDS[name].sentence


def program(need: str, name: str = "") -> str:
    """Returns the path of a program that the test needs, by default the one named as its need."""
    demand(need)
    found = which(name or need)
    assert found is not None, NEEDS[need].sentence
    return found


def needs_of(item: pytest.Item) -> frozenset[str]:
    """Returns what a test needs, by its marks and its fixtures."""
    found = {name for mark in item.iter_markers("needs") for name in _known(mark.args)}
    fixtures: Mapping[str, Sequence[Any]] = {}
    if info := getattr(item, "_fixtureinfo", None):
        fixtures = info.name2fixturedefs
    for definitions in fixtures.values():
        found |= set(getattr(definitions[-1].func, _ATTRIBUTE, ()))
    return frozenset(found)


def required() -> frozenset[str]:
    """Returns the names whose absence is a failure. UsageError: the variable has another name."""
    found: set[str] = set()
    for word in filter(None, (word.strip() for word in os.environ.get(REQUIRE, "").split(","))):
        name = word.removeprefix("-")
        if name != "all" and name not in NEEDS:
            raise pytest.UsageError(f"{REQUIRE}: {name!r} is not in the table of {__name__}")
        named = set(NEEDS) if name == "all" else {name}
        found = found - named if word.startswith("-") else found | named
    return frozenset(found)


def absences(reports: Iterable[Any]) -> Iterable[str]:
    """Yields a sentence for each thing that skipped tests wanted, from the reports of a whole run."""
    tests: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        counted = tests if isinstance(report, pytest.TestReport) else files
        counted.update(need.name for need in NEEDS.values() if need.sentence in reason)
    for name, need in NEEDS.items():
        parts = [
            f"{counted[name]} {word}{'s' * (counted[name] > 1)}"
            for counted, word in ((tests, "test"), (files, "file"))
            if counted[name]
        ]
        if parts:
            yield f"skipped for want of {name} ({need.remedy}): {' and '.join(parts)}"


class Needing:
    """The plugin: skips or fails what needs something that is not here, and lists it at the end.

    functions: the test functions of each collected file. needing: those of them that need something,
    by its name. whole: files that need it as wholes.
    """

    def __init__(self) -> None:
        self.functions: dict[Path, set[str]] = defaultdict(set)
        self.needing: dict[str, dict[Path, set[str]]] = {name: defaultdict(set) for name in NEEDS}
        self.whole: dict[str, set[Path]] = {name: set() for name in NEEDS}

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        function = item.nodeid.partition("[")[0]
        self.functions[item.path].add(function)
        for name in needs_of(item):
            self.needing[name][item.path].add(function)

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Knows which file `import_needed` speaks of."""
        before, _files.collected = _files.collected, collector.path
        try:
            return (yield)
        finally:
            _files.collected = before
            for name in _files.said.get(collector.path, ()):
                self.whole[name].add(collector.path)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """With `--needing NAME`, leaves out the tests that do not need it."""
        if not (name := config.getoption("--needing", None)):
            return
        (known,) = _known([name])
        whole = self.whole[known]
        left_out = [item for item in items if not (known in needs_of(item) or item.path in whole)]
        if left_out:
            config.hook.pytest_deselected(items=left_out)
            items[:] = [item for item in items if known in needs_of(item) or item.path in whole]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Knows what the test that runs has declared."""
        _running.declared = needs_of(item)
        try:
            return (yield)
        finally:
            _running.declared = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Judges a test before its fixtures start."""
        _judge(needs_of(item))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for sentence in absences(terminalreporter.stats.get("skipped", ())):
            terminalreporter.write_line(sentence)


def _judge(names: Iterable[str]) -> None:
    """Skips what needs these, or fails, if one of them is not here."""
    missing = [name for name in NEEDS if name in set(names) and not is_here(name)]
    sentences = "; ".join(NEEDS[name].sentence for name in missing)
    wanted = [name for name in missing if name in required()]
    if wanted:
        pytest.fail(f"{sentences} ({REQUIRE} asks for {' and '.join(wanted)})", pytrace=False)
    if missing:
        pytest.skip(sentences, allow_module_level=True)


@functools.cache
def is_here(name: str) -> bool:
    return NEEDS[name].there()


def _known(names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        if name not in NEEDS:
            raise pytest.UsageError(f"{name!r} is not in the table of {__name__}")
    return tuple(names)


@dataclass
class _Running:
    """declared: what the test that runs needs, as it says; None between tests."""

    declared: frozenset[str] | None = None


class _Files:
    """What files need as wholes. collected: the file that is being imported."""

    def __init__(self) -> None:
        self.collected: Path | None = None
        self.said: dict[Path, set[str]] = {}

    def note(self, names: Iterable[str]) -> None:
        if self.collected is not None:
            self.said.setdefault(self.collected, set()).update(names)


_running = _Running()
_files = _Files()
