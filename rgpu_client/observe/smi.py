"""`rgpu smi`: shows the devices of a lease and its processes, in the shape that people know."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from rgpu_client.observe.nvml import LIBRARY, look
from rgpu_client.observe.smi_table import smi_lines
from rgpu_client.session.launch import carried
from rgpu_client.settings import SESSION_SERVER_HELP, ClientSettings, configured_server
from rgpu_common.command import OK, Command
from rgpu_common.parts import compiled_part

if TYPE_CHECKING:
    import argparse


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--server", metavar="ADDRESS", help=SESSION_SERVER_HELP)
    parser.add_argument("--device", metavar="N", help="device, or several: 0,1 (default: any one)")
    parser.add_argument(
        "--lease", metavar="NAME", help="lease to show (default: RGPU_LEASE, then the container's)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _smi(arguments: argparse.Namespace) -> int:
    folder = compiled_part("rgpu_client", f"lib/{LIBRARY}").parent
    settings = ClientSettings(
        arguments.server, device=arguments.device, lease=arguments.lease
    ).variables()
    environment = {**os.environ, **settings}
    environment.setdefault("RGPU_SERVER", str(configured_server(None, environment)))
    # The library reads the environment of this process.
    os.environ.update(carried(environment))
    node = look(folder)
    if arguments.json:
        print(json.dumps(asdict(node), indent=2))
    else:
        print("\n".join(smi_lines(node, time.strftime("%Y-%m-%d %H:%M:%S"))))
    return OK


smi = Command(
    "smi", "show the devices and processes of a lease, as nvidia-smi does", _configure, _smi
)
