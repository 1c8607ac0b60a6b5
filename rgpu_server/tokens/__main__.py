"""`python -m rgpu_server.tokens --fd N --state FOLDER`: started by the daemon."""

from __future__ import annotations

import argparse
import logging
import signal
import socket
from pathlib import Path

from rgpu_server.tokens.home import Home
from rgpu_server.tokens.loop import TokenLoop
from rgpu_server.tokens.priority import Priority


def main() -> None:
    """Runs the loop; it ends by itself, or on SIGTERM."""
    parser = argparse.ArgumentParser(prog="rgpu_server.tokens")
    parser.add_argument("--fd", type=int, required=True, help="socket to the daemon")
    parser.add_argument("--state", type=Path, help="the daemon's state folder")
    arguments = parser.parse_args()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    priority = Priority()
    priority.begin()
    home = Home(arguments.state) if arguments.state is not None else None
    loop = TokenLoop(home, socket.socket(fileno=arguments.fd), priority)
    signal.signal(signal.SIGTERM, lambda _number, _frame: loop.stop())
    loop.run()
    loop.close()


if __name__ == "__main__":
    main()
