"""`rgpu serve`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.command import OK, Command
from rgpu_common.log_level import log_level
from rgpu_common.variables import say_misspelt
from rgpu_server.config_reader import Overrides, load_config
from rgpu_server.core.isolation import OPTIONAL
from rgpu_server.default_devices import Chosen, look_for_devices

if TYPE_CHECKING:
    import argparse

_LEVELS = ("debug", "info", "warning", "error")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="HOST:PORT, tls:HOST:PORT, ucx:HOST:PORT, grpc[s]:HOST:PORT or unix:/PATH; may be "
        "repeated (default 127.0.0.1:7700)",
    )
    parser.add_argument(
        "--device",
        action="append",
        metavar="DEVICE",
        help="emulated[:8GiB] or cuda[:N]; may be repeated (default: this machine's GPUs, else "
        "emulated)",
    )
    parser.add_argument(
        "--no-socket",
        dest="socket",
        action="store_false",
        default=None,
        help="open no Unix socket for the programs of this machine; by default one is opened "
        "unless --listen names one",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="configuration in TOML")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics there")
    parser.add_argument(
        "--state-dir",
        metavar="FOLDER",
        help="where to keep what a restart needs (default: by port, below /run/rgpu or "
        "$XDG_RUNTIME_DIR/rgpu)",
    )
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="clients on other machines show a token of this file; `rgpu token` makes them",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        default=None,
        help="believe clients on other machines that show neither token nor certificate",
    )
    parser.add_argument(
        "--allow-weak-isolation",
        metavar="MEASURE,...",
        help="serve although this machine does not give processes these measures of isolation: "
        f"{', '.join(OPTIONAL)}",
    )
    parser.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="how much to log on stderr"
    )


def _run(arguments: argparse.Namespace) -> int:
    say_misspelt(os.environ)
    log_level(os.environ)  # of the workers and gateways, which could only say so in the log
    logging.basicConfig(
        level=arguments.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    chosen: list[Chosen] = []

    def default_devices() -> tuple[str, ...]:
        chosen.append(look_for_devices())
        return chosen[0].devices

    config = load_config(
        arguments.config,
        Overrides(
            listen=tuple(arguments.listen) if arguments.listen else None,
            devices=tuple(arguments.device) if arguments.device else None,
            insecure=arguments.insecure,
            metrics=arguments.metrics,
            state=arguments.state_dir,
            tokens=arguments.tokens,
            socket=arguments.socket,
            allow_weak=arguments.allow_weak_isolation,
        ),
        default_devices,
    )
    from rgpu_server.daemon import serve as run_server

    run_server(config, [one.why for one in chosen])
    return OK


serve = Command("serve", "serve devices to clients", _configure, _run)
