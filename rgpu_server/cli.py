"""`rgpu serve`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.command import OK, Command
from rgpu_common.help_pages import plain_words
from rgpu_common.keys import Key, Option, keys_of
from rgpu_common.log_level import log_level
from rgpu_common.variables import say_misspelt
from rgpu_server.config import ServerConfig
from rgpu_server.config_reader import load_config
from rgpu_server.default_devices import Chosen, look_for_devices, look_for_gpus

if TYPE_CHECKING:
    import argparse

LEVELS = ("debug", "info", "warning", "error")


def _configure(parser: argparse.ArgumentParser) -> None:
    for row in keys_of(ServerConfig):
        if row.option is not None:
            add_option(parser, row, row.option)
    parser.add_argument("--config", type=Path, metavar="FILE", help="The configuration, in TOML.")
    parser.add_argument(
        "--log-level", choices=LEVELS, default="info", help="How much to log on stderr."
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="Check the configuration and the files that it names, and end without serving.",
    )


def add_option(parser: argparse.ArgumentParser, row: Key, option: Option) -> None:
    """Adds the option of a key. Its value is None where the command line does not say it."""
    said = plain_words(help_of(row, option).replace("`", "")).replace("%", "%%")
    if not option.metavar:
        parser.add_argument(
            option.flag, dest=row.name, action="store_const", const=option.value, help=said
        )
        return
    action = "append" if option.repeated else "store"
    parser.add_argument(
        option.flag, dest=row.name, action=action, metavar=option.metavar, help=said
    )


def help_of(row: Key, option: Option) -> str:
    """Returns what `--help` says of an option, in Markdown."""
    if not option.metavar:
        return option.note or row.meaning
    accepted = f" {option.metavar.split(',')[0]}: {row.kind.word}" if row.kind.word else ""
    repeated = "; may be repeated" if option.repeated else ""
    shown = row.default_text.replace('"', "").replace("`[", "`").replace("]`", "`")
    default = f" (default: {shown})" if shown not in ("none", "``") else ""
    return f"{row.meaning}{accepted}{repeated}{default}"


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

    def gpus() -> tuple[str, ...]:
        if arguments.check_config:
            return ("cuda",)  # the file may be for another machine
        chosen.append(look_for_gpus())
        return chosen[-1].devices

    config = load_config(arguments.config, vars(arguments), default_devices, gpus)
    if arguments.check_config:
        return _checked(config)
    from rgpu_server.daemon import serve as run_server

    run_server(config, [one.why for one in chosen])
    return OK


def _checked(config: ServerConfig) -> int:
    from rgpu_server.config_files import check_files

    check_files(config)
    addresses = ", ".join(map(str, config.listen))
    devices = ", ".join(map(str, config.devices))
    print(f"rgpu: the configuration is right: {devices} on {addresses}")
    return OK


serve = Command("serve", "serve devices to clients", _configure, _run)
