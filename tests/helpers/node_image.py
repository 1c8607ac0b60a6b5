"""An image with the layout of the target `kubernetes` of deploy/docker/Dockerfile, in seconds.

It has rgpu as it is installed for the tests, the packages that the Dockerfile's lists name, and the
running Python. `make containers` builds the Dockerfile itself, which takes minutes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from helpers.command import rgpu_command

DOCKER = Path(__file__).resolve().parents[2] / "deploy" / "docker"
REPOSITORY, TAG = "localhost/rgpu-kubernetes", "test"
IMAGE = f"{REPOSITORY}:{TAG}"
# What containers of a pod share: its program sleeps.
PAUSE = "localhost/pause:test"
_LISTS = ("client.txt", "server.txt", "kubernetes.txt")
# Of Debian: what rgpu's parts call, and what tests look with.
_TOOLS = ("sh", "sleep", "cat", "ls", "id", "mount", "setpriv", "ldconfig")
# What programs load without being linked to it.
_LOADED = ("libnghttp2.so.14", "libnss_dns.so.2", "libnss_files.so.2", "libgcc_s.so.1")
_LEFT_OUT = {"__pycache__", "test", "idlelib", "ensurepip", "site-packages", "dist-packages"}
_PYTHON = f"python{sysconfig.get_python_version()}"
_SITE = f"opt/rgpu/lib/{_PYTHON}/site-packages"
_SECONDS = 120


def write(archive: Path) -> None:
    """Writes the images, as `docker save` does: they have one layer in common, which comes first."""
    with archive.open("wb+") as file:
        file.seek(tarfile.BLOCKSIZE)
        with tarfile.open(fileobj=file, mode="w") as tar:
            _fill(tar)
        head = tarfile.TarInfo("layer.tar")
        head.size = file.tell() - tarfile.BLOCKSIZE
        file.seek(0)
        file.write(head.tobuf())
        digest = hashlib.sha256()
        while data := file.read(1 << 20):
            digest.update(data)
        with tarfile.open(fileobj=file, mode="w") as tar:
            _describe(tar, f"sha256:{digest.hexdigest()}")


def _describe(tar: tarfile.TarFile, layer: str) -> None:
    """Writes what the images are."""
    rows = []
    for name, config in ((IMAGE, _settings()), (PAUSE, {"Cmd": ["sleep", "infinity"]})):
        file = f"{hashlib.sha256(name.encode()).hexdigest()}.json"
        _text(tar, file, json.dumps(_image(config, layer)))
        rows.append({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]})
    _text(tar, "manifest.json", json.dumps(rows))


def _image(config: dict[str, Any], layer: str) -> dict[str, Any]:
    path = {"Env": ["PATH=/usr/sbin:/usr/bin"], **config}
    return {
        "architecture": "amd64", "os": "linux", "config": path,
        "rootfs": {"type": "layers", "diff_ids": [layer]}, "history": [{}],
    }  # fmt: skip


def _settings() -> dict[str, Any]:
    """Returns user and variables of the target, as the Dockerfile says them."""
    text = (DOCKER / "Dockerfile").read_text()
    stage = text[text.index("FROM python AS kubernetes") :]
    user = re.search(r"^USER (\S+)$", stage, re.MULTILINE)
    base = re.search(r"AS python\n.*?^ENV (.*?[^\\])$", text, re.MULTILINE | re.DOTALL)
    assert user
    assert base
    return {"User": user[1], "Env": base[1].replace("\\\n", " ").split(), "Cmd": ["rgpu"]}


def _fill(tar: tarfile.TarFile) -> None:
    """Writes Debian's folders, Python, and /opt/rgpu."""
    for name in ("bin", "sbin", "lib", "lib64"):
        _link(tar, name, f"usr/{name}")
    _link(tar, "var/run", "/run")
    _link(tar, "usr/bin/python3", f"/usr/local/bin/{_PYTHON}")
    for name, mode, owner in (("tmp", 0o1777, 0), ("etc", 0o755, 0), ("run/rgpu", 0o755, 65532)):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode, folder.uid, folder.gid = tarfile.DIRTYPE, mode, owner, owner
        tar.addfile(folder)
    _text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")
    _text(tar, "etc/group", "root:x:0:\n")
    _text(tar, "etc/nsswitch.conf", "hosts: files dns\n")
    found = {f"usr/bin/{name}": Path(shutil.which(name, path=_PATH) or name) for name in _TOOLS}
    found |= dict(_python()) | dict(_packages())
    for name, file in found.items():
        tar.add(file.resolve(), arcname=name)
    for library in _libraries(found.values()):
        tar.add(library.resolve(), arcname=_below_usr(library))
    for name in ("python", "python3"):
        _link(tar, f"opt/rgpu/bin/{name}", f"/usr/local/bin/{_PYTHON}")
    _text(
        tar, "opt/rgpu/pyvenv.cfg", "home = /usr/local/bin\ninclude-system-site-packages = false\n"
    )
    script = Path(rgpu_command()).read_text().partition("\n")[2]
    _text(tar, "opt/rgpu/bin/rgpu", f"#!/opt/rgpu/bin/python\n{script}", 0o755)


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _python() -> Iterator[tuple[str, Path]]:
    """Yields the interpreter and its library, as pairs of the name in the image and the file."""
    yield f"usr/local/bin/{_PYTHON}", Path(sys.executable).resolve()
    library = Path(sysconfig.get_path("stdlib"))
    for file in _files(library):
        yield f"usr/local/lib/{_PYTHON}/{file.relative_to(library)}", file


