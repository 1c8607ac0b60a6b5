"""`rgpu device-plugin`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_cluster.kubelet.units.vocabulary import VOCABULARIES
from rgpu_common.command import OK, Command
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import UsageError
from rgpu_common.variables import say_misspelt
from rgpu_server.cli import LEVELS

if TYPE_CHECKING:
    import argparse

_FOLDERS = (
    ("--kubelet-dir", "/var/lib/kubelet", "The kubelet's folder."),
    ("--state", "/run/rgpu/units", "Where the credentials of containers lie; a folder on tmpfs."),
    ("--library", "/var/lib/rgpu/lib", "Where the plugin puts the driver library for containers."),
)


def _configure(parser: argparse.ArgumentParser) -> None:
    words = "; ".join(
        f"{one.name}: {', '.join(resource.name for resource in one.resources)}"
        for one in VOCABULARIES.values()
    )
    parser.add_argument(
        "--units", metavar="NAME", choices=VOCABULARIES, required=True,
        help=f"Whose units this node offers. {words}.",
    )  # fmt: skip
    parser.add_argument(
        "--key-file", type=Path, metavar="FILE", required=True,
        help="The file with this node's key for credentials, as identity.claim_key of the server.",
    )  # fmt: skip
    parser.add_argument(
        "--server", metavar="ADDRESS", default="unix:/run/rgpu/rgpu.sock",
        help="The socket of this node's `rgpu serve`. Default: %(default)s.",
    )  # fmt: skip
    for flag, default, about in _FOLDERS:
        parser.add_argument(
            flag, type=Path, metavar="DIR", default=Path(default),
            help=f"{about} The same path on the node and for the plugin. Default: {default}.",
        )  # fmt: skip
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )


def _run(arguments: argparse.Namespace) -> int:
    say_misspelt(os.environ)
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from rgpu_cluster.kubelet.units.serving import UnitOptions, run
    from rgpu_server.daemon import run_loop

    try:
        server = parse_endpoint(arguments.server)
    except UsageError as error:
        raise UsageError(f"--server: {error}") from None
    options = UnitOptions(
        vocabulary=VOCABULARIES[arguments.units],
        server=server,
        key_file=arguments.key_file,
        kubelet=arguments.kubelet_dir,
        state=arguments.state,
        library=arguments.library,
    )
    run_loop(lambda: run(options))
    return OK


device_plugin = Command(
    "device-plugin", "offer a GPU node's cards in the units of other projects", _configure, _run
)
