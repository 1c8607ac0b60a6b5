"""Profiles of MIG slices: "1g.10gb" is a slice with one of the seven compute slices of a GPU."""

from __future__ import annotations

import re

from rgpu_common.errors import UsageError
from rgpu_common.units import PPM

# Compute slices of a GPU, unless its driver says otherwise.
SLICES = 7
_PROFILE = re.compile(
    r"(?:([1-7])c\.)?([1-7])g\.[1-9][0-9]{0,3}gb(?:[+-][a-z][a-z0-9.]{0,15}){0,3}"
)


def check_profile(text: str) -> str:
    """Returns the profile; UsageError if the text cannot be one."""
    if not _PROFILE.fullmatch(text):
        raise UsageError(
            f"{text!r} is not a MIG profile: write it as `nvidia-smi -L` does, 1g.10gb"
        )
    return text


def slices_of(profile: str) -> int:
    """Returns how many compute slices a profile has; UsageError if it is none."""
    match = _PROFILE.fullmatch(check_profile(profile))
    assert match is not None
    return int(match[1] or match[2])


def part_of(profile: str, slices: int = SLICES) -> int:
    """Returns what part of a GPU with so many slices a profile is, in ppm; "" is all of it."""
    return PPM if not profile else min(slices_of(profile) * PPM // slices, PPM)


def full_name(model: str, profile: str) -> str:
    """Returns the name that NVIDIA's driver gives a slice of a model."""
    return f"{model} MIG {profile}" if profile else model


def bare_name(name: str) -> str:
    """Returns the model in the name of a slice or of a GPU."""
    model, _, profile = name.rpartition(" MIG ")
    return model if model and _PROFILE.fullmatch(profile) else name
