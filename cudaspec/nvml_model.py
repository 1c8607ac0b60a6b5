"""The form of the rows of `nvml/`: how the client's libnvidia-ml.so.1 answers each function."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Needs(Enum):
    """What must be known before the body of a function runs.

    NOTHING: it answers also before nvmlInit. LIBRARY: nvmlInit was called. DEVICES: the devices of
    the program; the body gets their `Table`. KNOWN, NOW: the function has a device, and the body
    gets a `View` of it in the handle's place. KNOWN: of any age; NOW: the server has just answered.
    """

    NOTHING = "nothing"
    LIBRARY = "library"
    DEVICES = "devices"
    KNOWN = "known"
    NOW = "now"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that answers.

    prototype: the C declaration as NVIDIA documents it. answers: for the page of all functions.
    body: the function whose body it shares. reading: the key of the reading that it returns; it
    then has no body. nullable: pointers that may be null.
    """

    prototype: str
    needs: Needs
    answers: str
    body: str = ""
    reading: str = ""
    nullable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """Functions that give one error, and why. `names`: separated by blanks."""

    error: str
    reason: str
    names: str
