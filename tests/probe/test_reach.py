"""An address whose answer would end the process of a client that speaks UCX."""

from __future__ import annotations

import signal

import pytest
from helpers.command import run_rgpu
from helpers.ends import plant
from helpers.needs import needs
from helpers.server import Server

from netprobe import reach
from netprobe.reach import check_reach
from rgpu_common.errors import ServerError


@pytest.mark.parametrize(
    ("source", "harms"),
    [("import os; os.abort()", True), ("raise SystemExit(1)", False), ("", False)],
)
def test_only_the_death_of_the_process_that_tried_counts(
    monkeypatch: pytest.MonkeyPatch, source: str, harms: bool
) -> None:
    plant(signal.SIGABRT)
    monkeypatch.setattr(reach, "_MAIN", source)
    check = check_reach.__wrapped__
    check("tcp:127.0.0.1:1")
    if not harms:
        check("ucx:127.0.0.1:1")
        return
    with pytest.raises(ServerError, match="does not speak UCX"):
        check("ucx:127.0.0.1:1")


@needs("ucx")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("run", "--server", "{}", "--", "true"), 125),
        (("trace", "--server", "{}", "--", "true"), 125),
        (("probe", "{}"), 1),
    ],
)
def test_a_tcp_port_named_as_ucx_is_a_sentence(words: tuple[str, ...], code: int) -> None:
    with Server() as server:
        address = f"ucx:{server.tcp}"
        done = run_rgpu(*[word.format(address) for word in words])
    assert done.returncode == code
    assert done.stderr.startswith(f"rgpu: what listens at {address} does not speak UCX")
    assert done.stderr.count("\n") == 1
