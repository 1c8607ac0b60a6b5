"""Regenerates what `PACKAGES` names from the protos: python scripts/gen_protos.py [--check].

The proto folders have the paths of the Python packages, so the generated imports are right as they
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
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = {"grpcio-tools": "1.73.1", "mypy-protobuf": "3.6.0"}


@dataclass(frozen=True)
class Package:
    """A generated package. root: the folder that its import path begins in, below `ROOT`, and that
    has the folder `protos` with the same path.
    """

    root: str
    path: str
    about: str

    @property
    def folder(self) -> Path:
        return Path(self.root) / self.path

    @property
    def protos(self) -> Path:
        return ROOT / self.root / "protos"


PACKAGES = (
    Package("", "rgpu_common/v1", "Messages and services of the control plane"),
    Package("", "rgpu_cluster/kubelet/api", "Kubernetes' interfaces between kubelet and plugins"),
    Package("tests", "helpers/cri", "Kubernetes' interface between kubelet and container runtime"),
)


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

    for package in PACKAGES:
        place = out / package.root
        place.mkdir(exist_ok=True)
        protos = sorted((package.protos / package.path).glob("*.proto"))
        arguments = [
            "protoc",
            f"-I{package.protos}",
            f"-I{files('grpc_tools') / '_proto'}",
            f"--python_out={place}",
            f"--grpc_python_out={place}",
            f"--mypy_out=quiet:{place}",
            f"--mypy_grpc_out=quiet:{place}",
            *(str(proto.relative_to(package.protos)) for proto in protos),
        ]
        if protoc.main(arguments) != 0:
            raise RuntimeError("protoc refused the protos; it has said why above")
        about = f'"""{package.about}, generated from `protos/`."""\n'
        (out / package.folder / "__init__.py").write_text(about)


def stale(out: Path) -> list[Path]:
    """Names of the files that differ between `out` and the working tree."""
    names = {
        path.relative_to(base)
        for base in (out, ROOT)
        for package in PACKAGES
        for path in (base / package.folder).glob("*.py*")
    }
    return [
        name
        for name in sorted(names)
        if not (out / name).exists()
        or not (ROOT / name).exists()
        or not filecmp.cmp(out / name, ROOT / name, shallow=False)
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
                print(f"{name} is stale: run `make gen`", file=sys.stderr)
            return 1 if changed else 0
        for name in changed:
            if (out / name).exists():
                (ROOT / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(out / name, ROOT / name)
            else:
                (ROOT / name).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
