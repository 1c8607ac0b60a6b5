"""Three tenants share one device under three policies; prints and draws what each of them got.

    python examples/tenants/share.py [--seconds S] [--out shares.svg] [--server ADDRESS]

- `studio` has a fixed share: 25 % of the device's time, and never more.
- `lab` has a burst share: at least 45 %, and what is idle.
- `students` are best effort: nothing is guaranteed, they get what the others leave.

All three compute in the first and the last of three phases. In the middle one `lab` rests, and what
it leaves goes to `students`. Without --server the device is an emulated one of this machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import rgpu_client

WORK = Path(__file__).with_name("work.py")
RGPU = Path(sys.executable).with_name("rgpu")


@dataclass
class Tenant:
    """A tenant, its wishes, and the part of the device that it got in each phase."""

    name: str
    wishes: dict[str, str]
    rests: bool = False
    got: list[float] = field(default_factory=list)


def tenants() -> list[Tenant]:
    """Returns the three of this example."""
    return [
        Tenant("studio", {"policy": "fixed", "share": "25%"}),
        Tenant("lab", {"policy": "burst", "share": "45%"}, rests=True),
        Tenant("students", {"policy": "best-effort"}),
    ]


class Running:
    """A tenant's program in the tenant's lease."""

    def __init__(self, tenant: Tenant, lease: rgpu_client.Lease) -> None:
        self.tenant, self.lease = tenant, lease
        environment = lease.environment()
        environment["NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS"] = "0"
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(WORK)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def await_ready(self) -> None:
        """Waits until the kernel is compiled."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise SystemExit(f"the program of {self.tenant.name} has failed")

    def tell(self, word: str) -> None:
        """Has the program work or rest."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def end(self) -> bool:
        """Ends the program; returns whether its result was right."""
        self._process.communicate()
        return self._process.returncode == 0


def phase(programs: list[Running], seconds: float, resting: bool) -> None:
    """Runs a phase, and notes what each tenant got in it."""
    for program in programs:
        program.tell("rest" if resting and program.tenant.rests else "work")
    begun = time.monotonic()
    before = [program.lease.usage().device_seconds for program in programs]
    time.sleep(seconds)
    after = [program.lease.usage().device_seconds for program in programs]
    passed = time.monotonic() - begun
    for program, first, last in zip(programs, before, after, strict=True):
        program.tenant.got.append((last - first) / passed)


def run(server: str, seconds: float, out: Path | None) -> tuple[list[Tenant], bool]:
    """Runs the three phases; returns the tenants and whether all results were right."""
    with ExitStack() as leases:
        programs = [
            Running(tenant, leases.enter_context(rgpu_client.claim(
                server, memory="64MiB", tenant=tenant.name, **tenant.wishes,
            )))
            for tenant in tenants()
        ]  # fmt: skip
        for program in programs:
            program.await_ready()
        begun = time.monotonic()
        for resting in (False, True, False):
            phase(programs, seconds, resting)
        if out is not None:
            since = f"{time.monotonic() - begun:.0f}s"
            command = [RGPU, "quota", "report", "--since", since, "--out", out, "--server", server]
            subprocess.run(command, check=True)
        endings = [program.end() for program in programs]
    return [program.tenant for program in programs], all(endings)


def main() -> int:
    """Prints the part of the device's time that each tenant got."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a phase (8)")
    parser.add_argument("--out", type=Path, help="a picture: FILE.svg")
    parser.add_argument("--server", help="use a device of this server")
    arguments = parser.parse_args()
    emulated = rgpu_client.emulated_server("1GiB")
    with nullcontext(arguments.server) if arguments.server else emulated as server:
        found, right = run(server, arguments.seconds, arguments.out)
    print(f"{'tenant':10}{'policy':14}{'share':>7}   all work   lab rests   all work")
    for tenant in found:
        wish = f"{tenant.wishes['policy']:14}{tenant.wishes.get('share', '-'):>7}"
        got = "".join(f"{100 * part:10.0f} %" for part in tenant.got)
        print(f"{tenant.name:10}{wish}{got}")
    print("the results of all programs are right" if right else "a result is WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
