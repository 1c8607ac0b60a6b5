"""Runs a server with an emulated device that belongs to this process and ends with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_common.errors import ServerError
from rgpu_common.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

# The addresses that the server names, in the order of its options, and at last its own socket.
_READY = re.compile(r"rgpu: serving .* on ([^,\s]+)")
# The programs of one user are the server's only tenant, so it also runs where the container or the
# kernel cannot isolate its processes from each other. The server's log lists the missing measures.
_WEAK = "--allow-weak-isolation=network-namespace,landlock,own-user"
# The kernel sends the server SIGTERM (15) when the thread that started it ends, also after SIGKILL.
# The second line is for a parent that ended before the first one (1 is PR_SET_PDEATHSIG).
_SERVE = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
if os.getppid() != int(sys.argv.pop(1)): sys.exit(0)
from rgpu_common.command import main
sys.exit(main())
"""
_STOP_SECONDS = 30.0


@contextmanager
def own_server(listen: str, memory: str, log: Path, cache: Path | None = None) -> Iterator[str]:
    """Runs a server with one emulated device in the block, and yields the address that it serves.

    Args:
        listen: the address, as `unix:/PATH` or `127.0.0.1:0`.
        memory: the memory of the device, as `2GiB`. The machine gives only what programs use of it.
        log: the file for the server's log. The server's other files lie beside it.
        cache: the folder for compiled kernels. None: they are kept beside the log.

    Raises:
        ServerError: the server did not start; the sentence has the last line of its log.
    """
    words = ["serve", "--listen", listen, "--device", f"emulated:{memory}", _WEAK]
    words += ["--state-dir", str(log.parent / "state")]
    words += [
        "--config",
        str(_configured(log.with_suffix(".toml"), cache or log.parent / "kernels")),
    ]
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(os.getpid()), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            cwd="/",
            # Variables of a client, such as an access token, are not for the server.
            env={k: v for k, v in os.environ.items() if not k.startswith("RGPU_")},
        )
    try:
        assert process.stdout is not None
        match = _READY.match(process.stdout.readline())
        if match is None:
            _stop(process)
            raise ServerError(f"the server did not start: {_last_line(log)}")
        yield match[1]
    finally:
        _stop(process)


@contextmanager
def emulated_server(memory: str | int = "2GiB") -> Iterator[str]:
    """Runs a server with an emulated device, for this user alone, and yields its address.

        with rgpu_client.emulated_server() as server:
            rgpu_client.connect(server, memory="1GiB")

    An emulated device runs kernels on the processors of this machine, for tests and examples. The
    server ends with the block, or with this process.

    Args:
        memory: the memory of the device, in bytes or as "2GiB". The machine gives only what
            programs use of it.

    Raises:
        UsageError: the size is not accepted.
        ServerError: the server did not start; the sentence says why.
    """
    size = parse_bytes(str(memory))
    with tempfile.TemporaryDirectory(prefix="rgpu-") as folder:
        listen, log = f"unix:{folder}/server", Path(folder, "server.log")
        with own_server(listen, str(size), log, kernels()) as address:
            yield address


def kernels() -> Path | None:
    """Returns the folder of compiled kernels for later servers; None if it cannot be made."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base).absolute() / "rgpu" / "emulated"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def _configured(file: Path, cache: Path) -> Path:
    text = str(cache).replace("\\", "\\\\").replace('"', '\\"')
    file.write_text(f'[emulated]\ncache = "{text}"\n', encoding="utf-8")
    return file


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "its log is empty"
