"""Which files a process can still open when it has given up files (Landlock), and which user it has
when it has given up root.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from helpers.builder import ROOT, Builder, run
from helpers.needs import needs

DENIED = errno.EACCES
CHANGES = {
    "write": DENIED, "make": DENIED, "make a folder": DENIED, "remove": DENIED, "rename": DENIED,
    "name the process": DENIED,
}  # fmt: skip
EXPECTED = {
    # A worker of the emulated device, which is root here: a file's rights do not matter.
    "none": {**CHANGES, "read": DENIED, "write to a device": DENIED, "name a thread": DENIED},
    "read": {**CHANGES, "read": 0, "write to a device": DENIED, "name a thread": DENIED},
    # A worker of NVIDIA's driver.
    "devices": {**CHANGES, "read": 0, "write to a device": 0, "name a thread": 0},
}


def built(name: str, folder: Path) -> Path:
    builder = Builder(folder)
    sources = [
        Path(__file__).with_name(f"{name}.cc"),
        ROOT / "rgpu_common" / "native" / "confine" / "rights.cc",
        ROOT / "rgpu_common" / "native" / "base" / "fd.cc",
    ]
    return builder.link(name, builder.objects(sources))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("files", tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("which", list(EXPECTED))
def test_which_files_are_left(program: Path, tmp_path: Path, which: str) -> None:
    (tmp_path / "there").write_text("text")
    done = run(program, which, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (line.rpartition(" ") for line in done.stdout.splitlines())
    assert {name: int(number) for name, _, number in lines} == EXPECTED[which]
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@needs("root", "user-namespaces")
def test_a_user_of_its_own_where_a_container_has_fewer_users(tmp_path: Path) -> None:
    done = run(built("users", tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    user, _, missing = done.stdout.strip().partition(" ")
    assert missing == ""
    assert 32768 <= int(user) < 65536
