"""How the plugins write files, and how they share the driver library with containers."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rgpu_cluster.kubelet.files import on_disk, replace_file
from rgpu_cluster.kubelet.library import put_library


def test_a_file_is_replaced_by_one_rename(tmp_path: Path) -> None:
    file = tmp_path / "token"
    replace_file(file, "old", 0o400)
    with file.open() as opened:
        replace_file(file, "new", 0o440)
        assert opened.read() == "old"
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o440
    assert [*tmp_path.iterdir()] == [file]


def test_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / ".token.part").symlink_to(target)
    replace_file(tmp_path / "token", "secret", 0o400)
    assert target.read_text() == "mine"


def test_what_lies_on_tmpfs_reaches_no_disk() -> None:
    assert not on_disk(Path("/dev/shm"))
    assert on_disk(Path("/proc"))
    assert on_disk(Path("/usr/lib"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "inner").mkdir(parents=True)
    (folder / "libcuda.so.1").write_bytes(b"one")
    (folder / "inner" / "empty.so").write_bytes(b"")
    return folder


def test_a_library_of_another_release_lies_beside_the_first(tmp_path: Path, source: Path) -> None:
    first = put_library(source, tmp_path / "lib")
    assert put_library(source, tmp_path / "lib") == first
    (source / "libcuda.so.1").write_bytes(b"two")
    second = put_library(source, tmp_path / "lib")
    assert (first / "libcuda.so.1").read_bytes() == b"one"
    assert (second / "libcuda.so.1").read_bytes() == b"two"
    assert (second / "inner" / "empty.so").exists()
    assert stat.S_IMODE(second.stat().st_mode) == 0o755
    assert sorted(one.name for one in (tmp_path / "lib").iterdir()) == sorted(
        [first.name, second.name]
    )
