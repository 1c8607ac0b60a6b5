"""The daemon's side of the token loop on a machine that refuses what the loop needs."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from rgpu_common.errors import WorkerError
from rgpu_server.tokens.home import open_state
from rgpu_server.tokens.link import TokenLink
from rgpu_server.tokens.protocol import Setup


def test_a_loop_that_gets_no_socket_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    state = open_state(tmp_path / "state")
    monkeypatch.setattr(socket, "socketpair", refuse)
    # It is what `_restart` waits a second for, and then tries again.
    with pytest.raises(WorkerError, match="Too many open files"):
        TokenLink(state, Setup((), 1000)).open()
    state.release()
