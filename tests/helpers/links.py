"""Emulated networks: network namespaces, and links between them with a fixed delay and rate.

Namespaces, devices and processes end when the test process ends, however it ends. A namespace lives
as long as a process that waits for the end of its input, and devices live as long as their
namespace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.ends import ended
from helpers.needs import demand
from rgpu_common.closing import Closing

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "tests" / "net"
PROGRAMS = ("link", "traffic")
DEADLINE_SECONDS = 30.0
# Measured processes get a higher priority than other work of this machine, which is not part of the
# link. All of them run on one processor. Waking another processor can take longer than the shortest
# round trip, and the system would choose anew for each process how often to do that.
ONE_PROCESSOR = ("taskset", "-c", str(max(os.sched_getaffinity(0))))
# But the emulator of a faster link would leave the ends no time on their processor. So it gets its
# own processor, and polls for packets there rather than be woken for each.
FAST = 1.5e9
OTHER_PROCESSOR = ("taskset", "-c", str(min(os.sched_getaffinity(0))))
SPIN_SECONDS = 500e-6
NICE = (*ONE_PROCESSOR, "nice", "-n", "-15")
# The rows of the table of needs without which no network can be emulated.
NEEDED = ("root", "namespaces", "tun", "iproute2")

MS = 1e-3
MBIT = 1e6
GBIT = 1e9
# The part of a full Ethernet frame on the wire that is TCP payload, with time stamps.
GOODPUT = 1448 / 1538
# The same for a token bucket of the kernel, which does not count preamble, gap and check sequence.
BUCKET_GOODPUT = 1448 / 1514


def build(folder: Path) -> Path:
    """Compiles the programs of tests/net/ into `folder`, and returns it."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler: install g++ ('apt-get install g++')"
    flags = ["-std=c++20", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pthread"]
    for name in PROGRAMS:
        command = [compiler, *flags, f"-I{ROOT}", str(SOURCES / f"{name}.cc"), "-o"]
        subprocess.run([*command, str(folder / name)], check=True, timeout=120)
    return folder


@dataclass(frozen=True, slots=True)
class Shape:
    """The properties of a link.

    round_trip: seconds, 0 for none. rate: bits per second on the wire, each way. burst: 0, or the
    bytes of a token bucket; then the link is the kernel's veth and tbf, without a delay.
    """

    name: str
    round_trip: float
    rate: float
    burst: int = 0

    @property
    def goodput(self) -> float:
        """The bytes of TCP payload per second that the link carries."""
        return self.rate / 8 * (BUCKET_GOODPUT if self.burst else GOODPUT)


class Namespace:
    """A network namespace with a loopback device, until `close`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._keeper = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "ready\n":
            self.close()
            raise AssertionError("a network namespace could not be made: that needs root")

    @property
    def path(self) -> str:
        return f"/proc/{self._keeper.pid}/ns/net"

    def command(self, *words: str) -> list[str]:
        """Returns the command line that runs `words` in this namespace."""
        return ["nsenter", f"--net={self.path}", "--", *words]

    def first(self, *words: str) -> list[str]:
        """Returns the same for a measured process."""
        return self.command(*NICE, *words)

    def first_there(self, *words: str) -> list[str]:
        """Returns the same for a measured process on the other processor."""
        return self.command(*OTHER_PROCESSOR, *NICE[len(ONE_PROCESSOR) :], *words)

    def run(self, *words: str, timeout: float = DEADLINE_SECONDS) -> str:
        """Runs a command in this namespace and returns its output; AssertionError if it fails."""
        done = subprocess.run(
            self.command(*words), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False, cwd="/",
        )  # fmt: skip
        assert done.returncode == 0, f"{' '.join(words)} in {self.name}: {done.stderr}{done.stdout}"
        return done.stdout

    def set(self, name: str, value: str) -> None:
        """Sets a sysctl of this namespace."""
        path = "/proc/sys/" + name.replace(".", "/")
        self.run("sh", "-c", 'echo "$2" > "$1"', "sh", path, value)

    def close(self) -> None:
        assert self._keeper.stdin is not None
        assert self._keeper.stdout is not None
        self._keeper.stdin.close()
        ended(self._keeper)
        self._keeper.stdout.close()


@dataclass
class Link:
    """A link between two namespaces.  a, b: the addresses of its ends."""

    shape: Shape
    a: str
    b: str
    emulator: subprocess.Popen[str] | None = None

    def order(self, text: str) -> str:
        """Sends a command to the emulator; returns its answer."""
        assert self.emulator is not None, "a token bucket of the kernel takes no orders"
        assert self.emulator.stdin is not None
        assert self.emulator.stdout is not None
        self.emulator.stdin.write(text + "\n")
        self.emulator.stdin.flush()
        return self.emulator.stdout.readline().rstrip("\n")

    def cut(self) -> None:
        """Drops all packets from now on. Neither end is told."""
        assert self.order("cut") == "done"

    def mend(self) -> None:
        assert self.order("mend") == "done"

    def set(self, delay: float, rate: float) -> None:
        """Changes the link: delay one way in seconds, rate in bits per second."""
        assert self.order(f"set {round(delay * 1e9)} {round(rate)}") == "done"

    def lose(self, of_a_million: int) -> None:
        """Drops this many of a million packets at random from now on."""
        assert self.order(f"lose {of_a_million}") == "done"

    def lost(self) -> int:
        """Returns how many packets were lost so far, in both directions."""
        _, there, _, back = map(int, self.order("count").split())
        return there + back


@dataclass
class Truth:
    """What raw TCP reaches over a link. Seconds, and bytes per second."""

    least_round_trip: float
    round_trip: float
    up: float
    down: float


class Network(Closing):
    """`with Network(programs) as net:` makes namespaces and links, which end with the block."""

    def __init__(self, programs: Path) -> None:
        demand(*NEEDED)
        self.programs = programs
        self._stack = contextlib.ExitStack()
        self._links = 0

    def close(self) -> None:
        """Ends the links and the namespaces."""
        self._stack.close()

    def namespace(self, name: str) -> Namespace:
        """Returns a new namespace."""
        made = Namespace(name)
        self._stack.callback(made.close)
        # Enough for 10 Gbit/s over 20 ms. With the defaults these buffers would be the limit, not
        # the link.
        made.set("net.ipv4.tcp_rmem", "4096 131072 67108864")
        made.set("net.ipv4.tcp_wmem", "4096 16384 67108864")
        return made

    def link(self, a: Namespace, b: Namespace, shape: Shape, apart: bool = False) -> Link:
        """Connects two namespaces.

        apart: the emulator runs on the other processor, and leaves it to others while there are no
        packets.
        """
        number, self._links = self._links, self._links + 1
        names = (f"link{number}a", f"link{number}b")
        link = Link(shape, f"10.77.{number}.1", f"10.77.{number}.2")
        if shape.burst:
            self._bucket(a, b, shape, names)
        else:
            link.emulator = self._emulate(a, b, shape, names, apart)
        for space, name, address in ((a, names[0], link.a), (b, names[1], link.b)):
            # Passing on a packet of 64 KiB at once would make a slow link bursty.
            whole = max(3000, min(65536, int(shape.rate / 8 * 100e-6)))
            sizes = ["gso_max_size", str(whole)]
            space.run("ip", "addr", "add", f"{address}/24", "dev", name)
            space.run("ip", "link", "set", name, "mtu", "1500", "txqueuelen", "10000", *sizes, "up")
        return link

    def _emulate(
        self, a: Namespace, b: Namespace, shape: Shape, names: Sequence[str], apart: bool
    ) -> subprocess.Popen[str]:
        # The queue holds twice the bytes of one round trip, and never less than switches have for a
        # port. With less, a connection that starts loses packets, and its rate depends more on the
        # queue than on the link.
        queue = max(1 << 20, int(shape.rate / 4 * shape.round_trip))
        alone = shape.rate >= FAST and not apart and OTHER_PROCESSOR != ONE_PROCESSOR
        where = OTHER_PROCESSOR if alone or apart else ONE_PROCESSOR
        spin = SPIN_SECONDS if alone else 0.0
        numbers = (shape.round_trip / 2 * 1e9, shape.rate, queue, spin * 1e9)
        emulator = subprocess.Popen(
            [*where, str(self.programs / "link"), a.path, names[0], b.path, names[1],
             *(str(round(number)) for number in numbers)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        )  # fmt: skip
        self._stack.callback(_close, emulator)
        assert emulator.stdout is not None
        assert emulator.stdout.readline() == "ready\n", "the link emulator did not start"
        return emulator

    def _bucket(self, a: Namespace, b: Namespace, shape: Shape, names: Sequence[str]) -> None:
        a.run("ip", "link", "add", names[0], "type", "veth", "peer", "name", names[1],
              "netns", str(b.path).split("/")[2])  # fmt: skip
        for space, name in ((a, names[0]), (b, names[1])):
            space.run("tc", "qdisc", "add", "dev", name, "root", "tbf", "rate",
                      f"{round(shape.rate / 1000)}kbit", "burst", str(shape.burst),
                      "latency", "20ms")  # fmt: skip

    @contextlib.contextmanager
    def traffic(self, space: Namespace, address: str) -> Iterator[str]:
        """Runs a raw TCP server in a namespace; yields its port."""
        command = space.first(str(self.programs / "traffic"), "serve", address)
        server = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/"
        )
        try:
            assert server.stdout is not None
            yield server.stdout.readline().strip()
        finally:
            _close(server)

    def ping(self, a: Namespace, address: str, port: str, expected: float) -> tuple[float, float]:
        """Returns the least and the median round trip of 64 bytes between two processes, in
        seconds.

        expected: about how long a round trip is. Of long ones fewer are measured.
        """
        program = str(self.programs / "traffic")
        count = max(8, min(60, round(0.06 / max(expected, 1e-6))))
        least, median = a.run(*NICE, program, "ping", address, port, str(count)).split()
        return float(least) / 1e9, float(median) / 1e9

    def bulk(self, a: Namespace, address: str, port: str, way: str, seconds: float) -> float:
        """Returns the bytes per second of one TCP connection; `way` is up (from a) or down."""
        program = str(self.programs / "traffic")
        return float(a.run(*NICE, program, way, address, port, str(seconds)))

    def truth(self, a: Namespace, b: Namespace, link: Link) -> Truth:
        """Returns what raw TCP reaches over a link, with the server in b."""
        # The connection needs half of the time to find its rate.
        seconds = max(0.4, 60 * link.shape.round_trip)
        with self.traffic(b, link.b) as port:
            least, median = self.ping(a, link.b, port, link.shape.round_trip)
            ways = [self.bulk(a, link.b, port, way, seconds) for way in ("up", "down")]
        return Truth(least, median, *ways)

    def tune(self, a: Namespace, b: Namespace, link: Link, rounds: int = 2) -> None:
        """Subtracts the time that this machine adds to a round trip from the link's delay, so that
        processes see the round trip that was set. The delay cannot become negative.
        """
        wanted, delay = link.shape.round_trip, link.shape.round_trip / 2
        if wanted >= 10 * MS:
            return  # this machine adds only about 0.1 ms
        with self.traffic(b, link.b) as port:
            for _ in range(rounds):
                seen = statistics.median(self.ping(a, link.b, port, wanted)[1] for _ in range(3))
                delay = max(0.0, delay - (seen - wanted) / 2)
                link.set(delay, link.shape.rate)


def _close(process: subprocess.Popen[str]) -> None:
    """Closes the pipes of a program that ends with its input, and waits for its end."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    ended(process)


@dataclass
class Programs:
    """The compiled programs, in a folder that exists within the block."""

    folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="rgpu-links-")
    )

    def __enter__(self) -> Path:
        return build(Path(self.folder.name))

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()
