"""`rgpu gate-watchdog`."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging

from rgpu_cluster.manager.kubernetes_keys import namespace_here
from rgpu_common.command import OK, Command

_LEAST, _MOST = 1.0, 3600.0


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help="how to reach Kubernetes")
    parser.add_argument(
        "--namespace", default="", metavar="NAME",
        help="the namespace of the managers (default: that of this pod)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=_seconds, default=30.0, metavar="N",
        help="how long no manager has led before pods are let go (default 30)",
    )  # fmt: skip


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not _LEAST <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"write {_LEAST:g} to {_MOST:g} seconds, not {text!r}")
    return number


def _run(arguments: argparse.Namespace) -> int:
    from rgpu_cluster.kubernetes.watchdog import watch
    from rgpu_server.daemon import run_loop

    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    namespace = arguments.namespace or namespace_here()
    with contextlib.suppress(asyncio.CancelledError):
        run_loop(lambda: watch(arguments.kubeconfig, namespace, arguments.seconds))
    return OK


gate_watchdog = Command(
    "gate-watchdog", "let gated pods go when no manager leads", _configure, _run
)
