"""Regenerates `rgpu_common/v1/` from `protos/`: python scripts/gen_protos.py [--check].

The proto folders have the paths of the Python package, so the generated imports are right as they
are. The versions of the compiler and its plug-in are fixed, because generated code needs a protobuf
runtime at least as new as its compiler: a newer compiler would make every user upgrade.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("rgpu_common/v1")
TOOLS = {"grpcio-tools": "1.73.1", "mypy-protobuf": "3.6.0"}
INIT = '"""Messages and services of the control plane, generated from `protos/`."""\n'


def check_tools() -> None:
    """SystemExit with a sentence unless the tools have the fixed versions."""
    pins = " ".join(f"{name}=={wanted}" for name, wanted in TOOLS.items())
    for name, wanted in TOOLS.items():
        try:
            found = version(name)
        except PackageNotFoundError:
            found = "nothing"
        if found != wanted:
            sys.exit(f"{name} {wanted} is needed, found {found}: python -m pip install {pins}")


def generate(out: Path) -> None:
    """Writes pb2, grpc and type stubs of every proto below `out`; RuntimeError if protoc
    refuses.
    """
    from grpc_tools import protoc

    scripts = str(Path(sys.executable).parent)  # where protoc finds the plug-ins of mypy-protobuf
    os.environ["PATH"] = f"{scripts}{os.pathsep}{os.environ.get('PATH', os.defpath)}"

    protos = sorted(str(p.relative_to(ROOT / "protos")) for p in (ROOT / "protos").rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{ROOT / 'protos'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={out}",
        f"--grpc_python_out={out}",
        f"--mypy_out=quiet:{out}",
        f"--mypy_grpc_out=quiet:{out}",
        *protos,
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc refused the protos; it has said why above")
    (out / PACKAGE / "__init__.py").write_text(INIT)


def stale(out: Path) -> list[str]:
    """Names of the files that differ between `out` and the working tree."""
    names = {p.name for folder in (out / PACKAGE, ROOT / PACKAGE) for p in folder.glob("*.py*")}
    return [
        name
        for name in sorted(names)
        if not (out / PACKAGE / name).exists()
        or not (ROOT / PACKAGE / name).exists()
        or not filecmp.cmp(out / PACKAGE / name, ROOT / PACKAGE / name, shallow=False)
    ]


def main() -> int:
    """Returns 1 if `--check` finds a stale file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only, change nothing")
    check = parser.parse_args().check
    check_tools()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        generate(out)
        changed = stale(out)
        if check:
            for name in changed:
                print(f"{PACKAGE / name} is stale: run `make gen`", file=sys.stderr)
            return 1 if changed else 0
        for name in changed:
            made = out / PACKAGE / name
            if made.exists():
                shutil.copyfile(made, ROOT / PACKAGE / name)
            else:
                (ROOT / PACKAGE / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
