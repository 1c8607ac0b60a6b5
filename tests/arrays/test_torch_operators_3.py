"""PyTorch's own samples of its operators: part 4 of 4."""

from __future__ import annotations

from helpers.needs import import_needed

import_needed("torch", "msgpack", "expecttest")

from helpers.torch_samples import part  # noqa: E402
from helpers.torch_session import issuer  # noqa: E402

__all__ = ["issuer"]
test_samples_give_what_they_give_here = part(3)
