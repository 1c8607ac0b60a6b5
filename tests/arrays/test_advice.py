"""What a program under `rgpu run` says that ends because its Python lacks CuPy, PyTorch or rgpu."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import run_rgpu_plain
from helpers.server import Server

# PyTorch's CPU build as a program sees it whose Python has it: this test needs no PyTorch.
_CPU_TORCH = {
    "torch/__init__.py": """
from torch import version
def ones():
    raise AssertionError("Torch not compiled with CUDA enabled")
""",
    "torch/version.py": "cuda = None",
}
_WITH_RGPU = "install rgpu's wheel there, with the extra [arrays]"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as running:
        yield running


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python that has no package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return str(folder / "bin" / "python")


def _written(folder: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return str(folder)


def _run(
    server: Server, python: str, program: Path, *options: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    return run_rgpu_plain(
        "run", "--server", server.unix, "--memory", "16MiB", *options, "--", python, str(program),
        **environment,
    )  # fmt: skip


@pytest.mark.parametrize("line", ["import cupy", "import cupyx.scipy", "from cupy import ndarray"])
def test_cupy_that_is_not_there_names_arrays(
    server: Server, bare: str, tmp_path: Path, line: str
) -> None:
    _written(tmp_path, {"main.py": "import inner", "inner.py": f"\n{line}"})
    done = _run(server, bare, tmp_path / "main.py")
    name = line.split()[1].partition(".")[0]
    assert done.stderr == (
        f"rgpu: {tmp_path}/inner.py, line 2, imports {name}, which is not installed for {bare}: "
        "`rgpu run --arrays` executes CuPy's operations on the GPU node\n"
    )
    assert done.returncode == 1


def test_a_program_that_can_do_without_finds_what_it_finds_without_rgpu(
    server: Server, bare: str, tmp_path: Path
) -> None:
    program = tmp_path / "main.py"
    program.write_text("""
import importlib.util, sys
print(importlib.util.find_spec("cupy"), [one for one in sys.path if "rgpu_client" in one])
try:
    import cupy
except ImportError as error:
    print(type(error).__name__, error)
