"""The command `rgpu doctor`."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.command import FAILED, OK, Command
from rgpu_common.doctor.findings import Level
from rgpu_common.errors import MissingPartError, UsageError
from rgpu_common.units import counted

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from rgpu_common.doctor.findings import Check, Finding, Report

# An entry point of the group has the name of a kind of machine and loads its checks.
GROUP = "rgpu.doctors"
_EPILOG = (
    "Exit code: 1 if there is an error, else 0. `rgpu help doctor` says what is looked at, and "
    "what each finding means."
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    parser.add_argument(
        "--node", action="store_true", help="check this machine as a GPU node, not as a client"
    )
    parser.add_argument(
        "--server", metavar="ADDRESS",
        help="the server that a client uses (default: RGPU_SERVER, then 127.0.0.1:7700)",
    )  # fmt: skip
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="with --node: the server's configuration file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def checks_of(kind: str) -> Sequence[Check]:
    """Returns the checks of "client" or "node"; MissingPartError if they are not installed."""
    for point in entry_points(group=GROUP, name=kind):
        found: Sequence[Check] = point.load()
        return found
    raise MissingPartError(f"the checks of a {kind} are not installed: install rgpu-cuda again")


def _run(arguments: argparse.Namespace) -> int:
    if arguments.node and arguments.server:
        raise UsageError("--server is a client's: leave out --server or --node")
    if arguments.config is not None and not arguments.node:
        raise UsageError("--config is a server's configuration file: say --node too")
    found: list[Finding] = []
    for finding in _findings(arguments):
        found.append(finding)
        if not arguments.json:
            print(finding.text(), flush=True)
    report = _report(found)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print(f"\n{_verdict(report)}")
    return FAILED if report["errors"] else OK


def _findings(arguments: argparse.Namespace) -> Iterator[Finding]:
    for check in checks_of("node" if arguments.node else "client"):
        yield from check.findings(arguments)


def _report(found: Sequence[Finding]) -> Report:
    levels = [finding.level for finding in found]
    return {
        "findings": [finding.row() for finding in found],
        "errors": levels.count(Level.ERROR),
        "warnings": levels.count(Level.WARNING),
    }


def _verdict(report: Report) -> str:
    if not report["errors"] and not report["warnings"]:
        return "nothing is wrong"
    return f"{counted(report['errors'], 'error')}, {counted(report['warnings'], 'warning')}"


doctor = Command("doctor", "say what is wrong here, with the remedy", _configure, _run)
