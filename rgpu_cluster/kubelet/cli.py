"""`rgpu node-plugin`."""

from __future__ import annotations

import logging
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.command import OK, Command
from rgpu_common.errors import MissingPartError
from rgpu_common.installing import install_words
from rgpu_common.variables import say_misspelt
from rgpu_server.cli import LEVELS

if TYPE_CHECKING:
    import argparse

_FOLDERS = (
    ("--kubelet-dir", "/var/lib/kubelet", "The kubelet's folder."),
    ("--state", "/run/rgpu/claims", "Where the credentials of claims lie; a folder on tmpfs."),
    ("--cdi-dir", "/var/run/cdi", "Where the container runtime looks for CDI specifications."),
    ("--library", "/var/lib/rgpu/lib", "Where the plugin puts the driver library for containers."),
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node", metavar="NAME", default=os.environ.get("RGPU_NODE") or platform.node(),
        help="This node's name in Kubernetes (default: RGPU_NODE, else the host's name).",
    )  # fmt: skip
    for flag, default, about in _FOLDERS:
        parser.add_argument(
            flag, type=Path, metavar="DIR", default=Path(default),
            help=f"{about} The same path on the node and for the plugin. Default: {default}.",
        )  # fmt: skip
    parser.add_argument(
        "--token-file", type=Path, metavar="FILE",
        default=Path("/var/run/secrets/rgpu.dev/token"),
        help="The plugin's ServiceAccount token for the audience rgpu.dev. Default: %(default)s.",
    )  # fmt: skip
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="",
        help="How to reach Kubernetes (default: KUBECONFIG, else the pod's ServiceAccount).",
    )  # fmt: skip
    parser.add_argument(
        "--unprepare-all", action="store_true",
        help="Removes all that is prepared, and lets pods that end go. Prepares nothing. For nodes "
        "from which the plugin is removed.",
    )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )


def _run(arguments: argparse.Namespace) -> int:
    say_misspelt(os.environ)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # One line for each request to the API server says nothing that we do not say.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        from rgpu_cluster.kubelet.serving import PluginOptions, run
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"the package {error.name} is missing: {install_words('kubernetes')}"
        ) from None
    from rgpu_server.daemon import run_loop

    options = PluginOptions(
        node=arguments.node,
        kubelet=arguments.kubelet_dir,
        state=arguments.state,
        cdi=arguments.cdi_dir,
        library=arguments.library,
        token_file=arguments.token_file,
        kubeconfig=arguments.kubeconfig,
        closing=arguments.unprepare_all,
    )
    run_loop(lambda: run(options))
    return OK


node_plugin = Command(
    "node-plugin", "give pods of this Kubernetes node the GPUs of their claims", _configure, _run
)