""")
    done = _run(server, bare, program)
    assert done.stdout == "None []\nModuleNotFoundError No module named 'cupy'\n"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        ({"main.py": "import mine"}, "mine"),
        ({"main.py": "import cupy", "cupy/__init__.py": "import cupy_backends"}, "cupy_backends"),
        ({"main.py": "import cupy.core", "cupy/__init__.py": ""}, "cupy.core"),
        ({"main.py": "import torch"}, "torch"),
        ({"main.py": "import numpy"}, "numpy"),
    ],
)
def test_other_errors_are_shown_as_python_shows_them(
    server: Server, bare: str, tmp_path: Path, files: dict[str, str], missing: str
) -> None:
    _written(tmp_path, files)
    alone = subprocess.run(
        [bare, str(tmp_path / "main.py")], capture_output=True, text=True, check=False, timeout=60
    )
    assert f"No module named {missing!r}" in alone.stderr
    done = _run(server, bare, tmp_path / "main.py")
    assert (done.stderr, done.returncode) == (alone.stderr, alone.returncode)


def test_pytorch_that_is_not_there_is_named_with_torch(
    server: Server, bare: str, tmp_path: Path
) -> None:
    program = tmp_path / "main.py"
    # As in an environment without it, whatever else this one has.
    program.write_text("import sys\nsys.modules['torch'] = None\nimport torch")
    for python in (bare, sys.executable):
        done = _run(server, python, program, "--torch")
        assert done.stderr == (
            f"rgpu: {program}, line 3, imports torch, which is not installed for {python}: "
            f"`rgpu run --torch` needs its CPU build, for example from `{python} -m pip install "
            "torch --index-url https://download.pytorch.org/whl/cpu`\n"
        )


def test_what_rgpu_lacks_for_its_own_pytorch_is_one_sentence(
    server: Server, tmp_path: Path
) -> None:
    program = tmp_path / "main.py"
    program.write_text("import sys\nsys.modules['torch'] = None\nimport rgpu_client.torch")
    done = _run(server, sys.executable, program)
    assert done.stderr.startswith("rgpu: PyTorch is not installed here: install its CPU build")
    assert (done.stderr.count("\n"), done.returncode) == (1, 1)


@pytest.mark.parametrize(
    ("option", "name"), [("--arrays", "cupy"), ("--arrays", "cupyx"), ("--torch", "torch")]
)
def test_a_python_without_rgpu_is_told_that_it_needs_rgpu(
    server: Server, bare: str, tmp_path: Path, option: str, name: str
) -> None:
    path = _written(tmp_path, {**_CPU_TORCH, "main.py": f"import {name}\nprint({name}.ones())"})
    done = _run(server, bare, tmp_path / "main.py", option, PYTHONPATH=path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("rgpu: ")
    assert last.endswith(f"`rgpu run {option}` needs {'rgpu' if name == 'torch' else 'it'} in the "
                         f"program's Python: {_WITH_RGPU}")  # fmt: skip
    assert "sitecustomize" not in done.stderr


@pytest.mark.parametrize("missing", ["numpy", "msgpack"])
def test_what_arrays_needs_is_named(server: Server, tmp_path: Path, missing: str) -> None:
    program = tmp_path / "main.py"
    program.write_text(f"import sys\nsys.modules[{missing!r}] = None\nimport cupy\ncupy.ones(3)")
    done = _run(server, sys.executable, program, "--arrays")
    assert done.stderr.count("\n") == 1, done.stderr
    assert f", imports {missing}, which is not installed for {sys.executable}: " in done.stderr
    assert done.stderr.endswith(f"`rgpu run --arrays` needs it: {_WITH_RGPU}\n")


_DRIVER = "import ctypes; ctypes.CDLL('libcuda.so.1')\n"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import torch\ntorch.ones()", "this PyTorch is built without CUDA: `rgpu run --torch`"),
        ("import torch", "this PyTorch is built without CUDA, so the program has computed here: "),
        (f"{_DRIVER}import torch", ""),
        ("import sys", ""),
    ],
)
def test_a_pytorch_without_cuda_names_torch(
    server: Server, bare: str, tmp_path: Path, program: str, said: str
) -> None:
    path = _written(tmp_path, {**_CPU_TORCH, "main.py": program})
    done = _run(server, bare, tmp_path / "main.py", PYTHONPATH=path)
    ours = [line for line in done.stderr.splitlines() if line.startswith("rgpu: ")]
    assert len(ours) == bool(said), done.stderr
    assert all(line.startswith(f"rgpu: {said}") for line in ours)
    # An error of PyTorch's own is shown too, with its place.
    assert ("AssertionError: Torch not compiled" in done.stderr) == ("ones" in program)


@pytest.mark.parametrize("where", ["path", "site"])
@pytest.mark.parametrize("option", [(), ("--arrays",), ("--torch",)])
def test_a_sitecustomize_of_the_user_is_executed_once(
    server: Server, tmp_path: Path, option: tuple[str, ...], where: str
) -> None:
    venv.create(tmp_path / "own", symlinks=True)
    (site,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    folder = site if where == "site" else tmp_path
    (folder / "sitecustomize.py").write_text(
        "import sys; 'own' in sys.executable and print('mine')"
    )
    (tmp_path / "main.py").write_text("import sitecustomize; print(sitecustomize.__file__)")
    path = {"PYTHONPATH": str(tmp_path)} if where == "path" else {}
    python = str(tmp_path / "own" / "bin" / "python")
    # Debian's Python has one itself, before those of an environment.
    alone = subprocess.run(
        [python, str(tmp_path / "main.py")], capture_output=True, text=True, check=True, timeout=60,
        cwd="/", env={**os.environ, **path},
    )  # fmt: skip
    assert where == "site" or alone.stdout == f"mine\n{folder}/sitecustomize.py\n"
    done = _run(server, python, tmp_path / "main.py", *option, **path)
    assert done.stdout == alone.stdout, done.stderr
