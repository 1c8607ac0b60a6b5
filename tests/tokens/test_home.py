"""The state folder: its owner, and when it is removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import ServerError
from rgpu_server.tokens import home as homes
from rgpu_server.tokens.home import Home, open_state, state_path


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(homes, "_base", lambda: tmp_path)
    monkeypatch.setattr(homes, "_TRIES", 2)
    tmp_path.chmod(0o700)
    return tmp_path


def test_the_folder_belongs_to_the_first_port(base: Path) -> None:
    assert state_path([parse_endpoint("127.0.0.1:7700")]) == base / "7700"
    unix = [parse_endpoint("unix:/a")]
    assert state_path(unix) == state_path(unix) != state_path([parse_endpoint("unix:/b")])
    taken = [parse_endpoint("127.0.0.1:0")]
    assert state_path(taken) != state_path(taken)


def test_one_server_has_it_at_a_time(base: Path) -> None:
    state = open_state(base / "1")
    with pytest.raises(ServerError, match="another server uses it"):
        open_state(base / "1")
    state.release()
    open_state(base / "1").release()


def test_folders_of_killed_servers_are_removed_and_no_others(base: Path) -> None:
    running, killed, served = (open_state(base / name) for name in ("1", "2", "3"))
    killed.own_folder()
    loop = Home(served.path)
    for state in (killed, served):
        os.close(state.lock_fd)
    (base / "notes").mkdir()
    mine = open_state(base / "4")
    assert {p.name for p in base.iterdir()} == {"1", "3", "4", "notes"}
    loop.listener.close()
    running.release()
    mine.release()


def test_a_named_folder_keeps_what_is_not_ours(base: Path) -> None:
    folder = base / "mine"
    folder.mkdir(mode=0o700)
    (folder / "letter").write_text("dear")
    state = open_state(folder)
    state.own_folder()
    loop = Home(folder)
    assert not loop.leave()  # the daemon has it
    state.release()
    assert loop.leave()
    loop.listener.close()
    assert [p.name for p in folder.iterdir()] == ["letter"]


def test_a_loop_does_not_leave_while_a_daemon_comes(base: Path) -> None:
    state = open_state(base / "1")
    loop = Home(state.path)
    state.release()
    newcomer = open_state(base / "1")
    connection = newcomer.connect()
    assert connection is not None
    assert not loop.leave()
    newcomer.release()
    assert not loop.leave()  # it has not been accepted yet
    accepted = loop.accept()
    assert accepted is not None
    for one in (accepted, connection, loop.listener):
        one.close()


def test_a_folder_of_somebody_else_is_not_used(base: Path) -> None:
    (base / "link").symlink_to("/tmp")
    with pytest.raises(ServerError, match="no folder of this user's"):
        open_state(base / "link")
    with pytest.raises(ServerError, match="too long"):
        open_state(base / ("x" * 100))
