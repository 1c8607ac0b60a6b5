"""The place where the daemon keeps compiled kernels: on a disk, in its own folder."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from helpers.needs import needs

from rgpu_server.workers import kernel_cache as place
from rgpu_server.workers.kernel_cache import forget_passing, kernel_cache

STATE = Path("/run/rgpu/7700")


def test_root_keeps_it_below_var_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert place._default(STATE, own=True) == Path("/var/cache/rgpu/7700")
    named = place._default(Path("/srv/state"), own=False)
    assert named.parent == Path("/var/cache/rgpu")
    assert named != place._default(Path("/srv/state2"), own=False)


def test_others_keep_it_in_their_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernel_cache("", STATE, own=True) == tmp_path / "rgpu" / "kernels" / "7700"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/somebody")
    found = place._default(STATE, own=True)
    assert found == Path("/home/somebody/.cache/rgpu/kernels/7700")


def test_a_folder_that_cannot_be_made_is_said_and_does_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        assert kernel_cache("", STATE, own=True) is None
    assert "name a folder on a disk with emulated.cache" in caplog.text


@needs("shm-in-memory")
def test_a_file_system_in_memory_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert kernel_cache("/dev/shm", STATE, own=True) == Path("/dev/shm")
    assert "/dev/shm is on a file system in memory" in caplog.text


def test_what_nobody_finds_again_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers on ports that cannot be found again: one stops, one was killed, one runs."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    states = tmp_path / "states"
    for name in ("any-runs", "any-new"):
        (states / name).mkdir(parents=True)
    runs = kernel_cache("", states / "any-runs", own=True)
    killed = tmp_path / "cache" / "rgpu" / "kernels" / "any-killed"
    killed.mkdir()
    made = kernel_cache("", states / "any-new", own=True)
    kept = kernel_cache("", states / "7700", own=True)
    assert runs is not None
    assert runs.exists()
    assert not killed.exists()
    forget_passing(made)
    forget_passing(kept)
    assert made is not None
    assert not made.exists()
    assert kept is not None
    assert kept.exists()
