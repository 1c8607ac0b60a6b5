"""`rgpu demo`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.command import FAILED, OK, Command

if TYPE_CHECKING:
    import argparse


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--verbose", action="store_true", help="show the server's log too")
    parser.add_argument(
        "--arrays",
        action="store_true",
        help="PyTorch trains a small network beside a numba-cuda program, each with its share",
    )


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.arrays:
        from rgpu_client.demo.arrays import run_arrays

        return OK if run_arrays(verbose=arguments.verbose) else FAILED
    from rgpu_client.demo.show import run_demo

    return OK if run_demo(verbose=arguments.verbose) else FAILED


demo = Command(
    "demo", "show rgpu at work: a server and two programs in two leases", _configure, _demo
)
