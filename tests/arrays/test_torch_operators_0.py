"""PyTorch's own samples of its operators: part 1 of 4."""

from __future__ import annotations

import json

from helpers.needs import import_needed

import_needed("torch", "msgpack", "expecttest")

from helpers.torch_samples import DATA, OPERATORS, part  # noqa: E402
from helpers.torch_session import issuer  # noqa: E402

__all__ = ["issuer"]
test_samples_give_what_they_give_here = part(0)


def test_the_list_of_what_is_left_out_is_true() -> None:
    data = json.loads(DATA.read_text())
    assert len(OPERATORS) == data["operators"]
    assert set(data["left_out"]) <= set(OPERATORS)
    assert len(OPERATORS) - len(data["left_out"]) >= 670
