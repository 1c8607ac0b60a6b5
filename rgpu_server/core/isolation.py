"""The measures that isolate the processes of a server, and which of them an operator may do
without.

Every process that reads bytes from strangers or tenants reports the measures that this machine did
not allow: "MEASURE: reason; MEASURE: reason" (rgpu_common/native/confine/rights.h). `judge` decides
whether the process may be used, and `refusal` tells the operator what to do if not.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

NETWORK_NAMESPACE: Final = "network-namespace"
OWN_USER: Final = "own-user"
LANDLOCK: Final = "landlock"
SANDBOX: Final = "sandbox"
NOT_ROOT: Final = "the server does not run as root"

# Measures that an operator may do without -> the protection that remains.
OPTIONAL: Final = {
    NETWORK_NAMESPACE: "the list of system calls still refuses new sockets and connections",
    OWN_USER: "the list of system calls still refuses signals to other processes, and looks into "
    "them",
    LANDLOCK: "the rights of its user still say which files a process can open",
}
_MEANING: Final = {
    NETWORK_NAMESPACE: "an empty network of its own",
    OWN_USER: "a user of its own",
    LANDLOCK: "no access to files (Landlock)",
    "no-new-privileges": "no way to gain privileges",
    "capabilities": "no capabilities",
    "not-inspectable": "memory that other processes cannot read",
    "limits": "limits of its resources",
    "system-calls": "a list of system calls (seccomp)",
    SANDBOX: "a sandbox",
}


class Process(Enum):
    """The processes that are isolated."""

    WORKER = "worker"
    CUDA_WORKER = "cuda worker"
    COMPILER = "compiler"
    RESPONDER = "probe responder"
    GATEWAY = "gateway"


class Lack(Struct, frozen=True):
    """A measure that a process does not have. why: the cause, such as "EPERM from unshare"."""

    measure: str
    why: str


class Rules(Struct, frozen=True):
    """allowed: measures that the operator accepts to do without. root: the server runs as root."""

    allowed: frozenset[str] = frozenset()
    root: bool = True


class Machine(Struct, frozen=True):
    """The properties of this machine that explain why a measure is missing.

    filtered: the server itself runs under a filter of system calls, as in a container.
    no_user_namespaces: the setting that forbids user namespaces to users; "" if none does.
    """

    filtered: bool = False
    no_user_namespaces: str = ""


class Verdict(Struct, frozen=True):
    """refused: missing measures without which the process must not be used. weakened: missing
    measures that the operator accepted by name.
    """

    refused: tuple[Lack, ...] = ()
    weakened: tuple[Lack, ...] = ()


def read_report(report: str) -> tuple[Lack, ...]:
    """Returns the missing measures of a report. An entry in an unknown form counts as a measure."""
    entries = (entry.partition(": ") for entry in report.split("; ") if entry.strip())
    return tuple(Lack(measure.strip(), why.strip()) for measure, _, why in entries)


def judge(process: Process, report: str, rules: Rules) -> Verdict:
    """Decides whether a process with this report may be used."""
    lacks = read_report(report)
    counting = [lack for lack in lacks if not _is_made_up_for(process, lack, lacks, rules)]
    return Verdict(
        tuple(lack for lack in counting if lack.measure not in rules.allowed),
        tuple(lack for lack in counting if lack.measure in rules.allowed),
    )


def _is_made_up_for(process: Process, lack: Lack, lacks: Collection[Lack], rules: Rules) -> bool:
    """True if other measures make up for a missing user: processes of a server without root share
    its user.

    If the list of system calls refuses signals, connections and programs, and Landlock (or the list
    itself) refuses files, processes of one user can do nothing to each other. NVIDIA's driver needs
    files and most system calls, so its workers need a user of their own.
    """
    if lack.measure != OWN_USER or rules.root or process is Process.CUDA_WORKER:
        return False
    return all(other.measure != LANDLOCK for other in lacks)


def refusal(lacks: Iterable[tuple[Process, Lack]], machine: Machine) -> str:
    """Returns a sentence that names the missing measures, the causes and the remedy. `lacks` is not
    empty.
    """
    by_lack: dict[Lack, list[str]] = {}
    for process, lack in lacks:
        names = by_lack.setdefault(lack, [])
        if process.value not in names:
            names.append(process.value)
    sentences = [_missing(lack, names, machine) for lack, names in by_lack.items()]
    measures = list(dict.fromkeys(lack.measure for lack in by_lack))
    return "; ".join(sentences) + ". " + _remedy(measures)


def weakening(process: Process, lack: Lack) -> str:
    """Returns a line for the log about a missing measure that the operator accepted."""
    remains = OPTIONAL.get(lack.measure, "nothing of it remains")
    return (
        f"isolation is weaker than it could be: {process.value} without {lack.measure} "
        f"({lack.why}), as the operator allows; {remains}"
    )


def _missing(lack: Lack, processes: list[str], machine: Machine) -> str:
    meaning = _MEANING.get(lack.measure, lack.measure)
    why = _because(lack, machine)
    return f"this machine does not give {' and '.join(processes)} {meaning}: {lack.why}{why}"


def _because(lack: Lack, machine: Machine) -> str:
    if lack.measure == OWN_USER:
        if lack.why == NOT_ROOT:
            return ", so its processes have its user"
        return ", which needs CAP_SETUID and CAP_SETGID"
    if lack.measure == LANDLOCK:
        if lack.why.startswith("EOPNOTSUPP"):
            return ", Landlock is not among the kernel's security modules (lsm= at boot)"
        return ", which Linux has from 5.13 on and some containers' seccomp profiles refuse"
    if lack.measure == NETWORK_NAMESPACE:
        if machine.no_user_namespaces:
            return f", because of {machine.no_user_namespaces}"
        if machine.filtered:
            return ", as the seccomp profile of a container answers (Docker's default one does)"
        return ", a new namespace needs CAP_SYS_ADMIN or user namespaces"
    return ""


def _remedy(measures: list[str]) -> str:
    essential = [measure for measure in measures if measure not in OPTIONAL]
    if essential:
        return (
            f"rgpu does not run without {', '.join(essential)}: use a kernel and a container "
            "runtime that have it"
        )
    names = ",".join(measures)
    hints = [_HINTS[measure] for measure in measures]
    return (
        f"{'; '.join(hints)}; or accept it by name: rgpu serve --allow-weak-isolation={names} "
        "(isolation.allow_weak in the configuration file); `rgpu help security` says what remains"
    )


_HINTS: Final = {
    NETWORK_NAMESPACE: "allow unshare to the container (a seccomp profile, or --cap-add "
    "SYS_ADMIN), or user namespaces on this machine",
    OWN_USER: "run rgpu serve as root, with CAP_SETUID and CAP_SETGID: its processes then get "
    "users of their own",
    LANDLOCK: "use a kernel with Landlock",
}