def _packages() -> Iterator[tuple[str, Path]]:
    """Yields the files of rgpu and of the packages that it needs."""
    rows = [row for name in _LISTS for row in (DOCKER / name).read_text().splitlines()]
    site = Path(sysconfig.get_path("purelib"))
    for name in ("rgpu-cuda", *(row.partition("==")[0] for row in rows if "==" in row)):
        listed = [one for one in distribution(name.strip()).files or () if ".." not in one.parts]
        # Whole folders: a package has what was written there since it was installed, too.
        for top in sorted({one.parts[0] for one in listed}):
            place = site / top
            for file in _files(place) if place.is_dir() else [place]:
                yield f"{_SITE}/{file.relative_to(site)}", file


def _files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in _LEFT_OUT]
        yield from (Path(place) / name for name in names if not name.endswith((".pyc", ".a")))


def _libraries(files: Iterable[Path]) -> list[Path]:
    """Returns the system's libraries that files are linked to."""
    linked = [str(file) for file in files if ".so" in file.name or os.access(file, os.X_OK)]
    shown = subprocess.run(
        ["ldd", *linked], capture_output=True, text=True, timeout=_SECONDS, check=False
    ).stdout
    words = set(re.findall(r"(?:=> |^\t)(/\S+) \(", shown, re.MULTILINE))
    site = sysconfig.get_path("purelib")
    folder = Path("/usr/lib") / sysconfig.get_config_var("MULTIARCH")
    more = {folder / name for name in _LOADED if (folder / name).exists()}
    return sorted({Path(word) for word in words if not word.startswith(site)} | more)


def _below_usr(library: Path) -> str:
    """Returns the name of a library in the image, in which /lib is below /usr."""
    system = library.parts[1] in ("lib", "lib64", "usr")
    multiarch = f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}"
    return (
        f"usr/{str(library).removeprefix('/usr')[1:]}" if system else f"{multiarch}/{library.name}"
    )


def _text(tar: tarfile.TarFile, name: str, content: str, mode: int = 0o644) -> None:
    file = tarfile.TarInfo(name)
    file.size, file.mode = len(content.encode()), mode
    tar.addfile(file, io.BytesIO(content.encode()))


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    link = tarfile.TarInfo(name)
    link.type, link.linkname = tarfile.SYMTYPE, target
    tar.addfile(link)
