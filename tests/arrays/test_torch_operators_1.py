"""PyTorch's own samples of its operators: part 2 of 4."""

from __future__ import annotations

from helpers.torch_samples import part
from helpers.torch_session import issuer

__all__ = ["issuer"]
test_samples_give_what_they_give_here = part(1)
