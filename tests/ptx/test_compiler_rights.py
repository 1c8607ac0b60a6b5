"""The rights of a compiler process, and its report of the rights that it could not give up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from helpers.needs import needs
from ptx.compiling import (
    KERNEL,
    Accepting,
)

from rgpu_emu.compile_sandbox import Report, own_user
from rgpu_server.workers.compiler import first_report


@needs("root")
def test_the_waiting_process_has_no_rights(tmp_path: Path) -> None:
    with Accepting(tmp_path) as compiler:
        assert compiler.connect().load(KERNEL).result == 0
        for pid in (compiler.process.pid, *compiler.jobs()):
            facts = dict(
                line.split(":\t", 1)
                for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if ":\t" in line
            )
            assert {facts[f"Cap{kind}"].strip("0") for kind in ("Inh", "Prm", "Eff", "Amb")} == {""}
            assert {int(user) for user in facts["Uid"].split()} == {own_user(compiler.process.pid)}
            assert facts["NoNewPrivs"] == "1"
        assert facts["Seccomp"] == "2"
        assert compiler.report == ""


def test_the_report_can_be_had_before_anybody_is_served() -> None:
    assert first_report() == ("" if os.geteuid() == 0 else OTHER_USER)


OTHER_USER = "own-user: the server does not run as root"


def test_what_a_machine_does_not_allow_is_reported_as_a_worker_does() -> None:
    report = Report()
    report.refused("system-calls", "prctl", errno.EPERM)
    report.add("own-user: the server does not run as root; system-calls: EPERM from prctl")
    assert report.text() == (
        "system-calls: EPERM from prctl; own-user: the server does not run as root"
    )
