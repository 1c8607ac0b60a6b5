"""`rgpu manager`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_cluster.manager.config import ManagerConfig, load_manager_config
from rgpu_common.command import OK, Command
from rgpu_common.keys import keys_of
from rgpu_common.variables import say_misspelt
from rgpu_server.cli import LEVELS, add_option

if TYPE_CHECKING:
    import argparse


def _configure(parser: argparse.ArgumentParser) -> None:
    for row in keys_of(ManagerConfig):
        if row.option is not None:
            add_option(parser, row, row.option)
    parser.add_argument("--config", type=Path, metavar="FILE", help="The configuration, in TOML.")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )


def _run(arguments: argparse.Namespace) -> int:
    say_misspelt(os.environ)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    config = load_manager_config(arguments.config, vars(arguments))
    if config.kubernetes.serve:
        from rgpu_cluster.kubernetes.running import serve
    else:
        from rgpu_cluster.manager.serving import serve
    serve(config)
    return OK


manager = Command("manager", "place requests on the servers of a cluster", _configure, _run)
