"""What a specification that breaks a rule must be told."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from cudaspec import rows


@contextlib.contextmanager
def refused(sentence: str) -> Iterator[None]:
    """Expects the specification to be refused with this sentence."""
    with pytest.raises(rows.SpecError) as error:
        yield
    assert str(error.value) == sentence
