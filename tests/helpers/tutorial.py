"""Runs the commands of a tutorial as a reader would: in terminals, in the order of the page.

A ```sh block runs in the reader's terminal, whose variables stay from block to block. With the
comment `terminal: NAME` before it, it runs in a terminal of its own, until the page is at its end.
A block without a language below it is what it prints, line by line: numbers and ids may differ.
With the comment `exit: CODE` a block ends with this code, else with 0.
The comment `shares: LEASE FROM-TO, ...` says what part of the device's time, in percent, each lease
has after the block, as `rgpu top` shows it: what the page tells a reader to expect.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Self

from helpers.command import WEAK_ISOLATION, rgpu_command
from helpers.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE_SECONDS = 300.0
_COMMENT = re.compile(r"<!-- (terminal|exit|shares): ([\w ,-]+) -->")
_SHARE = re.compile(r"([\w-]+) (\d+)-(\d+)")
_PORT = re.compile(r"\b77[0-9]{2}\b")
_NODE = "gpu-node"
_END = "end-of-block"
# What differs from run to run, and how it looks.
_VARIES = (
    (r"/\S+", r"\\S+"),
    (r"run\\-[0-9a-f]{12}", r"run-[0-9a-f]+"),
    (r"[\d.\\]*\d\\ (?:\w?i?B|ns|us|ms|s)\b", r"[\\d.]+\\s+(?:\\w?i?B|ns|us|ms|s)"),
    (r"\\ ", r"\\s+"),
    (r"\d+", r"\\d+"),
)


@dataclass
class Block:
    """terminal: "" for the reader's own. prints: the lines that are shown below the block. shares:
    lease -> the least and the most of the device's time that it has, in percent.
    """

    script: str
    terminal: str = ""
    code: int = 0
    prints: list[str] = field(default_factory=list)
    shares: dict[str, tuple[int, int]] = field(default_factory=dict)


def blocks_of(text: str) -> list[Block]:
    """Returns the ```sh blocks of a page."""
    found: list[Block] = []
    said: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            said[comment[1]] = comment[2]
        elif line.startswith("```"):
            inside = list(_until_fence(lines))
            if line == "```sh":
                code = int(said.get("exit", 0))
                shares = {
                    lease: (int(least), int(most))
                    for lease, least, most in _SHARE.findall(said.get("shares", ""))
                }
                script = "\n".join(inside)
                found.append(Block(script, said.get("terminal", ""), code, shares=shares))
                said = {}
            elif line == "```":
                found[-1].prints += inside
    return found


def _until_fence(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == "```":
            return
        yield line


def pattern_of(line: str) -> re.Pattern[str]:
    """Returns what a printed line must match."""
    text = re.escape(line)
    pieces = [text]
    for varies, looks in _VARIES:
        pieces = [
            new
            for i, piece in enumerate(pieces)
            for new in (_split(piece, varies, looks) if i % 2 == 0 else [piece])
        ]
    return re.compile("".join(pieces))


def _split(text: str, varies: str, looks: str) -> list[str]:
    """Returns the text's parts; every second one is finished: it stands for what varies."""
    parts: list[str] = []
    for part in re.split(f"({varies})", text):
        parts.append(looks.replace("\\\\", "\\") if len(parts) % 2 else part)
    return parts


class Terminal:
    """A shell with the output that it has shown so far."""

    def __init__(self, folder: Path, environment: dict[str, str], script: str = "") -> None:
        command = ["bash", "-e", "-c", script] if script else ["bash", "--norc"]
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._shown = ""
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Presses Ctrl-C, and closes the terminal."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)
        try:
            self._process.wait(DEADLINE_SECONDS)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            self._reader.join(DEADLINE_SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._shown += line
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def type(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def wait_for(self, pattern: re.Pattern[str], start: int = 0) -> re.Match[str]:
        """Waits until the terminal shows the pattern; AssertionError with what it shows."""
        end = time.monotonic() + DEADLINE_SECONDS
        with self._changed:
            while True:
                found = pattern.search(self._shown, start)
                left = end - time.monotonic()
                if found or self._ended or left <= 0:
                    assert found, f"{pattern.pattern!r} is not in:\n{self._shown[start:]}"
                    return found
                self._changed.wait(left)

    @property
    def length(self) -> int:
        """How many characters it has shown."""
        with self._changed:
            return len(self._shown)

    def text(self, start: int) -> str:
        with self._changed:
            return self._shown[start:]


class Tutorial:
    """A page, and the ports that stand for those in it."""

    def __init__(self, page: Path, folder: Path) -> None:
        self.blocks = blocks_of(page.read_text(encoding="utf-8"))
        self._folder = folder
        ports = {port for block in self.blocks for port in _PORT.findall(block.script)}
        self._ports = {port: str(free_port()) for port in (*sorted(ports), "7700")}
        plain = {name: text for name, text in os.environ.items() if not name.startswith("RGPU_")}
        self._environment = {
            **plain,
            "PATH": f"{Path(rgpu_command()).parent}:{plain['PATH']}",
            "HOME": str(folder),
            "RGPU_SERVER": f"127.0.0.1:{self._ports['7700']}",
        }

    def run(self) -> None:
        """Runs all blocks; AssertionError for the first one that does something else."""
        with ExitStack() as terminals:
            reader = terminals.enter_context(Terminal(self._folder, self._environment))
            for block in self.blocks:
                script = self._here(block.script)
                if block.terminal:
                    assert block.prints, f"nothing says when this is ready: {block.script}"
                    own = Terminal(self._folder, self._environment, script)
                    terminals.enter_context(own)
                    for line in block.prints:
                        own.wait_for(pattern_of(line))
                else:
                    self._run(reader, block, script)

    def _here(self, script: str) -> str:
        """Returns the script with free ports, and a server that any machine can run."""
        script = _PORT.sub(lambda port: self._ports[port[0]], script.replace(_NODE, "127.0.0.1"))
        lines = []
        for line in script.splitlines():
            if line.startswith("rgpu serve"):
                line += f" {WEAK_ISOLATION}"
                if "--listen" not in line and "--config" not in line:
                    line += f" --listen 127.0.0.1:{self._ports['7700']}"
            lines.append(line)
        return "\n".join(lines)

    def _run(self, reader: Terminal, block: Block, script: str) -> None:
        step = self._folder / ".step"
        step.write_text(script + "\n")
        start = reader.length
        reader.type(f"code=0; trap 'code=$?' ERR; . {step}; trap - ERR; echo {_END} $code\n")
        ended = reader.wait_for(re.compile(rf"^{_END} (\d+)$", re.MULTILINE), start)
        said = reader.text(start)
        assert int(ended[1]) == block.code, f"{script}\n{said}"
        for line in block.prints:
            assert pattern_of(line).search(said), f"{line!r} is not in:\n{said}"
        if block.shares:
            self._wait_for_shares(reader, block.shares)

    def _wait_for_shares(self, reader: Terminal, shares: dict[str, tuple[int, int]]) -> None:
        """Waits until every lease has its part of the last ten seconds."""
        end, top = time.monotonic() + DEADLINE_SECONDS, self._folder / ".top"
        while True:
            start = reader.length
            reader.type(f"rgpu top --json > {top}; echo {_END} $?\n")
            reader.wait_for(re.compile(rf"^{_END} 0$", re.MULTILINE), start)
            leases = json.loads(top.read_text())["leases"]
            has = {one["key"]: one["share_10s_ppm"] / 10_000 for one in leases}
            if all(least <= has.get(key, 0) <= most for key, (least, most) in shares.items()):
                return
            assert time.monotonic() < end, f"{shares} was promised: {has}"
