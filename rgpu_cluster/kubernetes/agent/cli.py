"""`rgpu agent-node`."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from rgpu_cluster.kubernetes.agent.config import AgentConfig, load_agent_config
from rgpu_common.command import OK, Command
from rgpu_common.errors import MissingPartError
from rgpu_common.installing import install_words
from rgpu_common.keys import keys_of
from rgpu_common.variables import say_misspelt
from rgpu_server.cli import LEVELS, add_option

if TYPE_CHECKING:
    import argparse


def _configure(parser: argparse.ArgumentParser) -> None:
    for row in keys_of(AgentConfig):
        if row.option is not None:
            add_option(parser, row, row.option)
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )


def _run(arguments: argparse.Namespace) -> int:
    say_misspelt(os.environ)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # It logs each request, at the level at which we log what an operator reads.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    config = load_agent_config(vars(arguments))
    try:
        from rgpu_cluster.kubernetes.agent.running import run_agent
    except ImportError as error:
        if error.name not in ("lightkube", "httpx2"):
            raise
        raise MissingPartError(
            f"`rgpu agent-node` needs the package {error.name}: {install_words('kubernetes')}"
        ) from None
    run_agent(config)
    return OK


agent_node = Command("agent-node", "offer this GPU node's cards to Kubernetes", _configure, _run)
