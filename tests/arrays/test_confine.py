"""What a confined array worker can still do, and what it cannot, tried from inside."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.array_worker import Session, array_worker

from arrays.test_kernels import SAXPY, A, V, compiled, launch, scalar
from rgpu_common.arrays.messages import Tag
from rgpu_common.doctor.findings import Level
from rgpu_server.arrays import confine
from rgpu_server.doctor import machine

REFUSED = [
    "write", "make", "remove", "read", "list", "socket", "local socket", "exec", "fork",
    "spawn", "kill", "open a process", "another's memory", "chmod",
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with array_worker("--confined") as made:
        yield made


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_worker_cannot_do(session: Session, what: str) -> None:
    assert session.issuer.ask("attempt", what) == "PermissionError"


def test_nothing_is_lacking(session: Session) -> None:
    """What a machine lacks, the other processes of the server lack here, too."""
    report = session.issuer.ask("report")
    assert "threads ran before" not in report
    if os.geteuid() == 0:
        assert report == ""


def test_libraries_still_work(session: Session) -> None:
    assert session.issuer.ask("compute") < 1e-6


def test_kernels_still_work(session: Session) -> None:
    x = session.put(np.ones(100, np.float32))
    kernel = compiled(session, SAXPY, "saxpy")
    values = [(scalar("float32"), 2.0), (A, x), (A, x), (scalar("int32"), 100)]
    launch(session, kernel, ([1], [128]), values)
    assert (session.read(x) == 3).all()
    whole = session.run("zeros", [1000], [V, [Tag.DTYPE, "float64"]])
    assert session.read(whole).sum() == 0


def test_which_folders_stay_readable() -> None:
    folders = confine.readable()
    assert os.path.realpath(Path(os.__file__).parent) in folders
    for secret in ("/", "/etc", "/root", "/home", "/tmp", os.path.expanduser("~")):
        assert secret not in folders
    assert all(os.path.isabs(one) for one in folders)


def test_folders_that_keep_other_users_from_pythons_modules() -> None:
    with tempfile.TemporaryDirectory(prefix="rgpu-test-") as folder:
        home, library = Path(folder) / "home", Path(folder) / "home" / "python" / "lib"
        library.mkdir(parents=True)
        Path(folder).chmod(0o755)
        home.chmod(0o700)
        assert confine.private([str(library)]) == [str(home)]
        home.chmod(0o711)
        assert confine.private([str(library)]) == []
        library.chmod(0o750)
        assert confine.private([str(library), str(home / "python")]) == [str(library)]
    (found,) = machine.modules(["/home/alice"])
    assert found.level is Level.WARNING
    assert "below /home/alice" in found.sentence
    assert "chmod o+x /home/alice" in found.remedy
    assert not list(machine.modules([]))


def test_a_thread_from_before_is_reported() -> None:
    with array_worker("--confined", blas_threads=2) as session:
        assert "threads ran before it and are not confined" in session.issuer.ask("report")
